package faux

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Step is one scripted answer (S9). Thinking comes first, then Text, then the
// tool calls; with Error the answer fails after what it holds was sent.
type Step struct {
	Text      string     `json:"text,omitempty"`
	Thinking  string     `json:"thinking,omitempty"`
	ToolCalls []ToolCall `json:"toolCalls,omitempty"`
	Error     *Error     `json:"error,omitempty"`
	// StopReason defaults to toolUse with tool calls, else to stop. When it is
	// empty, text and thinking beyond MaxOutputTokens of the request (four
	// characters a token) and the tool calls after it are cut off, and the
	// answer ends with length. Any text is allowed, also an unknown reason.
	StopReason model.StopReason `json:"stopReason,omitempty"`
	// DelayMS passes before the first delta or the error.
	DelayMS int64 `json:"delayMs,omitempty"`
	// ChunkMS passes between two deltas.
	ChunkMS int64 `json:"chunkMs,omitempty"`
	// ChunkSize is the length of a delta in characters. The default is 16 with
	// ChunkMS, else each block is one delta.
	ChunkSize int `json:"chunkSize,omitempty"`
	// Usage defaults to an estimate of four characters a token. Give a zero
	// Usage to save the estimate's walk over the request.
	Usage *model.Usage `json:"usage,omitempty"`

	// Wait, when not nil, is received from before the first delta or the
	// error. Hold, when not nil, is received from after the last delta, before
	// the answer ends. Both yield to the request's context.
	Wait <-chan struct{} `json:"-"`
	Hold <-chan struct{} `json:"-"`
}

// ToolCall is a tool call of a [Step].
type ToolCall struct {
	// ID defaults to call_1, call_2 and so on, unique within the provider and
	// within the request.
	ID   string `json:"id,omitempty"`
	Name string `json:"name"`
	// Arguments is a JSON object, or a JSON string holding the argument text
	// as the model wrote it, which then need not be JSON. Empty means {}.
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// text returns the argument text the model is to have written.
func (c *ToolCall) text() string {
	raw := bytes.TrimSpace(c.Arguments)
	if len(raw) == 0 {
		return "{}"
	}
	if raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) == nil {
		return compact.String()
	}
	return string(raw)
}

// Error makes a [Step] fail.
type Error struct {
	Class        model.Class `json:"class"`
	Message      string      `json:"message,omitempty"`
	RetryAfterMS int64       `json:"retryAfterMs,omitempty"`
	NoRetry      bool        `json:"noRetry,omitempty"`
}

// Rule is a [Step] for requests whose last message contains When; an empty
// When fits all. System messages do not count as the last message.
type Rule struct {
	When string `json:"when"`
	Step
}

// Script is what [Provider.Load] takes and the JSON body of S9: a queue of
// responses, or rules for the next Count requests.
type Script struct {
	Responses []Step `json:"responses,omitempty"`
	Rules     []Rule `json:"rules,omitempty"`
	Count     int    `json:"count,omitempty"` // 0: no end
}

// ParseScript reads and validates a script. An unknown field is an error.
func ParseScript(data []byte) (*Script, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	var s Script
	if err := dec.Decode(&s); err != nil {
		return nil, fmt.Errorf("faux script: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("faux script: text after the JSON value")
	}
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &s, nil
}

// Validate reports the first mistake of a script.
func (s *Script) Validate() error {
	if s.Count < 0 {
		return errors.New("faux script: count is negative")
	}
	if len(s.Responses) > 0 && len(s.Rules) > 0 {
		return errors.New("faux script: give responses or rules, not both")
	}
	for i := range s.Responses {
		if err := s.Responses[i].Validate(); err != nil {
			return fmt.Errorf("faux script: response %d: %w", i, err)
		}
	}
	for i := range s.Rules {
		if err := s.Rules[i].Validate(); err != nil {
			return fmt.Errorf("faux script: rule %d: %w", i, err)
		}
	}
	return nil
}

var classes = []model.Class{
	model.ClassRateLimit, model.ClassQuota, model.ClassOverloaded, model.ClassServerError,
	model.ClassNetwork, model.ClassStalled, model.ClassTimeout, model.ClassIncompleteStream,
	model.ClassProtocol, model.ClassThinkingMismatch, model.ClassContextOverflow,
	model.ClassRequestTooLarge, model.ClassInvalidRequest, model.ClassAuth, model.ClassNotFound,
	model.ClassRefusal, model.ClassContentFilter, model.ClassAborted,
}

// Validate reports the first mistake of a step.
func (s *Step) Validate() error {
	if s.DelayMS < 0 || s.ChunkMS < 0 || s.ChunkSize < 0 {
		return errors.New("delayMs, chunkMs and chunkSize must not be negative")
	}
	for i := range s.ToolCalls {
		c := &s.ToolCalls[i]
		if c.Name == "" {
			return fmt.Errorf("tool call %d has no name", i)
		}
		if raw := bytes.TrimSpace(c.Arguments); len(raw) > 0 && raw[0] != '{' && raw[0] != '"' {
			return fmt.Errorf("tool call %d: arguments must be an object or a string", i)
		}
	}
	if e := s.Error; e != nil {
		if !slices.Contains(classes, e.Class) {
			return fmt.Errorf("error class %q is unknown", e.Class)
		}
		if e.RetryAfterMS < 0 {
			return errors.New("retryAfterMs must not be negative")
		}
	}
	return nil
}
