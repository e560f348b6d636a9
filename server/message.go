package server

import (
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Message is a message of a transcript on the wire: one of the types below, by
// its role.
type Message struct{ model.Message }

// MarshalJSON writes the fields of the message's role.
func (m Message) MarshalJSON() ([]byte, error) { return m.Message.MarshalJSON() }

// Schema describes the union.
func (Message) Schema(r huma.Registry) *huma.Schema {
	return union(r, "Message", "role", map[string]reflect.Type{
		"user":       reflect.TypeFor[UserMessage](),
		"assistant":  reflect.TypeFor[AssistantMessage](),
		"toolResult": reflect.TypeFor[ToolResultMessage](),
		"system":     reflect.TypeFor[SystemMessage](),
	})
}

// UserMessage documents a message of role user.
type UserMessage struct {
	Role      string    `json:"role" enum:"user"`
	Content   []Block   `json:"content"`
	Timestamp time.Time `json:"timestamp"`
}

// AssistantMessage documents a message of role assistant.
type AssistantMessage struct {
	Role         string    `json:"role" enum:"assistant"`
	Content      []Block   `json:"content"`
	Provider     string    `json:"provider,omitempty" example:"anthropic"`
	Model        string    `json:"model,omitempty" example:"claude-opus-5-5"`
	StopReason   string    `json:"stopReason,omitempty" doc:"Why the message ended; providers may have further reasons" example:"stop"`
	Usage        *Usage    `json:"usage,omitempty"`
	ErrorMessage string    `json:"errorMessage,omitempty"`
	Timestamp    time.Time `json:"timestamp"`
}

// ToolResultMessage documents a message of role toolResult.
type ToolResultMessage struct {
	Role       string    `json:"role" enum:"toolResult"`
	ToolCallID string    `json:"toolCallId"`
	ToolName   string    `json:"toolName" example:"bash"`
	Content    []Block   `json:"content"`
	Details    any       `json:"details,omitempty" doc:"For user interfaces; no model sees it"`
	IsError    bool      `json:"isError"`
	DurationMS int64     `json:"durationMs,omitempty"`
	Usage      *Usage    `json:"usage,omitempty"`
	Timestamp  time.Time `json:"timestamp"`
}

// SystemMessage documents a message of role system.
type SystemMessage struct {
	Role         string            `json:"role" enum:"system"`
	Sections     []PromptSection   `json:"sections" doc:"The sections it sets; an empty text removes one"`
	ToolsAdded   []ToolDeclaration `json:"toolsAdded,omitempty"`
	ToolsRemoved []string          `json:"toolsRemoved,omitempty"`
	Baseline     bool              `json:"baseline,omitempty" doc:"Complete: forget what earlier ones said"`
	Timestamp    time.Time         `json:"timestamp"`
}

// PromptSection is a part of the system prompt.
type PromptSection struct {
	Key      string `json:"key"`
	Text     string `json:"text"`
	Untagged bool   `json:"untagged,omitempty" doc:"Shown without its <key> tag"`
}

// ToolDeclaration is what a model is told of a tool.
type ToolDeclaration struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Parameters  any    `json:"parameters" doc:"JSON schema of an object"`
}

// Block is a piece of a message on the wire: one of the types below.
type Block struct{ model.Block }

// MarshalJSON writes the fields of the block's type.
func (b Block) MarshalJSON() ([]byte, error) { return b.Block.MarshalJSON() }

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *Block) UnmarshalJSON(data []byte) error { return b.Block.UnmarshalJSON(data) }

// Schema describes the union.
func (Block) Schema(r huma.Registry) *huma.Schema {
	return union(r, "Block", "type", map[string]reflect.Type{
		"text":     reflect.TypeFor[TextBlock](),
		"thinking": reflect.TypeFor[ThinkingBlock](),
		"image":    reflect.TypeFor[ImageBlock](),
		"toolCall": reflect.TypeFor[ToolCallBlock](),
	})
}

// TextBlock documents a block of type text.
type TextBlock struct {
	Type string `json:"type" enum:"text"`
	Text string `json:"text" example:"Hello"`
	Raw  string `json:"raw,omitempty" doc:"The block as the provider sent it"`
}

