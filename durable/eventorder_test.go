package durable_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// listener reads the stream of a submission as it comes.
type listener struct {
	r    *rig
	done chan struct{}

	mu     sync.Mutex
	events []durable.StreamEvent
	err    error
}

// listen begins to read the stream of a submission.
func listen(r *rig, s *durable.Submission) *listener {
	l := &listener{r: r, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for ev, err := range s.Stream(r.ctx) {
			l.mu.Lock()
			if err != nil {
				l.err = err
			} else {
				l.events = append(l.events, ev)
			}
			l.mu.Unlock()
		}
	}()
	return l
}

// end waits for the end of the stream.
func (l *listener) end() *listener {
	help(l.r.t)
	ctx, cancel := context.WithTimeout(l.r.ctx, 30*time.Second)
	defer cancel()
	select {
	case <-l.done:
	case <-ctx.Done():
		require.FailNow(l.r.t, "the stream does not end")
	}
	return l
}

// text is what a reader has in the end: the text of the last message that is
// not void (E17.5).
func (l *listener) text() string {
	help(l.r.t)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NoError(l.r.t, l.err)
	messages := map[int]*strings.Builder{}
	last := 0
	for _, ev := range l.events {
		switch ev.Type {
		case durable.StreamMessageStart:
			require.Nil(l.r.t, messages[ev.Message], "message %d begins twice", ev.Message)
			messages[ev.Message] = &strings.Builder{}
		case durable.StreamText:
			messages[ev.Message].WriteString(ev.Delta)
		case durable.StreamMessageVoid:
			delete(messages, ev.Message)
		case durable.StreamMessageEnd:
			last = ev.Message
		}
	}
	if messages[last] == nil {
		return ""
	}
	return messages[last].String()
}

// results lists the tool results that a stream showed.
func (l *listener) results() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, ev := range l.events {
		if ev.Type == durable.StreamToolResult {
			out = append(out, (&model.Message{Content: ev.Content}).Text())
		}
	}
	return out
}

// watcher reads the events of a conversation and checks their order.
type watcher struct {
	mu     sync.Mutex
	events []durable.Event
}

func watch(r *rig, c *durable.Conversation) *watcher {
	w := &watcher{}
	go func() {
		for ev, err := range c.Events(r.ctx, "") {
			if err != nil {
				return
			}
			w.mu.Lock()
			w.events = append(w.events, ev)
			w.mu.Unlock()
		}
	}()
	return w
}

// list names the events of some types, all of them when none is given.
func (w *watcher) list(types ...durable.EventType) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, ev := range w.events {
		for _, t := range types {
			if ev.Type == t {
				out = append(out, string(t))
			}
		}
	}
	return strings.Join(out, " ")
}

// check holds the events to E17.2: runs, turns and messages begin and end in
// pairs, each within the one around it, and what is shown of a message lies
// between its start and its end. It returns the text that stands in the end
// (E17.5).
func (w *watcher) check() (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var run durable.TaskID
	turn, open := 0, false
	shown, last := "", ""
	var names []string
	for _, ev := range w.events {
		names = append(names, string(ev.Type))
		fail := func(why string) error { return fmt.Errorf("%s: %s", strings.Join(names, " "), why) }
		switch ev.Type {
		case durable.EventRunStart:
			if run != 0 {
				return "", fail("a run begins in a run")
			}
			run, last = ev.Data.(durable.RunEvent).TaskID, ""
		case durable.EventRunEnd:
			if run != ev.Data.(durable.RunEvent).TaskID || turn != 0 || open {
				return "", fail("a run ends that did not begin, or with something open")
			}
			run = 0
		case durable.EventTurnStart:
			if run == 0 || turn != 0 || open {
				return "", fail("a turn begins outside a run or in a turn")
			}
			turn = ev.Data.(durable.TurnEvent).Turn
		case durable.EventTurnEnd:
			if n := ev.Data.(durable.TurnEvent).Turn; turn != n || open {
				return "", fail(fmt.Sprintf("turn %d ends in turn %d, message open: %v", n, turn, open))
			}
			turn = 0
		case durable.EventMessageStart:
			if turn == 0 || open {
				return "", fail("a message begins outside a turn or in a message")
			}
			open, shown = true, ""
		case durable.EventMessageUpdate:
			if !open {
				return "", fail("an update outside a message")
			}
			if d := ev.Data.(durable.MessageEvent); d.Kind == model.DeltaText {
				shown += d.Text
			}
		case durable.EventMessageVoid:
			if !open {
				return "", fail("void outside a message")
			}
			open = false
		case durable.EventMessageEnd:
			if !open {
				return "", fail("a message ends that did not begin")
			}
			open, last = false, shown
		}
	}
	if run != 0 || turn != 0 || open {
		return "", fmt.Errorf("%s: something is open at the end", strings.Join(names, " "))
	}
	return last, nil
}

