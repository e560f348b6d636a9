package secrets

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"sort"
)

const (
	keyLength  = MinLength // bytes of a pattern that are looked up at once
	filterBits = 18
)

// pattern is a byte string that gives a secret away.
type pattern struct {
	text string
	// wraps: it is base64, which programs break into lines. A line break may
	// stand between any two of its characters.
	wraps bool
}

// matcher finds patterns in a text. It is immutable. A pattern is looked up by
// its first eight bytes: a bit set of their hashes turns nearly every position
// away, so the cost hardly depends on the number of patterns.
type matcher struct {
	patterns       []string // sorted, distinct
	wrapped        []string // those that wrap, sorted
	longest        int
	longestWrapped int
	filter         *[1 << filterBits / 64]uint64
	index          map[uint64][]pattern // by first eight bytes, longest first
	first          [256]bool            // first bytes of patterns
	firstWrapped   [256]bool            // of those that wrap
}

func newMatcher(patterns []pattern) *matcher {
	patterns = slices.Clone(patterns)
	// Of two that are equal, the one that wraps stays.
	slices.SortFunc(patterns, func(a, b pattern) int {
		if a.text == b.text && a.wraps != b.wraps {
			if a.wraps {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.text, b.text)
	})
	patterns = slices.CompactFunc(patterns, func(a, b pattern) bool { return a.text == b.text })
	m := &matcher{
		filter: new([1 << filterBits / 64]uint64),
		index:  map[uint64][]pattern{},
	}
	for _, p := range patterns {
		key := binary.LittleEndian.Uint64([]byte(p.text[:keyLength]))
		h := hash(key)
		m.filter[h/64] |= 1 << (h % 64)
		m.index[key] = append(m.index[key], p)
		m.first[p.text[0]] = true
		m.longest = max(m.longest, len(p.text))
		m.patterns = append(m.patterns, p.text)
		if p.wraps {
			m.wrapped = append(m.wrapped, p.text)
			m.firstWrapped[p.text[0]] = true
			m.longestWrapped = max(m.longestWrapped, len(p.text))
		}
	}
	for _, list := range m.index {
		slices.SortFunc(list, func(a, b pattern) int { return len(b.text) - len(a.text) })
	}
	return m
}

// hash maps a key to filterBits bits.
func hash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - filterBits) }

// each calls found with the place and the length of the longest pattern that
// begins at each position of text before limit.
func (m *matcher) each(text []byte, limit int, found func(i, n int)) {
	limit = min(limit, len(text)-keyLength+1)
	newline, backslash := nextByte(text, 0, '\n'), nextByte(text, 0, '\\')
	near := min(newline, backslash) - keyLength // from here on a line break is among the first characters
	for i := 0; i < limit; i++ {
		key := binary.LittleEndian.Uint64(text[i : i+keyLength])
		n := 0
		if h := hash(key); m.filter[h/64]&(1<<(h%64)) != 0 {
			n = m.at(text[i:], key)
		}
		if i >= near {
			if m.firstWrapped[text[i]] {
				if key, ok := unwrappedKey(text[i:]); ok {
					n = max(n, m.at(text[i:], key))
				}
			}
			if i == newline {
				newline = nextByte(text, i+1, '\n')
			}
			if i == backslash {
				backslash = nextByte(text, i+1, '\\')
			}
			near = min(newline, backslash) - keyLength
		}
		if n > 0 {
			found(i, n)
		}
	}
}

// nextByte returns the place of the first c in text from i on, len(text) with
// room to spare when there is none.
func nextByte(text []byte, i int, c byte) int {
	if n := bytes.IndexByte(text[i:], c); n >= 0 {
		return i + n
	}
	return len(text) + keyLength
}

// at returns the length of the longest pattern of that key at the start of
// text, with the line breaks in it; 0 when there is none.
func (m *matcher) at(text []byte, key uint64) int {
	h := hash(key)
	if m.filter[h/64]&(1<<(h%64)) == 0 {
		return 0
	}
	for _, p := range m.index[key] {
		if len(p.text) <= len(text) && string(text[:len(p.text)]) == p.text {
			return len(p.text)
		}
		if p.wraps {
			if n := lengthWrapped(text, p.text); n > 0 {
				return n
			}
		}
	}
	return 0
}

