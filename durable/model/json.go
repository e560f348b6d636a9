package model

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// messageJSON is the stored and wire form of a Message of any role.
type messageJSON struct {
	Role         Role            `json:"role"`
	Content      *[]Block        `json:"content,omitempty"`
	Provider     string          `json:"provider,omitempty"`
	Model        string          `json:"model,omitempty"`
	StopReason   StopReason      `json:"stopReason,omitempty"`
	ErrorMessage string          `json:"errorMessage,omitempty"`
	ToolCallID   string          `json:"toolCallId,omitempty"`
	ToolName     string          `json:"toolName,omitempty"`
	Details      json.RawMessage `json:"details,omitempty"`
	IsError      *bool           `json:"isError,omitempty"`
	DurationMS   int64           `json:"durationMs,omitempty"`
	Usage        *Usage          `json:"usage,omitempty"`
	Sections     *[]Section      `json:"sections,omitempty"`
	ToolsAdded   []Tool          `json:"toolsAdded,omitempty"`
	ToolsRemoved []string        `json:"toolsRemoved,omitempty"`
	Baseline     bool            `json:"baseline,omitempty"`
	Timestamp    time.Time       `json:"timestamp"`
}

// MarshalJSON writes the fields of the message's role.
func (m Message) MarshalJSON() ([]byte, error) {
	j := messageJSON{Role: m.Role, Timestamp: m.Timestamp}
	switch m.Role {
	case RoleUser:
		j.Content = contentOf(&m)
	case RoleAssistant:
		j.Content = contentOf(&m)
		j.Provider, j.Model = m.Provider, m.Model
		j.StopReason, j.ErrorMessage, j.Usage = m.StopReason, m.ErrorMessage, m.Usage
	case RoleToolResult:
		j.Content = contentOf(&m)
		j.ToolCallID, j.ToolName, j.Details = m.ToolCallID, m.ToolName, m.Details
		j.IsError, j.DurationMS, j.Usage = &m.IsError, m.DurationMS, m.Usage
	case RoleSystem:
		sections := m.Sections
		if sections == nil {
			sections = []Section{}
		}
		j.Sections = &sections
		j.ToolsAdded, j.ToolsRemoved, j.Baseline = m.ToolsAdded, m.ToolsRemoved, m.Baseline
	default:
		return nil, fmt.Errorf("message role %q is unknown", m.Role)
	}
	return marshal(j)
}

func contentOf(m *Message) *[]Block {
	if m.Content == nil {
		return &[]Block{}
	}
	return &m.Content
}