// scenario is a way that a run can go.
type scenario struct {
	name  string
	ext   durable.Extension
	setup func(r *rig)
	// steps are the model's answers, to the input "go".
	steps []faux.Step
	// then, when set, is done once everything has come to rest.
	then func(r *rig, c *durable.Conversation, s *durable.Submission)
	// text is what the last run leaves on the screen.
	text string
}

// slow is an answer that comes in pieces over some seconds.
func slow(text string) faux.Step { return faux.Step{Text: text, ChunkSize: 4, ChunkMS: 500} }

// hangs is an answer of which the text comes and the end does not.
func hangs(text string) faux.Step { return faux.Step{Text: text, Hold: make(chan struct{})} }

// brokenOff fails after it has shown text, and does not repeat it.
type brokenOff struct{ class model.Class }

func (p brokenOff) Stream(_ context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
	emit(model.Delta{Kind: model.DeltaText, Text: "Hel"})
	<-time.After(time.Second)
	emit(model.Delta{Kind: model.DeltaText, Text: "lo"})
	return nil, &model.Error{Class: p.class, Message: "broken off"}
}

type panics struct{}

func (panics) Stream(_ context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
	emit(model.Delta{Kind: model.DeltaText, Text: "Hello"})
	<-time.After(time.Second)
	panic("in the provider")
}

