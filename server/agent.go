package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/server/internal/web"
)

// ModelRef names a model.
type ModelRef struct {
	Provider string `json:"provider" minLength:"1" example:"anthropic"`
	ModelID  string `json:"modelId" minLength:"1" example:"claude-opus-5-5"`
}

// ThinkingLevel is how much a model should think before it answers.
type ThinkingLevel string

// Schema lists the levels.
func (ThinkingLevel) Schema(r huma.Registry) *huma.Schema {
	return named(r, "ThinkingLevel", &huma.Schema{
		Type: huma.TypeString, Description: "How much a model should think before it answers",
		Enum: []any{"off", "minimal", "low", "medium", "high", "xhigh", "max"},
	})
}

// Agent is what a conversation runs with from the next request on: what it
// sets itself, and the server's defaults where it sets nothing.
type Agent struct {
	Model         *ModelRef     `json:"model,omitempty" doc:"Absent when there is none"`
	ThinkingLevel ThinkingLevel `json:"thinkingLevel"`
	Extensions    []string      `json:"extensions"`
	Tools         []string      `json:"tools"`
	Instructions  string        `json:"instructions,omitempty"`
	Cwd           string        `json:"cwd,omitempty" doc:"Folder that commands start in"`
	OutputTokens  int           `json:"outputTokens" doc:"Output limit of an answer"`
}

// AgentChange changes what a conversation runs with.
type AgentChange struct {
	Model         Change[ModelRef]        `json:"model,omitzero" doc:"Model to use; null for the server's default"`
	ThinkingLevel Change[ThinkingLevel]   `json:"thinkingLevel,omitzero"`
	Extensions    Change[ExtensionChoice] `json:"extensions,omitzero" doc:"Extensions to use, or a change to the server's default; null for that"`
	Tools         Change[ToolChoice]      `json:"tools,omitzero" doc:"Tools of the extensions to keep, or to remove; null keeps all"`
	Instructions  Change[string]          `json:"instructions,omitzero" doc:"Text at the end of the system prompt"`
	Cwd           Change[string]          `json:"cwd,omitzero" doc:"Folder that commands start in, where the environment has several"`
	OutputTokens  Change[OutputTokens]    `json:"outputTokens,omitzero" doc:"Output limit of an answer"`
}

// OutputTokens is an output limit.
type OutputTokens int

// Schema bounds it as [SubmitLimits] does.
func (OutputTokens) Schema(huma.Registry) *huma.Schema {
	least, most := 1.0, float64(math.MaxInt32)
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: &least, Maximum: &most}
}

// ExtensionChoice is a list of names, or additions to and removals from the
// default.
type ExtensionChoice struct{ durable.Choice }

// UnmarshalJSON reads either form.
func (c *ExtensionChoice) UnmarshalJSON(data []byte) error { return c.Choice.UnmarshalJSON(data) }

// Schema describes both forms.
func (ExtensionChoice) Schema(r huma.Registry) *huma.Schema {
	return named(r, "ExtensionChoice", choice(r, reflect.TypeFor[ExtensionChanges]()))
}

// ToolChoice is a list of names, or removals from the default.
type ToolChoice struct{ durable.Choice }

// UnmarshalJSON reads either form.
func (c *ToolChoice) UnmarshalJSON(data []byte) error { return c.Choice.UnmarshalJSON(data) }

// Schema describes both forms.
func (ToolChoice) Schema(r huma.Registry) *huma.Schema {
	return named(r, "ToolChoice", choice(r, reflect.TypeFor[ToolChanges]()))
}