// ThinkingBlock documents a block of type thinking.
type ThinkingBlock struct {
	Type      string `json:"type" enum:"thinking"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature,omitempty" doc:"The provider's proof"`
	Raw       string `json:"raw,omitempty" doc:"The block as the provider sent it"`
}

// ImageBlock documents a block of type image.
type ImageBlock struct {
	Type     string `json:"type" enum:"image"`
	MimeType string `json:"mimeType" enum:"image/png,image/jpeg,image/gif,image/webp"`
	Data     []byte `json:"data" doc:"The file, as base64"`
	Raw      string `json:"raw,omitempty" doc:"The block as the provider sent it"`
}

// ToolCallBlock documents a block of type toolCall.
type ToolCallBlock struct {
	Type         string         `json:"type" enum:"toolCall"`
	ID           string         `json:"id"`
	Name         string         `json:"name" example:"bash"`
	Arguments    map[string]any `json:"arguments" doc:"With the key order and the numbers the model wrote"`
	RawArguments string         `json:"rawArguments,omitempty" doc:"What the model wrote, when it differs"`
	Raw          string         `json:"raw,omitempty" doc:"The block as the provider sent it"`
}

// Content is what a user says: a text, or texts and images.
type Content []model.Block

// UnmarshalJSON accepts a string or a list of blocks.
func (c *Content) UnmarshalJSON(data []byte) error { return (*model.Content)(c).UnmarshalJSON(data) }

// Schema describes both forms.
func (Content) Schema(r huma.Registry) *huma.Schema {
	block := union(r, "InputBlock", "type", map[string]reflect.Type{
		"text":  reflect.TypeFor[TextBlock](),
		"image": reflect.TypeFor[ImageBlock](),
	})
	return named(r, "Content", &huma.Schema{
		Description: "What the user says: a text, or a list of texts and images",
		OneOf:       []*huma.Schema{{Type: huma.TypeString}, {Type: huma.TypeArray, Items: block}},
		Examples:    []any{"What is in this folder?"},
	})
}

// InputMessage is a message that a client writes into a transcript. A plain
// string is accepted as content.
type InputMessage struct{ model.Message }

// UnmarshalJSON reads a message.
func (m *InputMessage) UnmarshalJSON(data []byte) error { return m.Message.UnmarshalJSON(data) }

// Schema describes it; the engine checks what may be in which role.
func (InputMessage) Schema(r huma.Registry) *huma.Schema {
	content := (Content{}).Schema(r)
	return named(r, "InputMessage", &huma.Schema{
		Type: huma.TypeObject, Description: "A message of a transcript; content may be a plain string",
		Properties: map[string]*huma.Schema{
			"role":    {Type: huma.TypeString, Enum: []any{"user", "assistant"}},
			"content": content,
		},
		Required: []string{"role", "content"}, AdditionalProperties: true,
	})
}

// Usage is what model and tool calls consumed.
type Usage struct {
	Input      int64 `json:"input" doc:"Tokens read anew"`
	Output     int64 `json:"output" doc:"Tokens written, with the thinking"`
	CacheRead  int64 `json:"cacheRead" doc:"Tokens read from the provider's cache"`
	CacheWrite int64 `json:"cacheWrite" doc:"Tokens written to the provider's cache"`
	Reasoning  int64 `json:"reasoning" doc:"Tokens of output that were thinking"`
	Total      int64 `json:"total"`
	Cost       Cost  `json:"cost"`
}

// Cost is an amount in US dollars.
type Cost struct {
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
	Total      float64 `json:"total"`
}

func usageOf(u model.Usage) Usage {
	return Usage{u.Input, u.Output, u.CacheRead, u.CacheWrite, u.Reasoning, u.Total, Cost(u.Cost)}
}

func wireMessages(list []model.Message) []Message {
	out := make([]Message, len(list))
	for i, m := range list {
		out[i] = Message{m}
	}
	return out
}

func wireBlocks(list []model.Block) []Block {
	out := make([]Block, len(list))
	for i, b := range list {
		out[i] = Block{b}
	}
	return out
}
