package durable_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// puppet is a model that answers when the test says so, and as it says.
type puppet struct {
	mu      sync.Mutex
	waiting []*request
	bad     error // the first request that a strict provider would refuse
	n       int   // requests so far
}

// request is one that waits for its answer.
type request struct {
	*model.Request
	n     int
	steps chan faux.Step
	taken chan struct{}
}

func (p *puppet) Stream(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	if err := faux.Check(req); err != nil {
		p.mu.Lock()
		p.bad = fmt.Errorf("%w: %s", err, mustJSON(req.Messages))
		p.mu.Unlock()
		return nil, err
	}
	p.mu.Lock()
	p.n++
	r := &request{Request: req, n: p.n, steps: make(chan faux.Step), taken: make(chan struct{})}
	p.waiting = append(p.waiting, r)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, w := range p.waiting {
			if w == r {
				p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
				break
			}
		}
	}()
	msg := &model.Message{Role: model.RoleAssistant, StopReason: model.StopError}
	say := func(text string) {
		if len(msg.Content) == 0 {
			msg.Content = []model.Block{model.Text("")}
		}
		msg.Content[0].Text += text
		emit(model.Delta{Kind: model.DeltaText, Text: text})
	}
	for {
		var s faux.Step
		select {
		case s = <-r.steps:
		case <-ctx.Done():
			msg.StopReason = model.StopAborted
			return &model.Response{Message: msg}, &model.Error{Class: model.ClassAborted, Message: "request cancelled", Err: context.Cause(ctx)}
		}
		if s.Text != "" {
			say(s.Text)
		}
		switch {
		case s.Error != nil:
			return &model.Response{Message: msg}, &model.Error{Class: s.Error.Class, Message: s.Error.Message}
		case s.StopReason == more:
			r.taken <- struct{}{}
			continue
		}
		msg.StopReason = model.StopEnd
		for i, c := range s.ToolCalls {
			b := model.Block{Type: model.BlockToolCall, ID: c.ID, Name: c.Name}
			if b.ID == "" {
				b.ID = fmt.Sprintf("call_%d_%d", r.n, i)
			}
			b.SetArguments(string(c.Arguments))
			emit(model.Delta{Kind: model.DeltaToolCall, Index: len(msg.Content), Text: string(c.Arguments), ToolCallID: b.ID, ToolName: b.Name})
			msg.Content = append(msg.Content, b)
			msg.StopReason = model.StopToolUse
		}
		if s.StopReason != "" {
			msg.StopReason = s.StopReason
		}
		msg.Usage = s.Usage
		return &model.Response{Message: msg}, nil
	}
}

// more, as a step's stop reason, says that the answer goes on.
const more model.StopReason = "more"

// asked returns the requests that wait, oldest first.
func (p *puppet) asked() []*request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*request(nil), p.waiting...)
}

// only returns the one request that waits.
func (p *puppet) only(t require.TestingT) *request {
	help(t)
	asked := p.asked()
	require.Len(t, asked, 1, "requests that wait")
	return asked[0]
}

// say gives the request a piece of its answer.
func (r *request) say(text string) {
	r.steps <- faux.Step{Text: text, StopReason: more}
	<-r.taken
}

// end gives the request the end of its answer.
func (r *request) end(s faux.Step) { r.steps <- s }

// fault returns the first request that was not well formed (E2.8).
func (p *puppet) fault() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bad
}

// gate is a tool whose calls return when the test says so.
type gate struct {
	mu      sync.Mutex
	running []*gateCall
	starts  map[string]int // by argument
}

type gateCall struct {
	call *durable.ToolCall
	arg  string
	end  chan durable.ToolResult
}

func newGate() *gate { return &gate{starts: map[string]int{}} }

func (g *gate) tool(spec durable.ToolSpec) *durable.Tool {
	return toolOf(spec, func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
		c := &gateCall{call: call, arg: arg, end: make(chan durable.ToolResult)}
		g.mu.Lock()
		g.running = append(g.running, c)
		g.starts[arg]++
		g.mu.Unlock()
		defer func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			for i, o := range g.running {
				if o == c {
					g.running = append(g.running[:i], g.running[i+1:]...)
					break
				}
			}
		}()
		select {
		case res := <-c.end:
			return res, nil
		case <-ctx.Done():
			return durable.ToolResult{}, context.Cause(ctx)
		}
	})
}

// calls returns the calls that run, in the order of their tasks.
func (g *gate) calls() []*gateCall {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := append([]*gateCall(nil), g.running...)
	slices.SortFunc(out, func(a, b *gateCall) int { return cmp.Compare(a.call.TaskID(), b.call.TaskID()) })
	return out
}

// most returns how often the call that started most often did (E2.6).
func (g *gate) most() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := 0
	for _, k := range g.starts {
		n = max(n, k)
	}
	return n
}

func mustJSON(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return raw
}
