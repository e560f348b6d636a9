package secrets

import (
	"encoding/binary"
	"slices"
	"sort"
	"strings"
)

const (
	keyLength  = MinLength // bytes of a pattern that are looked up at once
	filterBits = 18
)

// matcher finds patterns in a text. It is immutable. A pattern is looked up by
// its first eight bytes: a bit set of their hashes turns nearly every position
// away, so the cost hardly depends on the number of patterns.
type matcher struct {
	patterns []string // sorted, distinct
	longest  int
	filter   *[1 << filterBits / 64]uint64
	index    map[uint64][]string // by first eight bytes, longest first
	first    [256]bool           // first bytes of patterns
}

func newMatcher(patterns []string) *matcher {
	patterns = slices.Clone(patterns)
	slices.Sort(patterns)
	m := &matcher{
		patterns: slices.Compact(patterns),
		filter:   new([1 << filterBits / 64]uint64),
		index:    map[uint64][]string{},
	}
	for _, p := range m.patterns {
		key := binary.LittleEndian.Uint64([]byte(p[:keyLength]))
		h := hash(key)
		m.filter[h/64] |= 1 << (h % 64)
		m.index[key] = append(m.index[key], p)
		m.first[p[0]] = true
		m.longest = max(m.longest, len(p))
	}
	for _, list := range m.index {
		slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) })
	}
	return m
}

// hash maps a key to filterBits bits.
func hash(key uint64) uint64 { return key * 0x9e3779b97f4a7c15 >> (64 - filterBits) }

// each calls found with the place and the length of the longest pattern that
// begins at each position of text before limit.
func (m *matcher) each(text []byte, limit int, found func(i, n int)) {
	for i := 0; i < limit && i+keyLength <= len(text); i++ {
		key := binary.LittleEndian.Uint64(text[i : i+keyLength])
		h := hash(key)
		if m.filter[h/64]&(1<<(h%64)) == 0 {
			continue
		}
		for _, p := range m.index[key] {
			if len(p) <= len(text)-i && string(text[i:i+len(p)]) == p {
				found(i, len(p))
				break
			}
		}
	}
}

// open returns the first position from which text may be the beginning of a
// pattern that goes on behind its end, len(text) when there is none.
func (m *matcher) open(text []byte) int {
	for i := max(0, len(text)-m.longest+1); i < len(text); i++ {
		if m.first[text[i]] && m.begins(text[i:]) {
			return i
		}
	}
	return len(text)
}

// begins reports whether tail is a proper prefix of a pattern.
func (m *matcher) begins(tail []byte) bool {
	s := string(tail)
	i := sort.SearchStrings(m.patterns, s)
	if i < len(m.patterns) && m.patterns[i] == s {
		i++
	}
	return i < len(m.patterns) && strings.HasPrefix(m.patterns[i], s)
}
