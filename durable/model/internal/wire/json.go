package wire

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal is json.Marshal without the escaping of <, > and &, so that raw JSON
// inside v keeps its text.
func Marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte{'\n'}), nil
}

var anyEscape = regexp.MustCompile(`\\(?:u[0-9a-fA-F]{4}|.)`)

// ValidText returns raw JSON in the one form in which it is sent, however it
// was stored in between: invalid UTF-8 and escapes of lone surrogates, which
// strict servers refuse, become U+FFFD, and the escapes that Go's encoder puts
// in place of <, >, &, U+2028 and U+2029 are undone. Anything else keeps its
// bytes; without any of these it returns raw itself.
func ValidText(raw json.RawMessage) json.RawMessage {
	raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	if !bytes.Contains(raw, []byte(`\u`)) {
		return raw
	}
	found := anyEscape.FindAllIndex(raw, -1)
	var out []byte
	kept := 0
	for i := 0; i < len(found); i++ {
		start, end := found[i][0], found[i][1]
		r := escapedRune(raw[start:end])
		switch {
		case r == '<' || r == '>' || r == '&' || r == '\u2028' || r == '\u2029':
		case !utf16.IsSurrogate(r):
			continue
		case i+1 < len(found) && found[i+1][0] == end &&
			utf16.DecodeRune(r, escapedRune(raw[end:found[i+1][1]])) != '\uFFFD':
			i++ // a pair
			continue
		default:
			r = '\uFFFD'
		}
		out = utf8.AppendRune(append(out, raw[kept:start]...), r)
		kept = end
	}
	if kept == 0 {
		return raw
	}
	return append(out, raw[kept:]...)
}

// escapedRune returns the value of an escape \uXXXX, 0 of any other.
func escapedRune(escape []byte) rune {
	if len(escape) != 6 {
		return 0
	}
	n, err := strconv.ParseUint(string(escape[2:]), 16, 32)
	if err != nil {
		return 0
	}
	return rune(n)
}
