package secrets

import (
	"bytes"
	"slices"
)

// masker masks one text that comes in pieces.
type masker struct {
	held []byte // what came last and is not decided yet
	// covered is how much of held belongs to a secret whose mask was written.
	covered int
	found   bool // a secret was masked
	json    bool // the text is JSON
}

// span is a stretch of text that holds a secret.
type span struct{ from, to int }

// next takes the next piece and appends to dst what is decided now: with final,
// all of it.
func (k *masker) next(m *matcher, dst, piece []byte, final bool) []byte {
	text := piece
	if len(k.held) > 0 {
		text = append(k.held, piece...)
	}
	spans, limit := k.find(m, text, final)
	dst = k.write(dst, text, spans, limit)
	k.held = append(k.held[:0], text[limit:]...)
	return dst
}

func (k *masker) find(m *matcher, text []byte, final bool) ([]span, int) {
	if k.json {
		return m.findJSON(text, final)
	}
	return m.find(text, final)
}

// write appends text up to limit, with the spans masked.
func (k *masker) write(dst, text []byte, spans []span, limit int) []byte {
	k.found = k.found || len(spans) > 0
	at := k.covered // up to here the text is written, or masked
	for _, s := range spans {
		if s.from >= at {
			dst = append(dst, text[at:s.from]...)
			dst = append(dst, Mask...)
		}
		at = max(at, s.to)
	}
	if at < limit {
		dst = append(dst, text[at:limit]...)
		at = limit
	}
	k.covered = at - limit
	return dst
}

// find returns, in order, where secrets stand in text that begin before limit.
// From limit on the text must be looked at again with what follows it; with
// final, limit is its end.
func (m *matcher) find(text []byte, final bool) (spans []span, limit int) {
	limit = len(text)
	escaped := bytes.IndexByte(text, '%') >= 0
	var decoded []byte
	var offsets []int
	if !final {
		limit = m.open(text)
	}
	if escaped {
		var pending int
		decoded, offsets, pending = unescape(text)
		if final {
			// What was cut off is text as it is.
			for i := pending; i < len(text); i++ {
				decoded = append(decoded, text[i])
				offsets = append(offsets, i+1)
			}
		} else {
			open := m.open(decoded)
			if pending < len(text) {
				// The byte that is coming may go on with anything that is
				// open, or begin something.
				limit = min(limit, pending)
			}
			if open < len(decoded) {
				limit = min(limit, offsets[open])
			}
			// An escape is not taken apart.
			if i, ok := slices.BinarySearch(offsets, limit); !ok {
				limit = offsets[i-1]
			}
		}
	}
	m.each(text, limit, func(i, n int) { spans = append(spans, span{i, i + n}) })
	if escaped {
		end, _ := slices.BinarySearch(offsets, limit)
		m.each(decoded, min(end, len(decoded)), func(i, n int) {
			spans = append(spans, span{offsets[i], offsets[i+n]})
		})
		slices.SortFunc(spans, func(a, b span) int { return a.from - b.from })
	}
	return spans, limit
}
