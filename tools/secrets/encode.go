package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
)

// variants returns the byte strings that give a value away in a text. Each has
// at least [MinLength] bytes when the value has. Its URL-encoded forms are not
// among them: they are found by decoding.
func variants(value string) []pattern {
	all := []pattern{{text: value}}
	for _, alphabet := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			all = append(all, pattern{inBase64(alphabet, value, before), true})
		}
	}
	for _, text := range inStrings(value) {
		all = append(all, pattern{text: text})
	}
	return all
}

// inBase64 returns the characters of a base64 text that are decided by value
// alone when it has before (mod 3) bytes in front of it. Characters that it
// shares with a neighbour are left out.
func inBase64(alphabet *base64.Encoding, value string, before int) string {
	padded := append(make([]byte, before), value...)
	text := alphabet.EncodeToString(padded)
	first := (before*8 + 5) / 6
	last := len(padded) * 8 / 6
	return text[first:last]
}

// inStrings returns value as it stands between the quotes of a JSON or Go
// string, where that differs from value.
func inStrings(value string) []string {
	var all []string
	for _, escapeHTML := range []bool{true, false} {
		var buf bytes.Buffer
		enc := json.NewEncoder(&buf)
		enc.SetEscapeHTML(escapeHTML)
		if enc.Encode(value) == nil {
			all = append(all, unquote(bytes.TrimSpace(buf.Bytes())))
		}
	}
	return append(all, unquote([]byte(strconv.Quote(value))))
}

func unquote(b []byte) string { return string(b[1 : len(b)-1]) }

// unescape decodes %XX escapes. offsets[i] is where byte i of the result began
// in text, offsets[len(result)] is len(text). An incomplete escape at the end
// of text is left out of the result: pending is where it begins, len(text) when
// there is none.
func unescape(text []byte) (decoded []byte, offsets []int, pending int) {
	decoded = make([]byte, 0, len(text))
	offsets = make([]int, 0, len(text)+1)
	for i := 0; i < len(text); {
		offsets = append(offsets, i)
		if text[i] != '%' {
			decoded = append(decoded, text[i])
			i++
			continue
		}
		high, low, n := escapeAt(text[i:])
		switch n {
		case 0: // cut off
			return decoded, offsets, i
		case 1: // a percent sign
			decoded = append(decoded, '%')
		default:
			decoded = append(decoded, high<<4|low)
		}
		i += n
	}
	return decoded, append(offsets, len(text)), len(text)
}

// escapeAt reads the escape at the start of b, which begins with a percent
// sign: n is 3 for an escape, 1 for a sign that is none, 0 when b ends first.
func escapeAt(b []byte) (high, low byte, n int) {
	if len(b) < 2 {
		return 0, 0, 0
	}
	high, ok := hexDigit(b[1])
	if !ok {
		return 0, 0, 1
	}
	if len(b) < 3 {
		return 0, 0, 0
	}
	if low, ok = hexDigit(b[2]); !ok {
		return 0, 0, 1
	}
	return high, low, 3
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}