// maxBreak is the length of the longest line break.
const maxBreak = len(`\r\n`)

// lineBreak returns the length of the line break at the start of text, also of
// one written as in a JSON string, and of one that is cut off by the end of
// text; 0 when there is none.
func lineBreak(text []byte) int {
	if len(text) == 0 || text[0] != '\n' && text[0] != '\r' && text[0] != '\\' {
		return 0
	}
	for _, form := range [...]string{"\r\n", "\n", `\r\n`, `\n`} {
		if n := min(len(form), len(text)); string(text[:n]) == form[:n] {
			return n
		}
	}
	return 0
}

// unwrapped steps over the characters of a text that are no line breaks. At
// most one break stands between two of them.
type unwrapped struct {
	text   []byte
	at     int
	begun  bool
	broken bool // a break was just passed
}

// next returns the next character, false at the end.
func (u *unwrapped) next() (byte, bool) {
	if u.begun && !u.broken {
		if n := lineBreak(u.text[u.at:]); n > 0 {
			u.at += n
			u.broken = true
		}
	}
	if u.at == len(u.text) {
		return 0, false
	}
	c := u.text[u.at]
	u.at++
	u.begun, u.broken = true, false
	return c, true
}

// unwrappedKey returns the first characters of text without line breaks.
func unwrappedKey(text []byte) (key uint64, ok bool) {
	var b [keyLength]byte
	u := unwrapped{text: text}
	for i := range b {
		if b[i], ok = u.next(); !ok {
			return 0, false
		}
	}
	return binary.LittleEndian.Uint64(b[:]), true
}

// lengthWrapped returns how much of text p takes at its start with line breaks
// in it, 0 when it is not there.
func lengthWrapped(text []byte, p string) int {
	u := unwrapped{text: text}
	for i := range len(p) {
		if c, ok := u.next(); !ok || c != p[i] {
			return 0
		}
	}
	return u.at
}

// open returns the first position from which text may be the beginning of a
// pattern that goes on behind its end, len(text) when there is none.
func (m *matcher) open(text []byte) int {
	from := max(0, len(text)-m.longest+1)
	fromWrapped := max(0, len(text)-(1+maxBreak)*m.longestWrapped+1)
	if !bytes.ContainsAny(text[fromWrapped:], "\n\r\\") {
		fromWrapped = len(text)
	}
	for i := min(from, fromWrapped); i < len(text); i++ {
		if !m.first[text[i]] {
			continue
		}
		if i >= from && m.begins(text[i:]) || i >= fromWrapped && m.beginsWrapped(text[i:]) {
			return i
		}
	}
	return len(text)
}

// begins reports whether tail is a proper prefix of a pattern.
func (m *matcher) begins(tail []byte) bool {
	i := sort.Search(len(m.patterns), func(i int) bool { return m.patterns[i] > string(tail) })
	return i < len(m.patterns) && len(m.patterns[i]) > len(tail) && m.patterns[i][:len(tail)] == string(tail)
}

// beginsWrapped reports whether tail without its line breaks is a proper prefix
// of a pattern that wraps.
func (m *matcher) beginsWrapped(tail []byte) bool {
	i := sort.Search(len(m.wrapped), func(i int) bool {
		order, _ := compareWrapped(tail, m.wrapped[i])
		return order < 0
	})
	if i == len(m.wrapped) {
		return false
	}
	_, prefix := compareWrapped(tail, m.wrapped[i])
	return prefix
}

// compareWrapped compares tail without its line breaks with p, and reports
// whether it is a proper prefix of p.
func compareWrapped(tail []byte, p string) (order int, prefix bool) {
	u := unwrapped{text: tail}
	for i := 0; ; i++ {
		c, ok := u.next()
		switch {
		case !ok && i < len(p):
			return -1, true
		case !ok:
			return 0, false
		case i == len(p):
			return 1, false
		case c != p[i]:
			return cmp.Compare(c, p[i]), false
		}
	}
}
