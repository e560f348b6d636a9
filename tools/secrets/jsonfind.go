package secrets

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// findJSON is find for JSON text: secrets are looked for in what its strings
// mean, however they are escaped.
func (m *matcher) findJSON(text []byte, final bool) (spans []span, limit int) {
	if bytes.IndexByte(text, '\\') < 0 {
		return m.find(text, final)
	}
	decoded, offsets := unescapeJSON(text, final)
	spans, limit = m.find(decoded, final)
	for i, s := range spans {
		spans[i] = span{offsets[s.from], offsets[s.to]}
	}
	return spans, offsets[limit]
}

// unescapeJSON decodes the escapes of strings in JSON text. offsets[i] is where
// byte i of the result began in text, offsets[len(decoded)] where the text ends
// or, unless it is final, where an incomplete escape begins that is left out.
func unescapeJSON(text []byte, final bool) (decoded []byte, offsets []int) {
	decoded = make([]byte, 0, len(text))
	offsets = make([]int, 0, len(text)+1)
	for i := 0; i < len(text); {
		n := 1
		if text[i] != '\\' {
			decoded = append(decoded, text[i])
		} else if r, size, complete := jsonEscape(text[i:]); complete {
			decoded = utf8.AppendRune(decoded, r)
			n = size
		} else if final {
			decoded = append(decoded, text[i])
		} else {
			return decoded, append(offsets, i)
		}
		for len(offsets) < len(decoded) {
			offsets = append(offsets, i)
		}
		i += n
	}
	return decoded, append(offsets, len(text))
}

// jsonEscape decodes the escape at the start of text, which begins with a
// backslash. A backslash that begins none is itself.
func jsonEscape(text []byte) (r rune, size int, complete bool) {
	if len(text) < 2 {
		return 0, 0, false
	}
	switch c := text[1]; c {
	case '"', '\\', '/':
		return rune(c), 2, true
	case 'b':
		return '\b', 2, true
	case 'f':
		return '\f', 2, true
	case 'n':
		return '\n', 2, true
	case 'r':
		return '\r', 2, true
	case 't':
		return '\t', 2, true
	case 'u':
	default:
		return '\\', 1, true
	}
	const unit = len(`\u0000`)
	r, ok := hexUnit(text)
	switch {
	case !ok:
		return '\\', 1, true
	case len(text) < unit:
		return 0, 0, false
	case !utf16.IsSurrogate(r):
		return r, unit, true
	}
	low, ok := hexUnit(text[unit:])
	switch {
	case ok && len(text) < 2*unit:
		return 0, 0, false
	case ok && utf16.DecodeRune(r, low) != utf8.RuneError:
		return utf16.DecodeRune(r, low), 2 * unit, true
	}
	return utf8.RuneError, unit, true
}

// hexUnit reads an escape of the form \u0000; false when text is not the
// beginning of one.
func hexUnit(text []byte) (rune, bool) {
	const unit = len(`\u0000`)
	text = text[:min(unit, len(text))]
	for i, c := range text {
		_, hex := hexDigit(c)
		if i == 0 && c != '\\' || i == 1 && c != 'u' || i > 1 && !hex {
			return 0, false
		}
	}
	if len(text) < unit {
		return 0, true
	}
	n, err := strconv.ParseUint(string(text[2:]), 16, 16)
	return rune(n), err == nil
}
