package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an engine on a memory store with a scripted model. Its store checks
// every commit, see [history]; what is checked beside that when the test ends
// is in rig.check.
type rig struct {
	t       require.TestingT
	ctx     context.Context
	store   durable.Store // what the engine is given
	history *history
	model   *faux.Provider
	opts    durable.Options
	engine  *durable.Engine
}

func newRig(t *testing.T, exts ...durable.Extension) *rig {
	t.Helper()
	r := makeRig(t, t.Context(), exts...)
	r.opts.Logger = slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	t.Cleanup(r.finish)
	return r
}

// makeRig makes a rig without a cleanup: whoever calls it calls finish.
func makeRig(t require.TestingT, ctx context.Context, exts ...durable.Extension) *rig {
	r := &rig{t: t, ctx: ctx, history: newHistory(memstore.New()), model: faux.New(&faux.Options{Strict: true, KeepRequests: 100_000})}
	r.store = r.history
	models := &model.Set{}
	models.AddProvider("faux", r.model)
	models.AddModel(faux.Model())
	r.opts = durable.Options{
		Models: models, Registry: durable.NewRegistry(exts...),
		Agent:  durable.Agent{Model: &model.Ref{Provider: "faux", ModelID: "faux-1"}},
		Logger: slog.New(slog.DiscardHandler),
	}
	return r
}

// provide replaces the scripted model.
func (r *rig) provide(p model.Provider) *rig {
	r.opts.Models = &model.Set{}
	r.opts.Models.AddProvider("faux", p)
	r.opts.Models.AddModel(faux.Model())
	return r
}

func help(t any) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
}

// open opens the engine; finish closes it.
func (r *rig) open() *rig {
	help(r.t)
	e, err := durable.Open(r.ctx, r.store, &r.opts)
	require.NoError(r.t, err)
	r.engine = e
	return r
}

// close closes the engine, as a program does that ends properly.
func (r *rig) close() {
	help(r.t)
	if r.engine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(r.t, r.engine.Close(ctx))
	r.engine = nil
}

// restart closes the engine and opens another one on the same store.
func (r *rig) restart() {
	help(r.t)
	r.close()
	r.open()
}

// finish closes the engine and checks what every test must leave behind.
func (r *rig) finish() {
	help(r.t)
	r.close()
	r.check()
}

// check checks that no commit broke a promise, and that every request was one
// a strict provider takes (E2.8, E13).
func (r *rig) check() {
	help(r.t)
	require.NoError(r.t, r.history.check())
	for _, rec := range r.history.tasks() {
		parts, err := r.history.Partial(context.Background(), rec.ID)
		require.NoError(r.t, err)
		if rec.State.Status == durable.TaskTerminal {
			require.Empty(r.t, parts, "running output of task %d, which has ended (E12.2)", rec.ID)
		}
	}
	for i, req := range r.model.Requests() {
		require.NoError(r.t, faux.Check(req), "request %d", i)
	}
}

// again returns a handle on a conversation of an earlier engine.
func (r *rig) again(c *durable.Conversation) *durable.Conversation {
	help(r.t)
	c, err := r.engine.Conversation(r.ctx, c.ID())
	require.NoError(r.t, err)
	return c
}

func (r *rig) conversation() *durable.Conversation {
	help(r.t)
	c, err := r.engine.NewConversation(r.ctx, nil)
	require.NoError(r.t, err)
	return c
}

func (r *rig) send(c *durable.Conversation, text string) *durable.Submission {
	help(r.t)
	s, err := c.Send(r.ctx, text)
	require.NoError(r.t, err)
	return s
}

func (r *rig) submit(c *durable.Conversation, text string, when durable.WhenBusy) *durable.Submission {
	help(r.t)
	s, _, err := c.Submit(r.ctx, &durable.SubmitParams{Content: []model.Block{model.Text(text)}, WhenBusy: when})
	require.NoError(r.t, err)
	return s
}

func (r *rig) write(c *durable.Conversation, data string) *durable.Submission {
	help(r.t)
	s, _, err := c.Submit(r.ctx, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: note(data)})
	require.NoError(r.t, err)
	return s
}

// note is an entry of a host's kind that the model does not see.
func note(data string) *durable.EntrySpec {
	raw, _ := json.Marshal(data)
	return &durable.EntrySpec{Kind: "test.note", Data: raw}
}

func (r *rig) wait(s *durable.Submission) durable.SubmissionRecord {
	help(r.t)
	ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
	defer cancel()
	rec, err := s.Wait(ctx)
	require.NoError(r.t, err)
	return rec
}

// record returns a submission as it is now, by the engine of now.
func (r *rig) record(s *durable.Submission) durable.SubmissionRecord {
	help(r.t)
	s, err := r.engine.Submission(r.ctx, s.ID())
	require.NoError(r.t, err)
	rec, err := s.Record(r.ctx)
	require.NoError(r.t, err)
	return rec
}

func (r *rig) answer(s *durable.Submission) string {
	help(r.t)
	rec := r.wait(s)
	require.Equal(r.t, durable.SubmissionDone, rec.Status, "%s %s", rec.Reason, rec.Detail)
	m, err := s.Answer(r.ctx)
	require.NoError(r.t, err)
	return m.Text()
}

// unanswered waits for a submission that must end without an answer.
func (r *rig) unanswered(s *durable.Submission, reason string) durable.SubmissionRecord {
	help(r.t)
	rec := r.wait(s)
	require.Equal(r.t, durable.SubmissionUnanswered, rec.Status)
	require.Equal(r.t, reason, rec.Reason, "%s", rec.Detail)
	return rec
}

