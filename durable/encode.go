package durable

import (
	"bytes"
	"encoding/json"
)

// encode is json.Marshal without the escaping of <, > and &, so that raw JSON
// inside a value keeps its text.
func encode(v any) (json.RawMessage, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

// marshalRaw encodes a value of the engine's own, which cannot fail.
func marshalRaw(v any) json.RawMessage {
	raw, err := encode(v)
	if err != nil {
		panic("durable: encode: " + err.Error())
	}
	return raw
}
