package faux

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
)

// ProviderID and ModelID name the model that [Model] describes.
const (
	ProviderID = "faux"
	ModelID    = "faux-1"
)

// Model describes the scripted model: all thinking levels, images, a context
// window of 200000 tokens, and round prices, so that costs can be tested.
func Model() model.Info {
	return model.Info{
		Provider: ProviderID, ID: ModelID, Name: "Faux",
		ContextWindow: 200_000, MaxOutput: 64_000,
		Prices: &model.Prices{Input: 1, Output: 10, CacheRead: 0.1, CacheWrite: 2},
		ThinkingLevels: []model.ThinkingLevel{
			model.ThinkingMinimal, model.ThinkingLow, model.ThinkingMedium,
			model.ThinkingHigh, model.ThinkingXHigh, model.ThinkingMax,
		},
		Images: true,
	}
}

// Options are the settings of a [Provider]; nil and the zero value work.
type Options struct {
	// Strict refuses requests that violate [Check].
	Strict bool
	// Handler, when not nil, is asked first; false leaves the request to rules
	// and queue. It is called without a lock held, from many goroutines, and
	// must not modify the request or keep it.
	Handler func(req *model.Request) (Step, bool)
	// Sleep waits for d or until ctx ends, and then returns its error. The
	// default uses a timer. It is only called with a positive d.
	Sleep func(ctx context.Context, d time.Duration) error
	// KeepRequests is how many of the newest requests Requests returns.
	// Default 200; negative keeps none.
	KeepRequests int
}

// Provider is the scripted provider. It is safe for concurrent use: each
// request takes its answer in one step.
type Provider struct {
	opts Options // set once in New

	mu       sync.Mutex // guards the rest
	queue    []Step
	rules    []*ruleSet
	requests []*model.Request // newest last
	calls    int64            // tool call ids given out
	answered int64
}

type ruleSet struct {
	rules   []Rule
	left    int
	forever bool
}

// New returns a provider without a script.
func New(opts *Options) *Provider {
	p := &Provider{}
	if opts != nil {
		p.opts = *opts
	}
	p.opts.KeepRequests = cmp.Or(p.opts.KeepRequests, 200)
	if p.opts.Sleep == nil {
		p.opts.Sleep = sleep
	}
	return p
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Push appends steps to the queue; each answers one request.
func (p *Provider) Push(steps ...Step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue = append(p.queue, steps...)
}

// AddRules makes each of the next count requests that a rule fits be answered
// by the first such rule; 0 means without end. Requests that no rule fits do
// not count. Rules that were added earlier are asked first.
func (p *Provider) AddRules(rules []Rule, count int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, &ruleSet{rules: slices.Clone(rules), left: count, forever: count <= 0})
}

// Load adds a script.
func (p *Provider) Load(s *Script) error {
	if err := s.Validate(); err != nil {
		return err
	}
	p.Push(s.Responses...)
	if len(s.Rules) > 0 {
		p.AddRules(s.Rules, s.Count)
	}
	return nil
}

// Reset forgets queue, rules and kept requests.
func (p *Provider) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.queue, p.rules, p.requests = nil, nil, nil
}

// Pending returns how many steps wait in the queue.
func (p *Provider) Pending() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

// Count returns how many requests came since New, also those not kept.
func (p *Provider) Count() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answered
}

// Requests returns deep copies of the newest requests, oldest first, also of
// those that were refused.
func (p *Provider) Requests() []*model.Request {
	p.mu.Lock()
	kept := slices.Clone(p.requests)
	p.mu.Unlock()
	for i, r := range kept {
		kept[i] = clone(r)
	}
	return kept
}

// keep stores req. Messages are immutable, so their copy may wait until
// Requests is called; only the slice itself may change after Stream returned.
func (p *Provider) keep(req *model.Request) {
	p.answered++
	if p.opts.KeepRequests < 0 {
		return
	}
	r := *req
	r.Messages = slices.Clone(req.Messages)
	if len(p.requests) == p.opts.KeepRequests {
		copy(p.requests, p.requests[1:])
		p.requests[len(p.requests)-1] = &r
		return
	}
	p.requests = append(p.requests, &r)
}

// take records the request and finds its scripted answer.
func (p *Provider) take(req *model.Request) (Step, error) {
	p.mu.Lock()
	p.keep(req)
	p.mu.Unlock()

	if p.opts.Strict {
		if err := Check(req); err != nil {
			return Step{}, err
		}
	}
	if p.opts.Handler != nil {
		if s, ok := p.opts.Handler(req); ok {
			return s, nil
		}
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.byRule(req); ok {
		return s, nil
	}
	if len(p.queue) > 0 {
		s := p.queue[0]
		p.queue[0] = Step{}
		p.queue = p.queue[1:]
		return s, nil
	}
	return Step{}, &model.Error{Class: model.ClassInvalidRequest, Message: "no faux response"}
}

func (p *Provider) byRule(req *model.Request) (Step, bool) {
	if len(p.rules) == 0 {
		return Step{}, false
	}
	last := lastMessage(req)
	for i, set := range p.rules {
		for _, r := range set.rules {
			if !contains(last, r.When) {
				continue
			}
			set.left--
			if !set.forever && set.left == 0 {
				p.rules = slices.Delete(p.rules, i, i+1)
			}
			return r.Step, true
		}
	}
	return Step{}, false
}

// contains reports whether the text of m contains s.
func contains(m *model.Message, s string) bool {
	if s == "" {
		return true
	}
	return m != nil && strings.Contains(m.Text(), s)
}

func lastMessage(req *model.Request) *model.Message {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if req.Messages[i].Role != model.RoleSystem {
			return &req.Messages[i]
		}
	}
	return nil
}

// callID returns an id that neither this provider nor the request has used.
func (p *Provider) callID(req *model.Request) string {
	for {
		p.mu.Lock()
		p.calls++
		id := "call_" + strconv.FormatInt(p.calls, 10)
		p.mu.Unlock()
		if !used(req, id) {
			return id
		}
	}
}

func used(req *model.Request, id string) bool {
	for i := range req.Messages {
		m := &req.Messages[i]
		if m.Role != model.RoleAssistant {
			continue
		}
		for j := range m.Content {
			if m.Content[j].Type == model.BlockToolCall && m.Content[j].ID == id {
				return true
			}
		}
	}
	return false
}