// kinds lists the entries of a conversation, for short comparisons.
func (r *rig) kinds(c *durable.Conversation) []string {
	help(r.t)
	var out []string
	for _, e := range r.entries(c) {
		out = append(out, e.Kind)
	}
	return out
}

func (r *rig) entries(c *durable.Conversation) []durable.Entry {
	help(r.t)
	entries, err := c.Entries(r.ctx, durable.EntryQuery{})
	require.NoError(r.t, err)
	return entries
}

func (r *rig) task(id durable.TaskID) durable.TaskRecord {
	help(r.t)
	rec, err := r.engine.Task(r.ctx, id)
	require.NoError(r.t, err)
	return rec
}

func (r *rig) update(c *durable.Conversation, fn func(tx *durable.Tx) error) {
	help(r.t)
	require.NoError(r.t, c.Update(r.ctx, func(_ context.Context, tx *durable.Tx) error { return fn(tx) }))
}

// sameAsFresh compares what the engine has in memory of an idle conversation
// with what another engine reads from the store.
func (r *rig) sameAsFresh(c *durable.Conversation) {
	help(r.t)
	opts := r.opts
	fresh, err := durable.Open(r.ctx, r.store, &opts)
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, fresh.Close(context.Background())) }()
	other, err := fresh.Conversation(r.ctx, c.ID())
	require.NoError(r.t, err)
	same := func(what string, a, b any) {
		help(r.t)
		if equalJSON(a, b) {
			return
		}
		require.Empty(r.t, cmp.Diff(a, b, cmpopts.EquateEmpty()), "memory and store differ in %s", what)
	}
	x, err := c.Context(r.ctx)
	require.NoError(r.t, err)
	y, err := other.Context(r.ctx)
	require.NoError(r.t, err)
	same("the context", x, y)
	same("the snapshot", r.snapshot(c), r.snapshot(other))
}

// wellFormed checks that a strict provider would take the next request,
// whatever happened to the conversation before (E2.8, E13).
func (r *rig) wellFormed(c *durable.Conversation) {
	help(r.t)
	messages, err := c.Context(r.ctx)
	require.NoError(r.t, err)
	messages = append(messages, model.UserMessage("next", time.Now()))
	require.NoError(r.t, faux.Check(&model.Request{Model: faux.Model(), MaxOutputTokens: 1000, Messages: messages}))
}

// snapshot returns what a new watcher is given first.
func (r *rig) snapshot(c *durable.Conversation) durable.Snapshot {
	help(r.t)
	for ev, err := range c.Events(r.ctx, "") {
		require.NoError(r.t, err)
		require.Equal(r.t, durable.EventSnapshot, ev.Type)
		return ev.Data.(durable.Snapshot)
	}
	require.FailNow(r.t, "no snapshot")
	return durable.Snapshot{}
}

// bubble runs fn with virtual time and the end of all goroutines checked. What
// a *rapid.T throws within goes on outside, since rapid waits for it there.
func bubble(t *testing.T, fn func(t *testing.T)) {
	t.Helper()
	var failed any
	synctest.Test(t, func(t *testing.T) {
		defer func() { failed = recover() }()
		fn(t)
	})
	if failed == nil {
		return
	}
	// rapid tells failures apart by the place they come from.
	if fmt.Sprintf("%T", failed) == "rapid.invalidData" {
		passOn(failed)
	}
	panic(failed)
}

func passOn(invalid any) { panic(invalid) }

// after lets virtual time pass, and what it sets off come to rest.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

func text(s string) faux.Step { return faux.Step{Text: s} }

func call(name, args string) faux.Step {
	return faux.Step{ToolCalls: []faux.ToolCall{{Name: name, Arguments: json.RawMessage(args)}}}
}

// calls is an answer with several calls of one tool, each {"text": arg}.
func calls(name string, args ...string) faux.Step {
	var s faux.Step
	for _, a := range args {
		s.ToolCalls = append(s.ToolCalls, faux.ToolCall{Name: name, Arguments: json.RawMessage(fmt.Sprintf(`{"text":%q}`, a))})
	}
	return s
}

func failure(class model.Class) faux.Step {
	return faux.Step{Error: &faux.Error{Class: class, Message: "scripted"}}
}

type textArgs struct {
	Text string `json:"text"`
}

type echoArgs = textArgs

func echoTool() *durable.Tool {
	return durable.NewTool(durable.ToolSpec{Name: "echo", Description: "Says text."},
		func(_ context.Context, _ *durable.ToolCall, a echoArgs) (durable.ToolResult, error) {
			return durable.TextResult("echo: " + a.Text), nil
		})
}

// tools wraps tools in an extension.
func tools(ts ...*durable.Tool) durable.Extension {
	return durable.Extension{Name: "x", Tools: ts}
}

// tool makes a tool that takes a text.
func tool(name string, fn func(ctx context.Context, call *durable.ToolCall, text string) (durable.ToolResult, error)) *durable.Tool {
	return toolOf(durable.ToolSpec{Name: name}, fn)
}

func toolOf(spec durable.ToolSpec, fn func(ctx context.Context, call *durable.ToolCall, text string) (durable.ToolResult, error)) *durable.Tool {
	spec.Description = "For tests."
	return durable.NewTool(spec, func(ctx context.Context, call *durable.ToolCall, a textArgs) (durable.ToolResult, error) {
		return fn(ctx, call, a.Text)
	})
}
