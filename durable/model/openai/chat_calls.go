package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// callTable puts the pieces of tool calls together. Servers agree on little:
//
//   - a piece belongs to the call of its index; without an index, to that of
//     its id, else to the last call
//   - a new id together with a name at a used index begins a new call; a new
//     id alone does not
//   - without ids, a name begins a new call when the last one at that place
//     has whole arguments; else it repeats that call's name
//   - arguments are a piece of text, or a whole object
//   - whole arguments may be repeated
//   - an id may be missing, and a name may come after the id
type callTable struct {
	open  func(id, name string) *block
	calls []*chatCall
}

type chatCall struct {
	index   *int
	id      string // the server's
	name    string
	pending string // arguments that came before the name
	block   *block // nil until the name is known
	extra   map[string]json.RawMessage
}

type chatCallPiece struct {
	Index    *int `json:"index"`
	ID       lax  `json:"id"`
	Function struct {
		Name      lax             `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

// add takes one element of a delta's tool_calls.
func (t *callTable) add(raw json.RawMessage) error {
	var p chatCallPiece
	if err := json.Unmarshal(raw, &p); err != nil {
		return err
	}
	text, err := argumentPiece(p.Function.Arguments)
	if err != nil {
		return err
	}
	c := t.find(&p, text)
	if c == nil {
		c = &chatCall{index: p.Index}
		t.calls = append(t.calls, c)
	}
	if c.id == "" {
		c.id = string(p.ID)
	}
	if c.name == "" {
		c.name = string(p.Function.Name)
	}
	if err := c.keep(raw); err != nil {
		return err
	}
	if strings.TrimSpace(text) == strings.TrimSpace(c.text()) && c.whole() {
		text = ""
	}
	c.pending += text
	if c.name == "" {
		return nil
	}
	if c.block == nil {
		c.block = t.open(c.id, c.name)
	}
	c.block.add(c.pending)
	c.pending = ""
	return nil
}

// find returns the call a piece belongs to, nil for a new one.
func (t *callTable) find(p *chatCallPiece, text string) *chatCall {
	id, name := string(p.ID), string(p.Function.Name)
	var c *chatCall
	for i := len(t.calls) - 1; i >= 0 && c == nil; i-- {
		o := t.calls[i]
		switch {
		case p.Index != nil && o.index != nil:
			if *o.index == *p.Index {
				c = o
			}
		case id != "":
			if o.id == id {
				c = o
			}
		default:
			c = o
		}
	}
	switch {
	case c == nil:
		return nil
	case id != "" && c.id != "" && id != c.id:
		if name != "" || c.name == "" {
			return nil
		}
	case id != "" && c.id == id:
	case name == "":
	case c.name == "":
	case name != c.name:
		return nil
	case text != "" && c.whole():
		return nil
	}
	return c
}

// whole reports whether the arguments up to now are a whole object.
func (c *chatCall) whole() bool {
	s := c.text()
	return strings.TrimSpace(s) != "" && isObject(s)
}

func (c *chatCall) text() string {
	if c.block != nil {
		return c.block.text.String()
	}
	return c.pending
}

// keep remembers the fields that are not the API's own.
func (c *chatCall) keep(raw json.RawMessage) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	for key, value := range all {
		if knownCallField(key) || isNull(value) {
			continue
		}
		if c.extra == nil {
			c.extra = map[string]json.RawMessage{}
		}
		c.extra[key] = value
	}
	return nil
}

// end checks and completes the calls after the last piece.
func (t *callTable) end() error {
	for _, c := range t.calls {
		if c.block == nil {
			return errors.New("a tool call has no name")
		}
		if c.extra == nil {
			continue
		}
		raw, err := wire.Marshal(chatCallRaw{c.extra})
		if err != nil {
			return err
		}
		c.block.Raw = string(wire.ValidText(raw))
	}
	return nil
}

// argumentPiece returns a piece of argument text; a whole object counts as its
// text.
func argumentPiece(raw json.RawMessage) (string, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return "", nil
	}
	if raw[0] == '"' {
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(b.String(), "\uFFFD"), nil
}
