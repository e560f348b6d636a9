package secrets

import (
	"bytes"
	"encoding/json"
)

// JSON returns JSON text with all secrets masked that stand in its strings,
// however they are escaped there. The result is JSON as text is: numbers that
// look like a secret are left alone. It is text itself when there are no
// secrets in it, else a copy.
func (r *Redactor) JSON(text []byte) []byte {
	m := r.load()
	if m == nil {
		return text
	}
	var dst []byte // nil while nothing was masked
	done := 0      // text up to here is in dst
	for i := 0; i < len(text); {
		open := bytes.IndexByte(text[i:], '"')
		if open < 0 {
			break
		}
		open += i
		end, escaped := stringEnd(text, open+1)
		inner := text[open+1 : end]
		i = end + 1
		masked, found := m.maskString(inner, escaped)
		if !found {
			continue
		}
		dst = append(dst, text[done:open+1]...)
		dst = append(dst, masked...)
		done = end
	}
	if dst == nil {
		return text
	}
	return append(dst, text[done:]...)
}

// stringEnd returns where the string literal that has begun before from ends,
// and whether it holds escapes. An unfinished one ends with the text.
func stringEnd(text []byte, from int) (end int, escaped bool) {
	for i := from; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i, escaped
		case '\\':
			escaped = true
			i++
		}
	}
	return len(text), escaped
}

// maskString masks the inside of a string literal.
func (m *matcher) maskString(inner []byte, escaped bool) (masked []byte, found bool) {
	if len(inner) < MinLength {
		return nil, false
	}
	if escaped {
		quoted := make([]byte, 0, len(inner)+2)
		quoted = append(append(append(quoted, '"'), inner...), '"')
		var s string
		if json.Unmarshal(quoted, &s) == nil {
			if masked, found = m.mask([]byte(s)); found {
				masked = quoteInner(masked)
			}
			return masked, found
		}
	}
	return m.mask(inner)
}

func quoteInner(b []byte) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(string(b)) // a string can always be encoded
	out := bytes.TrimSpace(buf.Bytes())
	return out[1 : len(out)-1]
}
