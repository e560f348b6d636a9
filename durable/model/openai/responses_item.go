package openai

import (
	"encoding/json"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
)

// The types of output items that become blocks.
const (
	itemMessage   = "message"
	itemCall      = "function_call"
	itemReasoning = "reasoning"
)

// item is an output item of the Responses API.
type item struct {
	Type   string `json:"type"`
	ID     string `json:"id"`
	Status lax    `json:"status"`

	Phase   string     `json:"phase"`   // message
	Content []itemPart `json:"content"` // message, reasoning

	CallID    string          `json:"call_id"` // function_call
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`

	Summary          []itemPart `json:"summary"` // reasoning
	EncryptedContent lax        `json:"encrypted_content"`
}

type itemPart struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// parseItem reads an output item. Of a type that does not become a block it
// reads the type alone.
func parseItem(raw json.RawMessage) (*item, error) {
	var head struct {
		Type string `json:"type"`
		ID   string `json:"id"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	switch head.Type {
	case itemMessage, itemCall, itemReasoning:
	default:
		return &item{Type: head.Type, ID: head.ID}, nil
	}
	it := &item{}
	if err := json.Unmarshal(raw, it); err != nil {
		return nil, err
	}
	return it, nil
}

// readItem reads a block's Raw; what is no item has no type.
func readItem(raw string) *item {
	it := &item{}
	if raw == "" || json.Unmarshal([]byte(raw), it) != nil {
		return &item{}
	}
	return it
}

// text returns the text of a message item.
func (it *item) text() string {
	return joinParts(it.Content, "output_text", "")
}

// refusal returns the words in which a message item refuses.
func (it *item) refusal() string {
	var b strings.Builder
	for i := range it.Content {
		b.WriteString(it.Content[i].Refusal)
	}
	return b.String()
}

// partBreak stands between two parts of a thinking block.
const partBreak = "\n\n"

// thinking returns the text of a reasoning item: its summary, or where there is
// none the reasoning itself.
func (it *item) thinking(kind thinkingKind) string {
	summary := joinParts(it.Summary, "summary_text", partBreak)
	if kind == shownText || (kind == shownNone && summary == "") {
		return joinParts(it.Content, "reasoning_text", partBreak)
	}
	return summary
}

func joinParts(parts []itemPart, kind, sep string) string {
	var texts []string
	for i := range parts {
		if (parts[i].Type == kind || parts[i].Type == "text") && parts[i].Text != "" {
			texts = append(texts, parts[i].Text)
		}
	}
	return strings.Join(texts, sep)
}

// whole reports whether the item was not cut off.
func (it *item) whole() bool { return it.Status == "" || it.Status == "completed" }

// sameCall reports whether the item is the call that the block holds.
func (it *item) sameCall(b *model.Block) bool {
	if it.Type != itemCall || it.CallID != b.ID || it.Name != b.Name || !plain(it.Name, maxName) || b.ArgumentsBroken() {
		return false
	}
	args, err := argumentPiece(it.Arguments)
	return err == nil && args == argumentText(b)
}
