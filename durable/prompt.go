package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/internal/transcript"
	"github.com/wp-durable/wp-durable/durable/model"
)

// readDoc returns a committed document of a conversation from memory or the
// store, decoded.
func readDoc[T any](ctx context.Context, t *tree, d *Doc[T], owner int64) (T, error) {
	key := d.docKey(owner, "")
	t.mu.RLock()
	rec, known := t.docs[key]
	t.mu.RUnlock()
	if !known || !t.isLoaded() {
		return d.Get(ctx, t.e, owner)
	}
	if rec == nil {
		return d.initial(), nil
	}
	return d.decode(rec)
}

// agent resolves what a conversation runs with now.
func (e *Engine) agentOf(ctx context.Context, t *tree, id ConversationID) (Agent, Selection, error) {
	settings, err := readDoc(ctx, t, agentDoc, int64(id))
	if err != nil {
		return Agent{}, Selection{}, err
	}
	a, sel := e.resolveAgent(settings)
	return a, sel, nil
}

// environment asks the host for a conversation's environment.
func (e *Engine) environment(ctx context.Context, c *Conversation) (env.Environment, error) {
	if e.opts.Env == nil {
		return nil, ErrNoEnvironment
	}
	var out env.Environment
	err := e.protect("Options.Env", func() (err error) {
		out, err = e.opts.Env(ctx, c)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("environment of conversation %d: %w", c.rec.ID, err)
	}
	if out == nil {
		return nil, ErrNoEnvironment
	}
	return out, nil
}

// requestContext makes what sections and hooks may look at.
func (e *Engine) requestContext(c *Conversation, a Agent, info model.Info, tools []*Tool) *RequestContext {
	return &RequestContext{
		Conversation: c, Agent: a, Model: info, Tools: tools,
		env: func(ctx context.Context) (env.Environment, error) { return e.environment(ctx, c) },
	}
}

// instructionsKey is the section that holds the agent's own instructions.
const instructionsKey = "instructions"

// render makes the system prompt that the next request is to show (E11). A
// section that fails keeps what the model was shown of it, and is reported.
func (e *Engine) render(ctx context.Context, rc *RequestContext, sections []Section, shown model.System) model.System {
	var want model.System
	for _, s := range sections {
		var text string
		err := e.protect("section "+s.Key, func() (err error) {
			text, err = s.Render(ctx, rc)
			return err
		})
		if err != nil {
			e.log.Warn("section failed", slog.String("section", s.Key), slog.Int64("conversation", int64(rc.Conversation.rec.ID)), slog.Any("error", err))
			if i := slices.IndexFunc(shown.Sections, func(o model.Section) bool { return o.Key == s.Key }); i >= 0 {
				want.Sections = append(want.Sections, shown.Sections[i])
			}
			continue
		}
		if text != "" {
			want.Sections = append(want.Sections, model.Section{Key: s.Key, Text: text, Untagged: s.Untagged})
		}
	}
	if rc.Agent.Instructions != "" {
		want.Sections = append(want.Sections, model.Section{Key: instructionsKey, Text: rc.Agent.Instructions})
	}
	for _, t := range rc.Tools {
		want.Tools = append(want.Tools, t.Declaration())
	}
	// As it will be stored, so that what is not text is no change every time.
	m, _ := transcript.CleanMessage(model.Message{Role: model.RoleSystem, Baseline: true, Sections: want.Sections, ToolsAdded: want.Tools})
	return model.System{Sections: m.Sections, Tools: m.ToolsAdded}
}

// systemChange returns the system message that leads from what the model was
// shown to what it is to see, nil when they are the same: a baseline when there
// is none or when the order changed, else only what differs.
func systemChange(shown model.System, hasBaseline bool, want model.System) *model.Message {
	if !hasBaseline && len(want.Sections)+len(want.Tools)+len(shown.Sections)+len(shown.Tools) == 0 {
		return nil
	}
	after := shown
	m := diffSystem(shown, want)
	if m != nil {
		after.Apply(m)
	}
	if !hasBaseline || !sameOrder(after, want) {
		return &model.Message{Role: model.RoleSystem, Baseline: true, Sections: want.Sections, ToolsAdded: want.Tools}
	}
	return m
}

func diffSystem(shown, want model.System) *model.Message {
	m := &model.Message{Role: model.RoleSystem}
	for _, s := range want.Sections {
		if !slices.Contains(shown.Sections, s) {
			m.Sections = append(m.Sections, s)
		}
	}
	for _, s := range shown.Sections {
		if !slices.ContainsFunc(want.Sections, func(o model.Section) bool { return o.Key == s.Key }) {
			m.Sections = append(m.Sections, model.Section{Key: s.Key})
		}
	}
	for _, t := range want.Tools {
		if !slices.ContainsFunc(shown.Tools, func(o model.Tool) bool { return sameTool(o, t) }) {
			m.ToolsAdded = append(m.ToolsAdded, t)
		}
	}
	for _, t := range shown.Tools {
		if !slices.ContainsFunc(want.Tools, func(o model.Tool) bool { return o.Name == t.Name }) {
			m.ToolsRemoved = append(m.ToolsRemoved, t.Name)
		}
	}
	if len(m.Sections)+len(m.ToolsAdded)+len(m.ToolsRemoved) == 0 {
		return nil
	}
	return m
}

func sameTool(a, b model.Tool) bool {
	return a.Name == b.Name && a.Description == b.Description && bytes.Equal(compactJSON(a.Parameters), compactJSON(b.Parameters))
}

func compactJSON(raw json.RawMessage) []byte {
	var buf bytes.Buffer
	if json.Compact(&buf, raw) != nil {
		return raw
	}
	return buf.Bytes()
}

func sameOrder(a, b model.System) bool {
	return slices.EqualFunc(a.Sections, b.Sections, func(x, y model.Section) bool { return x.Key == y.Key }) &&
		slices.EqualFunc(a.Tools, b.Tools, func(x, y model.Tool) bool { return x.Name == y.Name })
}

// resolveModel returns the provider of an agent's model; err says why the run
// cannot have one.
func (e *Engine) resolveModel(a Agent) (model.Provider, model.Info, error) {
	if a.Model == nil || a.Model.IsZero() {
		return nil, model.Info{}, errors.New("no model is set")
	}
	return e.opts.Models.Resolve(*a.Model)
}