func scenarios() []scenario {
	abort := func(r *rig, c *durable.Conversation, _ *durable.Submission) {
		r.within(func(ctx context.Context) error { _, err := c.Abort(ctx, nil); return err })
	}
	ends := func(res durable.ToolResult) durable.Extension {
		res.Content = []model.Block{model.Text("result")}
		return tools(tool("end", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) { return res, nil }))
	}
	stuck := toolOf(durable.ToolSpec{Name: "stuck"}, func(ctx context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) {
		call.Output([]byte("so far"))
		<-ctx.Done()
		return durable.ToolResult{}, ctx.Err()
	})
	noClock := func(r *rig) { r.opts.Clock = lateClock{} }
	said := func(step faux.Step, text string) faux.Step { step.Text = text; return step }
	return []scenario{
		{name: "plain", steps: []faux.Step{text("hello")}, text: "hello"},
		{name: "in pieces", steps: []faux.Step{slow("hello there")}, text: "hello there"},
		{name: "empty answer", steps: []faux.Step{{}}},
		{name: "tool round", ext: tools(echoTool()), steps: []faux.Step{call("echo", `{"text":"a"}`), text("done")}, text: "done"},
		{name: "two rounds with text", ext: tools(echoTool()), steps: []faux.Step{said(call("echo", `{"text":"a"}`), "one"), said(call("echo", `{"text":"b"}`), "two"), slow("done")}, text: "done"},
		{name: "unknown tool", steps: []faux.Step{call("none", `{}`), text("done")}, text: "done"},
		{name: "retry", steps: []faux.Step{failure(model.ClassOverloaded), text("done")}, text: "done"},
		{name: "retry after text", steps: []faux.Step{{Text: "lost", ChunkSize: 1, ChunkMS: 500, Error: &faux.Error{Class: model.ClassOverloaded}}, slow("done")}, text: "done"},
		{name: "retries used up", steps: []faux.Step{failure(model.ClassOverloaded), failure(model.ClassOverloaded), failure(model.ClassOverloaded), failure(model.ClassOverloaded)}},
		{name: "failed", steps: []faux.Step{failure(model.ClassContentFilter)}},
		{name: "failed after text", setup: func(r *rig) { r.provide(brokenOff{model.ClassContentFilter}) }, text: "Hello"},
		{name: "always failed after text", setup: func(r *rig) { r.provide(brokenOff{model.ClassOverloaded}) }, text: "Hello"},
		{name: "provider panics", setup: func(r *rig) { r.provide(panics{}) }, text: "Hello"},
		{name: "thinking rejected", steps: []faux.Step{failure(model.ClassThinkingMismatch), text("done")}, text: "done"},
		{name: "unknown stop reason", steps: []faux.Step{{Text: "what", StopReason: "odd"}}, text: "what"},
		{name: "no model", setup: func(r *rig) { r.opts.Models = &model.Set{} }},
		{name: "aborted before the first piece", steps: []faux.Step{{Text: "x", Wait: make(chan struct{})}}, then: abort},
		{name: "aborted before a piece was stored", setup: noClock, steps: []faux.Step{hangs("early")}, then: abort, text: "early"},
		{name: "aborted in the answer", steps: []faux.Step{hangs("half")}, then: abort, text: "half"},
		{name: "aborted in a tool", ext: tools(stuck), steps: []faux.Step{said(call("stuck", `{"text":"a"}`), "calling")}, then: abort, text: "calling"},
		{name: "aborted before a repetition", setup: func(r *rig) { r.opts.Retry = durable.RetryPolicy{Base: time.Hour, Cap: 2 * time.Hour} }, steps: []faux.Step{failure(model.ClassOverloaded)}, then: abort},
		{name: "all terminate", ext: ends(durable.ToolResult{Terminate: true}), steps: []faux.Step{said(call("end", `{"text":"a"}`), "bye")}, text: "bye"},
		{name: "handoff", ext: ends(durable.ToolResult{Handoff: "go on here"}), steps: []faux.Step{said(call("end", `{"text":"a"}`), "bye")}, text: "bye"},
		{name: "stuck", ext: ends(durable.ToolResult{IsError: true}), steps: []faux.Step{call("end", `{"text":"a"}`), call("end", `{"text":"a"}`), call("end", `{"text":"a"}`)}},
		{name: "yield", ext: durable.Extension{Name: "x", Hooks: durable.Hooks{OnYield: func(_ context.Context, _ *durable.RequestContext, m *model.Message) ([]model.Block, error) {
			if m.Text() == "first" {
				return []model.Block{model.Text("more")}, nil
			}
			return nil, nil
		}}}, steps: []faux.Step{text("first"), text("second")}, text: "second"},
		{name: "answer changed", ext: rewrites(), steps: []faux.Step{text("secret")}, text: "[redacted]"},
		{name: "shown answer changed", ext: rewrites(), steps: []faux.Step{slow("a secret in pieces")}, text: "[redacted]"},
		{name: "faulted in the answer", setup: func(r *rig) {
			r.store = &refusing{Store: r.history, refuse: func(b *durable.Batch) bool {
				return len(b.Entries) > 0 && b.Entries[0].Kind == durable.KindAssistant
			}}
			r.model.AddRules([]faux.Rule{{Step: slow("never stored")}}, 0)
		}},
		{name: "steered", ext: tools(echoTool()), steps: []faux.Step{{ToolCalls: call("echo", `{"text":"a"}`).ToolCalls, DelayMS: 60_000}, text("done")}, text: "done",
			then: func(r *rig, c *durable.Conversation, _ *durable.Submission) {
				r.submit(c, "aside", durable.Steer)
				after(2 * time.Minute)
			}},
		{name: "reset in the run", ext: tools(echoTool()), steps: []faux.Step{{ToolCalls: call("echo", `{"text":"a"}`).ToolCalls, DelayMS: 60_000}},
			then: func(r *rig, c *durable.Conversation, _ *durable.Submission) {
				_, err := c.Reset(r.ctx, "")
				require.NoError(r.t, err)
				after(2 * time.Minute)
			}},
		{name: "follow-up", steps: []faux.Step{{Text: "one", DelayMS: 60_000}, text("two")}, text: "two",
			then: func(r *rig, c *durable.Conversation, _ *durable.Submission) {
				r.send(c, "next")
				after(2 * time.Minute)
			}},
		{name: "follow-up of a failure", steps: []faux.Step{{Error: &faux.Error{Class: model.ClassQuota}, DelayMS: 60_000}, text("two")}, text: "two",
			then: func(r *rig, c *durable.Conversation, _ *durable.Submission) {
				r.send(c, "next")
				after(2 * time.Minute)
			}},
		{name: "an input after the abort", steps: []faux.Step{hangs("half"), text("two")}, text: "two",
			then: func(r *rig, c *durable.Conversation, s *durable.Submission) {
				abort(r, c, s)
				r.send(c, "next")
			}},
	}
}

