package durable

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"maps"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
)

// The kinds of the engine's own documents.
const (
	agentDocKind    = "pi.agent"
	usageDocKind    = "pi.usage"
	providerDocKind = "pi.provider"
)

// agentDoc holds what a conversation sets of its agent.
var agentDoc = newDoc(DocSpec[Agent]{Kind: agentDocKind, Scope: ScopeConversation, History: Rewindable, Fork: ForkAsOf})

// providerDoc holds what providers are told of a conversation.
var providerDoc = newDoc(DocSpec[providerState]{Kind: providerDocKind, Scope: ScopeConversation})

type providerState struct {
	SessionID string `json:"sessionId"` // UUID version 7
}

// usageDoc sums what a conversation consumed.
var usageDoc = newDoc(DocSpec[UsageTotals]{Kind: usageDocKind, Scope: ScopeConversation})

// UsageTotals is consumption by model ("provider/model") and by tool.
type UsageTotals struct {
	Models map[string]model.Usage `json:"models,omitempty"`
	Tools  map[string]model.Usage `json:"tools,omitempty"`
}

// Total returns the sum over models and tools.
func (u *UsageTotals) Total() model.Usage {
	var sum model.Usage
	for _, v := range u.Models {
		sum.Add(&v)
	}
	for _, v := range u.Tools {
		sum.Add(&v)
	}
	return sum
}

func (u *UsageTotals) add(v *UsageTotals) {
	for name, use := range v.Models {
		addUsage(&u.Models, name, &use)
	}
	for name, use := range v.Tools {
		addUsage(&u.Tools, name, &use)
	}
}

func addUsage(m *map[string]model.Usage, name string, u *model.Usage) {
	if *m == nil {
		*m = map[string]model.Usage{}
	}
	sum := (*m)[name]
	sum.Add(u)
	(*m)[name] = sum
}

// countModel adds a request's consumption in the commit of its outcome (E15).
func (tx *Tx) countModel(id ConversationID, ref model.Ref, u *model.Usage) error {
	if u.IsZero() {
		return nil
	}
	totals, err := usageDoc.Edit(tx, int64(id))
	if err != nil {
		return err
	}
	totals.Models = maps.Clone(totals.Models)
	addUsage(&totals.Models, ref.String(), u)
	return nil
}

func (tx *Tx) countTool(id ConversationID, name string, u *model.Usage) error {
	if u.IsZero() {
		return nil
	}
	totals, err := usageDoc.Edit(tx, int64(id))
	if err != nil {
		return err
	}
	totals.Tools = maps.Clone(totals.Tools)
	addUsage(&totals.Tools, name, u)
	return nil
}

// Usage returns what the conversation consumed. A fork starts at zero.
func (c *Conversation) Usage(ctx context.Context) (UsageTotals, error) {
	return usageDoc.Get(ctx, c.e, int64(c.rec.ID))
}

// Usage returns what all conversations of the store consumed.
func (e *Engine) Usage(ctx context.Context) (UsageTotals, error) {
	var sum UsageTotals
	err := e.store.VisitDocuments(ctx, ScopeConversation, usageDocKind, func(rec DocRecord) error {
		u, err := usageDoc.decode(&rec)
		if err == nil {
			sum.add(&u)
		}
		return err
	})
	if err != nil {
		return UsageTotals{}, fmt.Errorf("sum usage: %w", err)
	}
	return sum, nil
}

// Settings returns what the conversation itself sets of its agent.
func (c *Conversation) Settings(ctx context.Context) (Agent, error) {
	return agentDoc.Get(ctx, c.e, int64(c.rec.ID))
}

// Agent returns what the conversation runs with from the next request on: its
// settings, and the host's defaults where it sets nothing. Extensions and
// Tools are lists of names, and Model is nil when there is none.
func (c *Conversation) Agent(ctx context.Context) (Agent, error) {
	settings, err := c.Settings(ctx)
	if err != nil {
		return Agent{}, err
	}
	a, _ := c.e.resolveAgent(settings)
	return a, nil
}

// ChangeAgent changes the conversation's settings, from the next request on.
func (c *Conversation) ChangeAgent(ctx context.Context, change *AgentChange) error {
	err := c.Update(ctx, func(_ context.Context, tx *Tx) error { return tx.ChangeAgent(c.rec.ID, change) })
	if err != nil {
		return fmt.Errorf("change agent of conversation %d: %w", c.rec.ID, err)
	}
	return nil
}

// ChangeAgent is [Conversation.ChangeAgent] as a part of a commit.
func (tx *Tx) ChangeAgent(id ConversationID, change *AgentChange) error {
	a, err := agentDoc.Edit(tx, int64(id))
	if err != nil {
		return err
	}
	*a = change.Apply(*a)
	return a.validate()
}

func (a *Agent) validate() error {
	switch {
	case a.ThinkingLevel != "" && !a.ThinkingLevel.Valid():
		return fmt.Errorf("agent: thinkingLevel %q is unknown: %w", a.ThinkingLevel, ErrInvalid)
	case a.OutputTokens < 0:
		return fmt.Errorf("agent: outputTokens %d is negative: %w", a.OutputTokens, ErrInvalid)
	case a.Model != nil && (a.Model.Provider == "" || a.Model.ModelID == ""):
		return fmt.Errorf("agent: model needs provider and modelId: %w", ErrInvalid)
	case a.Tools != nil && len(a.Tools.Add) > 0:
		return fmt.Errorf("agent: tools cannot be added, only listed or removed: %w", ErrInvalid)
	}
	return nil
}

// resolveAgent completes an agent's settings with the host's defaults and
// returns it with what its extensions offer, filtered.
func (e *Engine) resolveAgent(s Agent) (Agent, Selection) {
	host := e.opts.Agent
	a := s
	if a.Model == nil {
		a.Model = clonePtr(host.Model)
	}
	if a.ThinkingLevel == "" {
		a.ThinkingLevel = host.ThinkingLevel
	}
	if a.Instructions == "" {
		a.Instructions = host.Instructions
	}
	if a.Cwd == "" {
		a.Cwd = host.Cwd
	}
	if a.OutputTokens == 0 {
		a.OutputTokens = host.OutputTokens
	}
	names := s.Extensions.Apply(host.Extensions.Apply(e.opts.Registry.Names()))
	sel := e.opts.Registry.Select(names)
	filter := s.Tools
	if filter == nil {
		filter = host.Tools
	}
	if filter != nil {
		var all []string
		for _, t := range sel.Tools {
			all = append(all, t.Name())
		}
		keep := filter.Apply(all)
		var tools []*Tool
		for _, t := range sel.Tools {
			for _, k := range keep {
				if k == t.Name() {
					tools = append(tools, t)
					break
				}
			}
		}
		sel.Tools = tools
	}
	tools := make([]string, len(sel.Tools))
	for i, t := range sel.Tools {
		tools[i] = t.Name()
	}
	a.Extensions, a.Tools = List(names...), List(tools...)
	return a, sel
}

// newSessionID returns a UUID version 7: a time in milliseconds, then random.
func newSessionID(at time.Time) string {
	var b [16]byte
	_, _ = rand.Read(b[6:]) // never fails
	binary.BigEndian.PutUint16(b[:], uint16(at.UnixMilli()>>32))
	binary.BigEndian.PutUint32(b[2:], uint32(at.UnixMilli()))
	b[6] = b[6]&0x0f | 0x70
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
