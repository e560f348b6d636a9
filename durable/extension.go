package durable

import (
	"context"
	"encoding/json"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/model"
)

// Extension is a named set of abilities that conversations may use. Nothing of
// it is stored; conversations store names.
type Extension struct {
	Name     string
	Tools    []*Tool
	Sections []Section
	Hooks    Hooks
	Wraps    []Wrap
	Tasks    []TaskDefinition
}

// Section is a part of the system prompt. Render returns its text; an empty
// text omits the section. A failing Render keeps what was shown before and is
// reported. The text must not hold clock times or random values: a changed
// section costs the provider's prompt cache.
type Section struct {
	Key      string
	Untagged bool // shown without the <key> tag
	Render   func(ctx context.Context, rc *RequestContext) (string, error)
}

// RequestContext is what code that takes part in a request may look at.
type RequestContext struct {
	Conversation *Conversation
	Agent        Agent
	Model        model.Info
	// Tools are the tools that the request offers, in order.
	Tools []*Tool
	env   func(ctx context.Context) (env.Environment, error)
}

// Env returns the conversation's environment, or an error when it has none.
func (rc *RequestContext) Env(ctx context.Context) (env.Environment, error) { return rc.env(ctx) }

// Offers reports whether the request offers the tool.
func (rc *RequestContext) Offers(tool string) bool {
	for _, t := range rc.Tools {
		if t.Name() == tool {
			return true
		}
	}
	return false
}

// Wrap replaces a tool of another extension by one made from it.
type Wrap struct {
	Tool string // name of the tool, "*" for every tool
	Wrap func(t *Tool) *Tool
}

// Hooks are functions that the engine calls around a run. They run outside
// commits and may be called again after a crash. A hook that fails is reported
// and skipped; a failing BeforeTool blocks its call.
type Hooks struct {
	// BeforeRequest may change a request just before it is sent.
	BeforeRequest func(ctx context.Context, rc *RequestContext, req *model.Request) error
	// AfterResponse sees an answer before it is stored.
	AfterResponse func(ctx context.Context, rc *RequestContext, m *model.Message) error
	// OnYield is called when a run is about to end with an answer. Content it
	// returns goes on with the run as another user message.
	OnYield func(ctx context.Context, rc *RequestContext, answer *model.Message) ([]model.Block, error)
	// AfterTools is called when all results of a round are stored.
	AfterTools func(ctx context.Context, rc *RequestContext, results []model.Message) error
	// BeforeTool may change the arguments of a call, or block it.
	BeforeTool func(ctx context.Context, call *ToolCall, args json.RawMessage) (ToolDecision, error)
	// AfterTool may change a result.
	AfterTool func(ctx context.Context, call *ToolCall, result ToolResult) (ToolResult, error)
	// OnToolAbort is called when a running call was aborted, before its
	// aborted result is stored.
	OnToolAbort func(ctx context.Context, call *ToolCall) error
}

// ToolDecision is what a BeforeTool hook decides. The zero value lets the call
// go on unchanged.
type ToolDecision struct {
	// Arguments, when not nil, replace the call's arguments.
	Arguments json.RawMessage
	// Block, when not empty, refuses the call; the model reads the text.
	Block string
}