func rewrites() durable.Extension {
	return durable.Extension{Name: "x", Hooks: durable.Hooks{AfterResponse: func(_ context.Context, _ *durable.RequestContext, m *model.Message) error {
		m.Content = []model.Block{model.Text("[redacted]")}
		return nil
	}}}
}

// lateClock has timers that do not fire in time.
type lateClock struct{}

func (lateClock) Now() time.Time { return time.Now() }
func (lateClock) AfterFunc(d time.Duration, f func()) durable.Timer {
	return time.AfterFunc(d+10*time.Hour, f)
}

// TestEventOrder runs every scenario and holds the events of the conversation
// and the streams of the first input, early and late, to E17.2 and E17.5.
func TestEventOrder(t *testing.T) {
	t.Parallel()
	for i, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				sc := scenarios()[i] // its channels belong to the bubble
				var exts []durable.Extension
				if sc.ext.Name != "" {
					exts = append(exts, sc.ext)
				}
				r := newRig(t, exts...)
				if sc.setup != nil {
					sc.setup(r)
				}
				r.model.Push(sc.steps...)
				r.open()
				c := r.conversation()
				w := watch(r, c)
				after(0)
				s := r.send(c, "go")
				early := listen(r, s)
				after(30 * time.Second)
				if sc.then != nil {
					sc.then(r, c, s)
				}
				after(30 * time.Minute)
				text, err := w.check()
				require.NoError(t, err)
				require.Equal(t, sc.text, text)
				require.Equal(t, "run_start", strings.SplitN(w.list(durable.EventRunStart, durable.EventRunEnd), " ", 2)[0])

				late := listen(r, s).end()
				require.Equal(t, early.end().text(), late.text(), "early and late reader")
				require.Equal(t, early.results(), late.results(), "early and late reader")
				if r.record(s).Status == durable.SubmissionDone {
					require.Equal(t, r.answer(s), late.text(), "the answer")
				}
			})
		})
	}
}

// A run that faults in the middle of an answer takes back what it showed
// (E17.2, E6.3).
func TestEventOrder_FaultIsVoid(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.store = &refusing{Store: r.history, refuse: func(b *durable.Batch) bool {
			return len(b.Entries) > 0 && b.Entries[0].Kind == durable.KindAssistant
		}}
		r.model.AddRules([]faux.Rule{{Step: slow("never stored")}}, 0)
		r.open()
		c := r.conversation()
		w := watch(r, c)
		after(0)
		s := r.send(c, "go")
		early := listen(r, s)
		after(time.Hour)
		r.unanswered(s, durable.ReasonFaulted)
		require.Empty(t, early.end().text())
		require.Contains(t, w.list(durable.EventMessageStart, durable.EventMessageVoid, durable.EventMessageEnd), "message_void")
		require.NotContains(t, w.list(durable.EventMessageEnd), "message_end")
	})
}

// Somebody who comes late to a run that its tools ended is shown their results
// (E10.5, E17.5).
func TestEventOrder_LateStreamShowsLastResults(t *testing.T) {
	t.Parallel()
	for name, res := range map[string]durable.ToolResult{"terminate": {Terminate: true}, "handoff": {Handoff: "go on here"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			res.Content = []model.Block{model.Text("result")}
			r := newRig(t, tools(tool("end", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) { return res, nil }))).open()
			c := r.conversation()
			r.model.Push(calls("end", "a", "b"), text("next"))
			s := r.send(c, "go")
			r.wait(s)
			require.Equal(t, "next", r.answer(r.send(c, "on")))
			require.Equal(t, []string{"result", "result"}, listen(r, s).end().results())
		})
	}
}
