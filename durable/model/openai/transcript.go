package openai

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// transcript is a request's messages, ready to be rendered: the system prompt
// that leads, the tools, and the rest in order. With system updates inline the
// rest holds system messages too.
type transcript struct {
	prompt string
	tools  []model.Tool
	rest   []*model.Message
}

func newTranscript(messages []model.Message, inline bool) *transcript {
	var all, lead model.System
	base := leading(messages, inline)
	t := &transcript{}
	for i := range messages {
		m := &messages[i]
		if m.Role != model.RoleSystem {
			t.rest = append(t.rest, m)
			continue
		}
		all.Apply(m)
		if i <= base {
			lead.Apply(m)
		} else if len(m.Sections) > 0 {
			t.rest = append(t.rest, m)
		}
	}
	t.prompt, t.tools = lead.Prompt(), all.Tools
	return t
}

// leading returns the position of the last system message that is folded into
// the prompt: with inline updates the last baseline, or without one the last
// before the first answer.
func leading(messages []model.Message, inline bool) int {
	if !inline {
		return len(messages)
	}
	for i := len(messages) - 1; i >= 0; i-- {
		if messages[i].Role == model.RoleSystem && messages[i].Baseline {
			return i
		}
	}
	for i := range messages {
		if messages[i].Role == model.RoleAssistant {
			return i
		}
	}
	return len(messages)
}

// updateText says what a system message changes.
func updateText(m *model.Message) string {
	var b strings.Builder
	b.WriteString("The instructions have changed. What follows replaces earlier sections of the same name.")
	for i := range m.Sections {
		s := &m.Sections[i]
		b.WriteString("\n\n")
		if s.Text == "" {
			b.WriteString("The section " + s.Key + " no longer applies.")
		} else {
			b.WriteString(s.Render())
		}
	}
	return b.String()
}

const (
	// imageLeftOut stands for an image that the model cannot take.
	imageLeftOut = "[image left out: this model takes no images]"
	// imagesFollow stands for images that results cannot hold.
	imagesFollow = "[images follow the tool results]"
)

// imagesOf introduces the images of a result that could not hold them.
func imagesOf(callID string) string { return "Images of the result of call " + callID + ":" }

// joinText returns the text blocks, separated by sep, and the images of a user
// message or tool result. Without images allowed each counts as a text.
func joinText(m *model.Message, images bool, sep string) (string, []*model.Block) {
	var texts []string
	var pictures []*model.Block
	for i := range m.Content {
		switch b := &m.Content[i]; {
		case b.Type == model.BlockText && !blank(b.Text):
			texts = append(texts, b.Text)
		case b.Type == model.BlockImage && images:
			pictures = append(pictures, b)
		case b.Type == model.BlockImage:
			texts = append(texts, imageLeftOut)
		}
	}
	return strings.Join(texts, sep), pictures
}

// What stands for a result and for a user message without content.
const (
	noOutput     = "(no output)"
	emptyMessage = "(empty message)"
)

// blank reports whether s is no text for strict servers.
func blank(s string) bool { return strings.TrimSpace(s) == "" }

func dataURL(b *model.Block) string {
	return "data:" + b.MimeType + ";base64," + base64.StdEncoding.EncodeToString(b.Data)
}

// argumentText returns the arguments of a call as they are sent back: the text
// that the model wrote when it was a JSON object, else the object that stands
// for it.
func argumentText(b *model.Block) string {
	text := string(b.Arguments)
	if b.RawArguments != "" && !b.ArgumentsBroken() {
		text = b.RawArguments
	}
	if blank(text) {
		return "{}"
	}
	return string(wire.ValidText(json.RawMessage(text)))
}

// The longest names and call ids that the APIs take.
const (
	maxName       = 64
	maxChatID     = 40
	maxResponseID = 64
)

// plain reports whether s is a name of at most limit bytes that the APIs take.
func plain(s string, limit int) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		if !plainByte(s[i]) {
			return false
		}
	}
	return true
}

func plainByte(c byte) bool {
	return c == '_' || c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')
}

// safeName makes a tool's name, which a model may have invented, one that the
// APIs take.
func safeName(s string) string {
	if plain(s, maxName) {
		return s
	}
	b := []byte(s)
	for i := range b {
		if !plainByte(b[i]) {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "unknown"
	}
	return string(b[:min(len(b), maxName)])
}

// callIDs says how the ids of calls are sent: those of the request's model as
// they came, those of another provider in a form that the APIs take.
type callIDs struct {
	limit int
	sent  map[string]string
}

// call returns the id to send for a call.
func (c *callIDs) call(id string, own bool) string {
	s := id
	if !own && !plain(id, c.limit) {
		sum := sha256.Sum256([]byte(id))
		s = "call_" + hex.EncodeToString(sum[:16])
	}
	if c.sent == nil {
		c.sent = map[string]string{}
	}
	c.sent[id] = s
	return s
}

// result returns the id to send for a call's result.
func (c *callIDs) result(id string) string {
	if s, ok := c.sent[id]; ok {
		return s
	}
	return id
}

// madeBy reports whether the request's model wrote the answer.
func madeBy(m *model.Message, info *model.Info) bool {
	return m.Provider == info.Provider && m.Model == info.ID
}

// body writes head, a JSON object, with one more field at its end: a list of
// raw values, kept byte for byte.
func body(head any, field string, items []json.RawMessage) ([]byte, error) {
	h, err := wire.Marshal(head)
	if err != nil {
		return nil, err
	}
	n := len(h) + len(field) + 8
	for _, it := range items {
		n += len(it) + 1
	}
	var b bytes.Buffer
	b.Grow(n)
	b.Write(h[:len(h)-1])
	b.WriteString(`,"` + field + `":[`)
	for i, it := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(it)
	}
	b.WriteString("]}")
	return b.Bytes(), nil
}

// schema returns a tool's parameters, those of a tool without any as an object
// without properties.
func schema(t *model.Tool) json.RawMessage {
	if p := bytes.TrimSpace(t.Parameters); len(p) == 0 || string(p) == "null" {
		return json.RawMessage(`{"type":"object","properties":{}}`)
	}
	return t.Parameters
}
