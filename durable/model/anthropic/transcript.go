package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// transcript turns messages into those of the API. What stands between two
// assistant messages becomes one user message, tool results first, and behind
// it one system message with the changes that were said there.
type transcript struct {
	req    *model.Request
	system model.System // the leading prompt, and all tools
	out    []*message

	ids      map[string]string // tool call ids as sent
	taken    map[string]bool   // ids in use
	unbound  int               // thinking before this message is left out
	results  []*content
	said     []*content
	heard    bool // a user message or a result came, even an empty one
	updates  []string
	sections int // system messages up to this one are in the leading prompt
}

func newTranscript(req *model.Request, sw *switches, messages []model.Message) *transcript {
	t := &transcript{req: req, ids: map[string]string{}, taken: map[string]bool{}}
	t.foldSystem(messages, sw.systemUpdates == updatesInline)
	for i := range messages {
		m := &messages[i]
		switch m.Role {
		case model.RoleUser:
			t.heard = true
			t.said = append(t.said, t.blocks(m.Content)...)
		case model.RoleToolResult:
			t.heard = true
			t.results = append(t.results, t.result(m))
		case model.RoleAssistant:
			t.assistant(m, i)
		case model.RoleSystem:
			if i > t.sections {
				t.update(m)
			}
		}
	}
	t.closeUser()
	if len(t.updates) > 0 {
		// No user message to stand behind: said by the user then.
		t.out = append(t.out, &message{Role: "user", Content: []*content{textBlock(strings.Join(t.updates, "\n\n"))}})
	}
	return t
}

// foldSystem finds what goes into the leading prompt: everything, or, for
// models that take system messages where they were said, everything up to the
// last baseline or the first message of another kind.
func (t *transcript) foldSystem(messages []model.Message, inline bool) {
	t.sections = -1
	leading := true
	for i := range messages {
		m := &messages[i]
		if m.Role != model.RoleSystem {
			leading = false
			continue
		}
		if !inline || leading || m.Baseline {
			t.sections = i
		}
		if inline && !leading && (m.Baseline || len(m.ToolsAdded)+len(m.ToolsRemoved) > 0) {
			t.unbound = i
		}
	}
	for i := range messages {
		if m := &messages[i]; m.Role == model.RoleSystem {
			if i <= t.sections {
				t.system.Apply(m)
				continue
			}
			t.system.Apply(&model.Message{Role: m.Role, ToolsAdded: m.ToolsAdded, ToolsRemoved: m.ToolsRemoved})
		}
	}
}

// update adds the changed sections of a system message that stands in its
// place.
func (t *transcript) update(m *model.Message) {
	for _, s := range m.Sections {
		if blank(s.Text) {
			t.updates = append(t.updates, fmt.Sprintf("The section %q of the system prompt no longer applies.", s.Key))
			continue
		}
		t.updates = append(t.updates, s.Render())
	}
}

// closeUser ends the user message and the system message behind it. Changes
// without a user message before them wait for the next one.
func (t *transcript) closeUser() {
	blocks := append(t.results, t.said...)
	if len(blocks) == 0 && t.heard {
		blocks = []*content{textBlock("(empty message)")}
	}
	t.results, t.said, t.heard = nil, nil, false
	if len(blocks) == 0 {
		return
	}
	t.out = append(t.out, &message{Role: "user", Content: blocks})
	if len(t.updates) > 0 {
		t.out = append(t.out, &message{Role: "system", Content: []*content{textBlock(strings.Join(t.updates, "\n\n"))}})
		t.updates = nil
	}
}

// assistant adds an assistant message; one without content is left out.
func (t *transcript) assistant(m *model.Message, at int) {
	same := m.Provider == t.req.Model.Provider && m.Model == t.req.Model.ID &&
		!t.req.DropThinking && at >= t.unbound
	var blocks []*content
	for i := range m.Content {
		b := &m.Content[i]
		switch b.Type {
		case model.BlockText:
			if !blank(b.Text) {
				blocks = append(blocks, textBlock(b.Text))
			}
		case model.BlockThinking:
			if c := thinkingBlock(b); same && c != nil {
				blocks = append(blocks, c)
			}
		case model.BlockToolCall:
			blocks = append(blocks, &content{
				Type: "tool_use", ID: t.id(b.ID), Name: safeName(b.Name), Input: argumentsOf(b),
			})
		}
	}
	if len(blocks) == 0 {
		return
	}
	t.closeUser()
	if len(t.out) == 0 {
		t.out = append(t.out, &message{Role: "user", Content: []*content{textBlock("(the conversation goes on)")}})
	}
	t.out = append(t.out, &message{Role: "assistant", Content: blocks})
}

func argumentsOf(b *model.Block) json.RawMessage {
	if len(b.Arguments) == 0 {
		return json.RawMessage("{}")
	}
	return wire.ValidText(b.Arguments)
}

// thinkingBlock returns thinking as it is sent back, nil when it cannot be:
// its signature is missing, because the stream broke or another server made it.
func thinkingBlock(b *model.Block) *content {
	if b.Raw != "" {
		var c content
		if json.Unmarshal([]byte(b.Raw), &c) != nil || c.Type != "redacted_thinking" || c.Data == "" {
			return nil
		}
		return &content{Type: c.Type, Data: c.Data}
	}
	if b.Signature == "" {
		return nil
	}
	return &content{Type: "thinking", Thinking: &b.Thinking, Signature: b.Signature}
}

func (t *transcript) result(m *model.Message) *content {
	blocks := t.blocks(m.Content)
	if len(blocks) == 0 {
		blocks = []*content{textBlock("(no output)")}
	}
	return &content{Type: "tool_result", ToolUseID: t.id(m.ToolCallID), IsError: m.IsError, Content: blocks}
}

// blocks converts the content of a user message or a result. Blank text is
// left out; an image the model cannot take is named instead.
func (t *transcript) blocks(in []model.Block) []*content {
	var out []*content
	for i := range in {
		switch b := &in[i]; b.Type {
		case model.BlockText:
			if !blank(b.Text) {
				out = append(out, textBlock(b.Text))
			}
		case model.BlockImage:
			if !t.req.Model.Images {
				out = append(out, textBlock(fmt.Sprintf("(an image of type %s, which this model cannot see)", b.MimeType)))
				continue
			}
			out = append(out, &content{Type: "image", Source: &imageSource{Type: "base64", MediaType: b.MimeType, Data: b.Data}})
		}
	}
	return out
}

// id returns the tool call id as it is sent: unchanged when the API takes it,
// else the same valid and unused one for all its uses in the transcript.
func (t *transcript) id(id string) string {
	if sent, ok := t.ids[id]; ok {
		return sent
	}
	base := safeName(id)
	sent := base
	for n := 2; t.taken[sent]; n++ {
		sent = fmt.Sprintf("%s_%d", base, n)
	}
	t.ids[id], t.taken[sent] = sent, true
	return sent
}

const maxName = 128

// safeName replaces what ids and names of tools may not hold.
func safeName(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '-':
			return r
		}
		return '_'
	}, s)
	if s == "" {
		return "unnamed"
	}
	return s[:min(len(s), maxName)]
}

func textBlock(s string) *content { return &content{Type: "text", Text: s} }

// blank reports whether s is no text for the API.
func blank(s string) bool { return strings.TrimSpace(s) == "" }
