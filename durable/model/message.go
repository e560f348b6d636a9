package model

import (
	"encoding/json"
	"slices"
	"time"
)

// Role says who speaks in a [Message].
type Role string

// The roles of a transcript.
const (
	RoleUser       Role = "user"
	RoleAssistant  Role = "assistant"
	RoleToolResult Role = "toolResult"
	RoleSystem     Role = "system"
)

// StopReason says why an assistant message ended.
type StopReason string

// The stop reasons of an assistant message.
const (
	StopEnd      StopReason = "stop"     // the model was done
	StopLength   StopReason = "length"   // the output limit cut the answer
	StopToolUse  StopReason = "toolUse"  // the model called tools
	StopError    StopReason = "error"    // the provider failed
	StopAborted  StopReason = "aborted"  // the request was cancelled
	StopDeferred StopReason = "deferred" // the answer goes on at the provider
)

// Message is one message of a transcript. Role decides which fields count;
// the others are zero and do not appear in JSON.
//
// A message that was stored is never changed. Code that is handed messages by
// the engine, a [Provider] for instance, must not modify them or what they
// point to; [Message.Clone] makes a copy that it may.
type Message struct {
	Role      Role
	Content   []Block // user, assistant, toolResult
	Timestamp time.Time

	Provider     string     // assistant: provider id
	Model        string     // assistant: model id at the provider
	StopReason   StopReason // assistant
	Usage        *Usage     // assistant, toolResult
	ErrorMessage string     // assistant with StopError or StopAborted

	ToolCallID string          // toolResult
	ToolName   string          // toolResult
	Details    json.RawMessage // toolResult: for user interfaces, never sent to a model
	IsError    bool            // toolResult
	DurationMS int64           // toolResult

	Sections     []Section // system: the sections it sets; an empty Text removes one
	ToolsAdded   []Tool    // system: declarations it adds or replaces
	ToolsRemoved []string  // system: names it takes away
	Baseline     bool      // system: complete, forget what earlier ones said
}

// Section is one part of the system prompt.
type Section struct {
	Key      string `json:"key"`
	Text     string `json:"text"`
	Untagged bool   `json:"untagged,omitempty"` // rendered without its <key> tag
}

// BlockType says what a [Block] holds.
type BlockType string

// The block types.
const (
	BlockText     BlockType = "text"
	BlockThinking BlockType = "thinking"
	BlockImage    BlockType = "image"
	BlockToolCall BlockType = "toolCall"
)

// Block is one piece of a message's content. Type decides which fields count.
type Block struct {
	Type BlockType

	Text string // text

	Thinking  string // thinking; may be empty when only the signature is shown
	Signature string // thinking: the provider's proof, replayed unchanged

	MimeType string // image
	Data     []byte // image, base64 in JSON

	ID   string // toolCall: unique within a request
	Name string // toolCall
	// Arguments is a valid JSON object, compact, with the key order and the
	// numbers the model wrote.
	Arguments json.RawMessage
	// RawArguments is the text the model wrote when it is not equal to
	// Arguments: other white space, or not a JSON object at all. Then
	// Arguments is {} and the call is never run.
	RawArguments string

	// Raw is the block as the provider sent it, as JSON text, when the adapter
	// needs it to send the block again byte for byte. Only the adapter that
	// wrote it reads it, and only for the model that made it.
	Raw string
}

// Text returns a text block.
func Text(s string) Block { return Block{Type: BlockText, Text: s} }

// UserMessage returns a user message with one text block.
func UserMessage(text string, at time.Time) Message {
	return Message{Role: RoleUser, Content: []Block{Text(text)}, Timestamp: at}
}

// Text returns the text blocks of the message, joined without a separator.
func (m *Message) Text() string {
	var n int
	for i := range m.Content {
		if m.Content[i].Type == BlockText {
			n += len(m.Content[i].Text)
		}
	}
	b := make([]byte, 0, n)
	for i := range m.Content {
		if m.Content[i].Type == BlockText {
			b = append(b, m.Content[i].Text...)
		}
	}
	return string(b)
}

// ToolCalls returns the tool-call blocks of the message, in order.
func (m *Message) ToolCalls() []Block {
	var calls []Block
	for _, b := range m.Content {
		if b.Type == BlockToolCall {
			calls = append(calls, b)
		}
	}
	return calls
}

// Clone returns a copy that shares no memory with m.
func (m *Message) Clone() Message {
	c := *m
	c.Content = slices.Clone(m.Content)
	for i := range c.Content {
		c.Content[i].Data = slices.Clone(c.Content[i].Data)
		c.Content[i].Arguments = slices.Clone(c.Content[i].Arguments)
	}
	if m.Usage != nil {
		u := m.Usage.Clone()
		c.Usage = &u
	}
	c.Details = slices.Clone(m.Details)
	c.Sections = slices.Clone(m.Sections)
	c.ToolsAdded = slices.Clone(m.ToolsAdded)
	for i := range c.ToolsAdded {
		c.ToolsAdded[i].Parameters = slices.Clone(c.ToolsAdded[i].Parameters)
	}
	c.ToolsRemoved = slices.Clone(m.ToolsRemoved)
	return c
}
