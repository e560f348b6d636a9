package openai

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// details collects reasoning_details, which go back as they came, the pieces
// of one entry put together.
type details struct {
	entries []entry
	block   *block // the thinking block that keeps them
}

// entry is a JSON object in the order of its fields.
type entry []entryField

// entryField is a field of an entry. A text that may grow is kept in text, so
// that a long one costs no more than its pieces.
type entryField struct {
	key   string
	value json.RawMessage
	text  *strings.Builder
}

// grows reports whether the pieces of a field are put together.
func grows(key string) bool { return key == "text" || key == "summary" }

// add takes the entries of a delta and returns the text in them.
func (d *details) add(list []json.RawMessage) string {
	var text strings.Builder
	for _, raw := range list {
		e, ok := parseEntry(raw)
		if !ok {
			continue
		}
		text.WriteString(e.grown())
		if n := len(d.entries); n > 0 && d.entries[n-1].continues(e) {
			d.entries[n-1].merge(e)
		} else {
			d.entries = append(d.entries, e)
		}
	}
	return text.String()
}

// store puts the entries into their block.
func (d *details) store() {
	if d.block == nil {
		return
	}
	list := make([]json.RawMessage, 0, len(d.entries))
	proof := ""
	for _, e := range d.entries {
		list = append(list, e.json())
		for _, key := range []string{"signature", "id", "type"} {
			if proof == "" {
				proof = e.string(key)
			}
		}
	}
	all, err := wire.Marshal(list)
	if err != nil {
		return
	}
	raw, err := wire.Marshal(chatThinking{Field: fieldReasoning, Details: all})
	if err != nil {
		return
	}
	d.block.Raw, d.block.Signature = string(wire.ValidText(raw)), proof
}

func parseEntry(raw json.RawMessage) (entry, bool) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	var e entry
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, false
		}
		var value json.RawMessage
		if dec.Decode(&value) != nil {
			return nil, false
		}
		f := entryField{key: key.(string), value: value}
		var s string
		if grows(f.key) && value[0] == '"' && json.Unmarshal(value, &s) == nil {
			f.text = &strings.Builder{}
			f.text.WriteString(s)
		}
		e = append(e, f)
	}
	return e, len(e) > 0
}

func (e entry) get(key string) json.RawMessage {
	for _, f := range e {
		if f.key == key && string(f.value) != "null" {
			return f.value
		}
	}
	return nil
}

// string returns a field that is a string and does not grow.
func (e entry) string(key string) string {
	var s string
	_ = json.Unmarshal(e.get(key), &s) // what is no string has no text
	return s
}

// grown returns the text in the fields that grow.
func (e entry) grown() string {
	s := ""
	for _, f := range e {
		if f.text != nil {
			s += f.text.String()
		}
	}
	return s
}

// continues reports whether o is a further piece of e: text of the same kind
// at the same index and not of another id.
func (e entry) continues(o entry) bool {
	kind := o.string("type")
	if kind != e.string("type") || (kind != "reasoning.text" && kind != "reasoning.summary") {
		return false
	}
	if !bytes.Equal(e.get("index"), o.get("index")) {
		return false
	}
	return e.string("id") == "" || o.string("id") == "" || e.string("id") == o.string("id")
}

// merge adds a further piece: text grows, other fields take the newer value.
func (e *entry) merge(o entry) {
next:
	for _, f := range o {
		for i := range *e {
			have := &(*e)[i]
			if have.key != f.key {
				continue
			}
			switch {
			case string(f.value) == "null":
			case have.text != nil && f.text != nil:
				have.text.WriteString(f.text.String())
			default:
				have.value, have.text = f.value, f.text
			}
			continue next
		}
		*e = append(*e, f)
	}
}

func (e entry) json() json.RawMessage {
	out := []byte{'{'}
	for i, f := range e {
		if i > 0 {
			out = append(out, ',')
		}
		key, _ := wire.Marshal(f.key) // a string always has a JSON form
		value := f.value
		if f.text != nil {
			value, _ = wire.Marshal(f.text.String())
		}
		out = append(append(append(out, key...), ':'), value...)
	}
	return append(out, '}')
}

// thinkTags splits content that may begin with <think>…</think>, which servers
// leave there when they do not know the model's template.
type thinkTags struct {
	text, thinking func(string)

	state tagState
	held  string // not yet decided
}

type tagState int

const (
	tagStart tagState = iota // before the first character that is not white space
	tagInside
	tagBehind // after the end tag, before the answer
	tagDone
)

const (
	openTag  = "<think>"
	closeTag = "</think>"
)

func (t *thinkTags) add(s string) {
	t.held += s
	for t.step() {
	}
}

// step handles what is held as far as it is decided and reports whether to go
// on.
func (t *thinkTags) step() bool {
	switch t.state {
	case tagStart:
		trimmed := strings.TrimLeft(t.held, " \t\r\n")
		switch {
		case strings.HasPrefix(trimmed, openTag):
			t.held, t.state = trimmed[len(openTag):], tagInside
			return true
		case strings.HasPrefix(openTag, trimmed):
			return false
		}
		t.state = tagDone
		return true
	case tagInside:
		if before, after, ok := strings.Cut(t.held, closeTag); ok {
			t.thinking(before)
			t.held, t.state = after, tagBehind
			return true
		}
		keep := partialEnd(t.held, closeTag)
		t.thinking(t.held[:len(t.held)-keep])
		t.held = t.held[len(t.held)-keep:]
		return false
	case tagBehind:
		t.held = strings.TrimLeft(t.held, " \t\r\n")
		if t.held == "" {
			return false
		}
		t.state = tagDone
		return true
	default:
		t.text(t.held)
		t.held = ""
		return false
	}
}

// end gives out what is still held.
func (t *thinkTags) end() {
	if t.state == tagInside {
		t.thinking(t.held)
	} else {
		t.text(t.held)
	}
	t.held, t.state = "", tagDone
}

// partialEnd returns the length of the longest end of s that begins tag.
func partialEnd(s, tag string) int {
	for n := min(len(tag)-1, len(s)); n > 0; n-- {
		if strings.HasSuffix(s, tag[:n]) {
			return n
		}
	}
	return 0
}
