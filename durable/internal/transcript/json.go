package transcript

import (
	"bytes"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable/model"
)

var (
	emptyObject = json.RawMessage(`{}`)
	emptySchema = json.RawMessage(`{"type":"object"}`)
)

// cleanCall makes the name and the arguments of a call acceptable.
func cleanCall(b *model.Block) (changed bool) {
	id, name := CleanText(b.ID), cleanName(b.Name)
	args := cleanObject(b.Arguments, emptyObject)
	raw := b.RawArguments
	if raw != "" && !sameObject(raw, args) {
		raw = ""
	}
	changed = id != b.ID || name != b.Name || raw != b.RawArguments || !bytes.Equal(args, b.Arguments)
	b.ID, b.Name, b.Arguments, b.RawArguments = id, name, args, raw
	return changed
}

// cleanObject returns raw when it is a JSON object with nothing but Unicode in
// it, repaired where only characters are wrong, else the fallback.
func cleanObject(raw, fallback json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(raw)
	if len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed) {
		return fallback
	}
	if !utf8.Valid(raw) {
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	copied := false
	for at := range loneSurrogates(raw) {
		if !copied {
			copied = true
			raw = slices.Clone(raw)
		}
		copy(raw[at:], `\ufffd`)
	}
	return raw
}

// sameObject reports whether text is a JSON object equal to args but for white
// space, so that it may be sent in their place.
func sameObject(text string, args json.RawMessage) bool {
	if !cleanJSON(text) {
		return false
	}
	var compact bytes.Buffer
	if json.Compact(&compact, []byte(text)) != nil {
		return false
	}
	return bytes.Equal(compact.Bytes(), args)
}

// cleanJSON reports whether text is JSON with nothing but Unicode in it.
func cleanJSON(text string) bool {
	raw := []byte(text)
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return false
	}
	for range loneSurrogates(raw) {
		return false
	}
	return true
}

// loneSurrogates yields where in a valid JSON text an escape \uD800 to \uDFFF
// stands that is not half of a pair.
func loneSurrogates(raw []byte) func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i := 0; i < len(raw); i++ {
			if raw[i] != '\\' {
				continue
			}
			high := surrogate(raw, i)
			switch {
			case high == 0:
				i++ // another escape; its second byte may be a backslash
			case high < 0xDC00 && surrogate(raw, i+6) >= 0xDC00:
				i += 11
			default:
				if !yield(i) {
					return
				}
				i += 5
			}
		}
	}
}

// surrogate returns the surrogate escaped at raw[i:], 0 for anything else.
func surrogate(raw []byte, i int) (v int) {
	if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
		return 0
	}
	for _, c := range raw[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0
		}
		v = v<<4 | int(c)
	}
	if v < 0xD800 || v > 0xDFFF {
		return 0
	}
	return v
}
