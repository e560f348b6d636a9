package model

import (
	"context"
	"encoding/json"
)

// Provider sends requests to models.
//
// Stream sends req and calls emit for each piece of the answer as it arrives,
// in order, never concurrently and never after Stream has returned. It returns
// the whole assistant message when the provider's terminal event was seen. On
// failure it returns an [*Error] and, beside it, what was received up to then
// (Message may be nil). An answer without its terminal event is an error,
// never an answer.
//
// Stream never retries; the engine does. It must return soon after ctx is
// cancelled, with class aborted. It must not modify req or what it points to.
// It is called from many goroutines at once.
type Provider interface {
	Stream(ctx context.Context, req *Request, emit func(Delta)) (*Response, error)
}

// Availability is an optional ability of a [Provider]: Available returns nil
// when requests can be made now, else an error that says why not, wrapping
// [ErrMissingCredential] when there is no key. It must not do I/O.
type Availability interface {
	Available() error
}

// Request is one request to a model.
type Request struct {
	Model Info // the model to use, as the catalog describes it
	// Messages is the transcript, well formed: every tool call is followed by
	// exactly one result. System messages stand where they were said; use
	// [FoldSystem] for providers that only know a leading prompt.
	Messages []Message
	// ThinkingLevel is one of Model.ThinkingLevels, or off.
	ThinkingLevel ThinkingLevel
	// MaxOutputTokens is the most the answer may have, at least 1.
	MaxOutputTokens int
	// SessionID is stable for a conversation, for the provider's prompt cache.
	SessionID string
	// DropThinking leaves thinking of earlier answers out, because the
	// provider rejected its signature.
	DropThinking bool
}

// Response is a finished answer.
type Response struct {
	// Message has role assistant, content, stop reason and usage. Provider,
	// Model and Timestamp are set by the engine.
	Message *Message
}

// DeltaKind says what a [Delta] adds to.
type DeltaKind string

// The kinds of deltas.
const (
	DeltaText     DeltaKind = "text"
	DeltaThinking DeltaKind = "thinking"
	DeltaToolCall DeltaKind = "toolCall"
)

// Delta is a piece of a running answer. Index is the position of its block in
// the final message's content; the concatenated Text of an index equals that
// block's text, thinking or argument text. ToolCallID and ToolName are set on
// the first delta of a tool call, whose Text may be empty.
type Delta struct {
	Kind       DeltaKind `json:"kind"`
	Index      int       `json:"index"`
	Text       string    `json:"delta,omitempty"`
	ToolCallID string    `json:"toolCallId,omitempty"`
	ToolName   string    `json:"toolName,omitempty"`
}

// Tool declares a tool to a model.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON schema of an object
}

// ThinkingLevel is how much a model should think before it answers.
type ThinkingLevel string

// The thinking levels.
const (
	ThinkingOff     ThinkingLevel = "off"
	ThinkingMinimal ThinkingLevel = "minimal"
	ThinkingLow     ThinkingLevel = "low"
	ThinkingMedium  ThinkingLevel = "medium"
	ThinkingHigh    ThinkingLevel = "high"
	ThinkingXHigh   ThinkingLevel = "xhigh"
	ThinkingMax     ThinkingLevel = "max"
)

// Valid reports whether l is one of the levels.
func (l ThinkingLevel) Valid() bool { return l == ThinkingOff || thinkingRank(l) > 0 }

func thinkingRank(l ThinkingLevel) int {
	for i, k := range []ThinkingLevel{ThinkingOff, ThinkingMinimal, ThinkingLow, ThinkingMedium, ThinkingHigh, ThinkingXHigh, ThinkingMax} {
		if k == l {
			return i
		}
	}
	return -1
}

// Info describes a model.
type Info struct {
	Provider      string `json:"provider"`
	ID            string `json:"id"` // the model's id at the provider
	Name          string `json:"name,omitempty"`
	ContextWindow int    `json:"contextWindow,omitempty"` // tokens, 0 unknown
	MaxOutput     int    `json:"maxOutput,omitempty"`     // tokens, 0 unknown
	// Prices is nil when they are unknown.
	Prices *Prices `json:"prices,omitempty"`
	// ThinkingLevels lists the levels the model knows beside off; empty means
	// it does not think.
	ThinkingLevels []ThinkingLevel `json:"thinkingLevels,omitempty"`
	Images         bool            `json:"images,omitempty"` // takes images as input
	// Quirks are switches that the provider's adapter reads; the adapter's
	// package documents them.
	Quirks map[string]string `json:"quirks,omitempty"`
}

// ClampThinking returns the level the model knows that is nearest to l, the
// lower one first; off when it does not think.
func (m *Info) ClampThinking(l ThinkingLevel) ThinkingLevel {
	want := thinkingRank(l)
	if want <= 0 || len(m.ThinkingLevels) == 0 {
		return ThinkingOff
	}
	best, bestRank := ThinkingOff, -1
	lowest, lowestRank := ThinkingOff, len("levels")+1
	for _, k := range m.ThinkingLevels {
		r := thinkingRank(k)
		if r <= want && r > bestRank {
			best, bestRank = k, r
		}
		if r > 0 && r < lowestRank {
			lowest, lowestRank = k, r
		}
	}
	if bestRank > 0 {
		return best
	}
	return lowest
}