// ExtensionChanges documents the second form of an [ExtensionChoice].
type ExtensionChanges struct {
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// ToolChanges documents the second form of a [ToolChoice].
type ToolChanges struct {
	Remove []string `json:"remove"`
}

func choice(r huma.Registry, changes reflect.Type) *huma.Schema {
	return &huma.Schema{OneOf: []*huma.Schema{
		{Type: huma.TypeArray, Items: &huma.Schema{Type: huma.TypeString}},
		r.Schema(changes, true, changes.Name()),
	}}
}

// wireAgent shows a complete agent: of its extensions those that there are.
func (s *Server) wireAgent(a durable.Agent) Agent {
	w := Agent{
		ThinkingLevel: ThinkingLevel(a.ThinkingLevel), Instructions: a.Instructions, Cwd: a.Cwd, OutputTokens: a.OutputTokens,
		Extensions: slices.Clone(a.Extensions.Apply(nil)), Tools: slices.Clone(a.Tools.Apply(nil)),
	}
	registered := s.engine.Registry().Names()
	w.Extensions = slices.DeleteFunc(w.Extensions, func(name string) bool { return !slices.Contains(registered, name) })
	if w.Extensions == nil {
		w.Extensions = []string{}
	}
	if w.Tools == nil {
		w.Tools = []string{}
	}
	if a.Model != nil {
		w.Model = &ModelRef{a.Model.Provider, a.Model.ModelID}
	}
	return w
}

// change returns what is asked for in the engine's terms; nil for nothing.
func (c *AgentChange) change() *durable.AgentChange {
	if c == nil {
		return nil
	}
	var out durable.AgentChange
	if c.Model.Set {
		var ref *model.Ref
		if c.Model.Value != nil {
			ref = &model.Ref{Provider: c.Model.Value.Provider, ModelID: c.Model.Value.ModelID}
		}
		out.Model = &ref
	}
	if c.Extensions.Set {
		var names *durable.Choice
		if c.Extensions.Value != nil {
			names = &c.Extensions.Value.Choice
		}
		out.Extensions = &names
	}
	if c.Tools.Set {
		var names *durable.Choice
		if c.Tools.Value != nil {
			names = &c.Tools.Value.Choice
		}
		out.Tools = &names
	}
	out.ThinkingLevel = scalar(c.ThinkingLevel, func(l ThinkingLevel) model.ThinkingLevel { return model.ThinkingLevel(l) })
	out.Instructions = scalar(c.Instructions, func(s string) string { return s })
	out.Cwd = scalar(c.Cwd, func(s string) string { return s })
	out.OutputTokens = scalar(c.OutputTokens, func(n OutputTokens) int { return int(n) })
	return &out
}

// scalar returns nil for a field that stays, and the zero value for one that
// is cleared.
func scalar[T, U any](c Change[T], convert func(T) U) *U {
	if !c.Set {
		return nil
	}
	var v U
	if c.Value != nil {
		v = convert(*c.Value)
	}
	return &v
}

// checkAgent refuses what no later change of the server could make right.
func (s *Server) checkAgent(ctx context.Context, c *AgentChange) error {
	if c == nil {
		return nil
	}
	if err := s.checkModel(c.Model.Value); err != nil {
		return err
	}
	return s.checkCwd(ctx, c)
}

// checkModel refuses a model whose provider is not set up. A provider that can
// be used may have models that the catalog does not know; of one without a
// credential only those are taken.
func (s *Server) checkModel(m *ModelRef) error {
	if m == nil {
		return nil
	}
	const location = "body.agent.model"
	_, _, err := s.opts.Models.Resolve(model.Ref{Provider: m.Provider, ModelID: m.ModelID})
	if err == nil {
		return nil
	}
	var providers, models []string
	for _, info := range s.opts.Models.Models() {
		if !slices.Contains(providers, info.Provider) {
			providers = append(providers, info.Provider)
		}
		if info.Provider == m.Provider {
			models = append(models, info.ID)
		}
	}
	switch {
	case errors.Is(err, model.ErrUnknownModel):
		return web.Invalid(location, fmt.Sprintf("there is no provider %q; there are %s", m.Provider, strings.Join(providers, ", ")))
	case len(models) > 0 && !slices.Contains(models, m.ModelID):
		return web.Invalid(location, fmt.Sprintf("the provider %s has no model %q that is known, and no credential to use others; GET /v1/models lists them", m.Provider, m.ModelID))
	}
	return nil
}

// checkCwd refuses a folder that no environment of the server has.
func (s *Server) checkCwd(ctx context.Context, c *AgentChange) error {
	if c.Cwd.Value == nil || *c.Cwd.Value == "" {
		return nil
	}
	if s.opts.OwnsCwd != nil {
		owned, err := s.opts.OwnsCwd(ctx, *c.Cwd.Value)
		if err != nil || owned {
			return err
		}
	}
	return web.Invalid("body.agent.cwd", "no environment of the server has this folder")
}
