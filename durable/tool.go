package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Replay says whether a tool call that was cut off may run again.
type Replay string

// The replay policies.
const (
	// ReplayNever: a call starts at most once; one that was cut off ends as
	// interrupted. It is the default.
	ReplayNever Replay = "never"
	// ReplaySafe: running a call twice does no harm.
	ReplaySafe Replay = "safe"
)

// ToolMode says whether a tool's calls run beside others of their round.
type ToolMode string

// The tool modes.
const (
	ToolParallel   ToolMode = "parallel" // the default
	ToolSequential ToolMode = "sequential"
)

// ToolSpec declares a tool for [NewTool].
type ToolSpec struct {
	Name        string // [a-zA-Z0-9_-], at most 64
	Description string // for the model
	// Parameters is the JSON schema of the arguments, of type object; nil
	// makes it from the Args type and its json and jsonschema tags.
	Parameters json.RawMessage
	Replay     Replay
	Mode       ToolMode
	Output     OutputLimit // bounds of call.Output
	// Prepare, when set, may repair common mistakes in a model's arguments
	// before they are validated. The transcript keeps what the model wrote.
	Prepare func(args json.RawMessage) json.RawMessage
	// Title is a short name for people; empty for Name.
	Title string
}

// OutputLimit bounds the running output that a tool call keeps.
type OutputLimit struct {
	Bytes    int  // 0 means 50 KiB
	Lines    int  // 0 means 2000
	KeepHead bool // keep the beginning instead of the end
}

// ToolFunc executes a tool call. What it returns becomes the tool's result; an
// error becomes an error result with the error's text. When ctx is cancelled
// it should return soon.
type ToolFunc func(ctx context.Context, call *ToolCall, args json.RawMessage) (ToolResult, error)

// Tool is a tool of an [Extension]. It is immutable.
type Tool struct {
	spec   ToolSpec
	schema *jsonschema.Resolved
	run    ToolFunc
}

var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// NewTool makes a tool whose arguments are of type Args, a struct. The
// arguments are validated by the schema before run is called. It panics when
// the declaration is wrong.
func NewTool[Args any](spec ToolSpec, run func(ctx context.Context, call *ToolCall, args Args) (ToolResult, error)) *Tool {
	if spec.Parameters == nil {
		s, err := jsonschema.For[Args](nil)
		if err != nil {
			panic(fmt.Sprintf("durable.NewTool %s: schema of the arguments: %v", spec.Name, err))
		}
		if spec.Parameters, err = encode(s); err != nil {
			panic(fmt.Sprintf("durable.NewTool %s: schema of the arguments: %v", spec.Name, err))
		}
	}
	t, err := newTool(spec, func(ctx context.Context, call *ToolCall, raw json.RawMessage) (ToolResult, error) {
		var args Args
		if err := json.Unmarshal(raw, &args); err != nil {
			return ToolResult{}, fmt.Errorf("arguments: %w", err)
		}
		return run(ctx, call, args)
	})
	if err != nil {
		panic("durable.NewTool " + err.Error())
	}
	return t
}

// NewRawTool makes a tool that takes its arguments as JSON; spec.Parameters is
// required. It returns an error where [NewTool] panics, for declarations that
// come from outside the program.
func NewRawTool(spec ToolSpec, run ToolFunc) (*Tool, error) { return newTool(spec, run) }

func newTool(spec ToolSpec, run ToolFunc) (*Tool, error) {
	if !toolName.MatchString(spec.Name) {
		return nil, fmt.Errorf("tool %q: name must match %s: %w", spec.Name, toolName, ErrInvalid)
	}
	if run == nil {
		return nil, fmt.Errorf("tool %s: no function: %w", spec.Name, ErrInvalid)
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(spec.Parameters, &s); err != nil {
		return nil, fmt.Errorf("tool %s: parameters: %v: %w", spec.Name, err, ErrInvalid)
	}
	if s.Type != "object" {
		return nil, fmt.Errorf("tool %s: parameters must be a schema of type object: %w", spec.Name, ErrInvalid)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return nil, fmt.Errorf("tool %s: parameters: %v: %w", spec.Name, err, ErrInvalid)
	}
	switch spec.Replay {
	case "":
		spec.Replay = ReplayNever
	case ReplayNever, ReplaySafe:
	default:
		return nil, fmt.Errorf("tool %s: replay %q is unknown: %w", spec.Name, spec.Replay, ErrInvalid)
	}
	switch spec.Mode {
	case "":
		spec.Mode = ToolParallel
	case ToolParallel, ToolSequential:
	default:
		return nil, fmt.Errorf("tool %s: mode %q is unknown: %w", spec.Name, spec.Mode, ErrInvalid)
	}
	spec.Parameters = slices.Clone(spec.Parameters)
	return &Tool{spec: spec, schema: resolved, run: run}, nil
}

// Name returns the tool's name.
func (t *Tool) Name() string { return t.spec.Name }

// Spec returns the tool's declaration.
func (t *Tool) Spec() ToolSpec {
	s := t.spec
	s.Parameters = slices.Clone(s.Parameters)
	return s
}

// Declaration returns what a model is told of the tool.
func (t *Tool) Declaration() model.Tool {
	return model.Tool{Name: t.spec.Name, Description: t.spec.Description, Parameters: slices.Clone(t.spec.Parameters)}
}

// WithFunc returns a tool with the same declaration and another function,
// which may call the first: how a [Wrap] changes what a tool does.
func (t *Tool) WithFunc(wrap func(next ToolFunc) ToolFunc) *Tool {
	c := *t
	c.run = wrap(t.run)
	return &c
}

// validate reports what is wrong with the arguments, nil for nothing.
func (t *Tool) validate(args json.RawMessage) error {
	var v any
	if err := json.Unmarshal(args, &v); err != nil {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	if _, ok := v.(map[string]any); !ok {
		return fmt.Errorf("not a JSON object")
	}
	return t.schema.Validate(v)
}

// ToolResult is the outcome of a tool call.
type ToolResult struct {
	Content []model.Block // text and images
	IsError bool
	// Details is JSON for user interfaces; no model sees it. It wins over
	// what call.Details set.
	Details json.RawMessage
	// Usage is what the call consumed; it is summed under the tool's name.
	Usage *model.Usage
	// AddTools names tools of the conversation's extensions that its agent
	// left out and that are offered from the next request on.
	AddTools []string
	// Terminate ends the run, without another request, when every result of
	// the round says so.
	Terminate bool
	// Handoff, when not empty, ends the run and begins a new context with
	// this text.
	Handoff string
}

// TextResult returns a result with one text block.
func TextResult(text string) ToolResult {
	return ToolResult{Content: []model.Block{model.Text(text)}}
}

// ErrorResult returns an error result with one text block.
func ErrorResult(text string) ToolResult {
	return ToolResult{Content: []model.Block{model.Text(text)}, IsError: true}
}

// Severity ranks a [Diagnostic].
type Severity string

// The severities.
const (
	SeverityInfo    Severity = "info"
	SeverityWarning Severity = "warning"
	SeverityError   Severity = "error"
)

// The codes of the engine's own diagnostics.
const (
	CodeToolUnavailable  = "tool_unavailable"
	CodeInvalidArguments = "invalid_arguments"
	CodeBlocked          = "blocked"
	CodeInterrupted      = "interrupted"
	CodeAborted          = "aborted"
	CodeToolError        = "tool_error"
	CodeTruncated        = "truncated"
)

// Diagnostic is a remark on a tool call, for the model and for people.
type Diagnostic struct {
	Severity Severity `json:"severity"`
	Code     string   `json:"code"`
	Message  string   `json:"message"`
}