// UnmarshalJSON reads what MarshalJSON wrote. A string in place of content is
// taken as one text block.
func (m *Message) UnmarshalJSON(data []byte) error {
	var j struct {
		messageJSON
		Content Content `json:"content"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	switch j.Role {
	case RoleUser, RoleAssistant, RoleToolResult, RoleSystem:
	default:
		return fmt.Errorf("message role %q is unknown", j.Role)
	}
	*m = Message{
		Role: j.Role, Content: j.Content, Timestamp: j.Timestamp,
		Provider: j.Provider, Model: j.Model, StopReason: j.StopReason,
		Usage: j.Usage, ErrorMessage: j.ErrorMessage,
		ToolCallID: j.ToolCallID, ToolName: j.ToolName, Details: j.Details,
		IsError: j.IsError != nil && *j.IsError, DurationMS: j.DurationMS,
		ToolsAdded: j.ToolsAdded, ToolsRemoved: j.ToolsRemoved, Baseline: j.Baseline,
	}
	if j.Sections != nil {
		m.Sections = *j.Sections
	}
	return nil
}

// Content is message content in JSON: a list of blocks, or a plain string,
// which means one text block.
type Content []Block

// UnmarshalJSON accepts a string or a list of blocks.
func (c *Content) UnmarshalJSON(data []byte) error {
	data = bytes.TrimSpace(data)
	if len(data) > 0 && data[0] == '"' {
		var s string
		if err := json.Unmarshal(data, &s); err != nil {
			return err
		}
		*c = Content{Text(s)}
		return nil
	}
	var blocks []Block
	if err := json.Unmarshal(data, &blocks); err != nil {
		return err
	}
	*c = blocks
	return nil
}

type textJSON struct {
	Type BlockType `json:"type"`
	Text string    `json:"text"`
	Raw  string    `json:"raw,omitempty"`
}

type thinkingJSON struct {
	Type      BlockType `json:"type"`
	Thinking  string    `json:"thinking"`
	Signature string    `json:"signature,omitempty"`
	Raw       string    `json:"raw,omitempty"`
}

type imageJSON struct {
	Type     BlockType `json:"type"`
	MimeType string    `json:"mimeType"`
	Data     []byte    `json:"data"`
	Raw      string    `json:"raw,omitempty"`
}

type toolCallJSON struct {
	Type         BlockType       `json:"type"`
	ID           string          `json:"id"`
	Name         string          `json:"name"`
	Arguments    json.RawMessage `json:"arguments"`
	RawArguments string          `json:"rawArguments,omitempty"`
	Raw          string          `json:"raw,omitempty"`
}

// MarshalJSON writes the fields of the block's type.
func (b Block) MarshalJSON() ([]byte, error) {
	switch b.Type {
	case BlockText:
		return marshal(textJSON{b.Type, b.Text, b.Raw})
	case BlockThinking:
		return marshal(thinkingJSON{b.Type, b.Thinking, b.Signature, b.Raw})
	case BlockImage:
		return marshal(imageJSON{b.Type, b.MimeType, b.Data, b.Raw})
	case BlockToolCall:
		args := b.Arguments
		if len(args) == 0 {
			args = json.RawMessage("{}")
		}
		return marshal(toolCallJSON{b.Type, b.ID, b.Name, args, b.RawArguments, b.Raw})
	}
	return nil, fmt.Errorf("block type %q is unknown", b.Type)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (b *Block) UnmarshalJSON(data []byte) error {
	var j struct {
		Type         BlockType       `json:"type"`
		Text         string          `json:"text"`
		Thinking     string          `json:"thinking"`
		Signature    string          `json:"signature"`
		MimeType     string          `json:"mimeType"`
		Data         []byte          `json:"data"`
		ID           string          `json:"id"`
		Name         string          `json:"name"`
		Arguments    json.RawMessage `json:"arguments"`
		RawArguments string          `json:"rawArguments"`
		Raw          string          `json:"raw"`
	}
	if err := json.Unmarshal(data, &j); err != nil {
		return err
	}
	switch j.Type {
	case BlockText, BlockThinking, BlockImage, BlockToolCall:
	default:
		return fmt.Errorf("block type %q is unknown", j.Type)
	}
	*b = Block(j)
	return nil
}

// SetArguments takes the argument text a model wrote. What is not a JSON
// object becomes {} with the text kept in RawArguments.
func (b *Block) SetArguments(text string) {
	trimmed := bytes.TrimSpace([]byte(text))
	if len(trimmed) == 0 {
		b.Arguments, b.RawArguments = json.RawMessage("{}"), ""
		return
	}
	var compact bytes.Buffer
	if trimmed[0] != '{' || json.Compact(&compact, trimmed) != nil {
		b.Arguments, b.RawArguments = json.RawMessage("{}"), text
		return
	}
	b.Arguments, b.RawArguments = compact.Bytes(), ""
	if compact.String() != text {
		b.RawArguments = text
	}
}

// ArgumentsBroken reports whether the model's argument text was not a JSON
// object, so that the call must not run.
func (b *Block) ArgumentsBroken() bool {
	if b.RawArguments == "" {
		return false
	}
	trimmed := bytes.TrimSpace([]byte(b.RawArguments))
	return len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(trimmed)
}

// marshal is json.Marshal without the escaping of <, > and &, which would
// change the text of raw JSON values.
func marshal(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(buf.Bytes(), "\n"), nil
}
