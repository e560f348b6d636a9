package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is an engine on a memory store with a scripted model.
type rig struct {
	t      *testing.T
	store  durable.Store
	model  *faux.Provider
	opts   durable.Options
	engine *durable.Engine
}

func newRig(t *testing.T, exts ...durable.Extension) *rig {
	t.Helper()
	r := &rig{t: t, store: memstore.New(), model: faux.New(&faux.Options{Strict: true})}
	models := &model.Set{}
	models.AddProvider("faux", r.model)
	models.AddModel(faux.Model())
	r.opts = durable.Options{
		Models: models, Registry: durable.NewRegistry(exts...),
		Agent:  durable.Agent{Model: &model.Ref{Provider: "faux", ModelID: "faux-1"}},
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	return r
}

// open opens the engine, after an earlier one was closed also again.
func (r *rig) open() *rig {
	r.t.Helper()
	e, err := durable.Open(r.t.Context(), r.store, &r.opts)
	require.NoError(r.t, err)
	r.engine = e
	r.t.Cleanup(func() { require.NoError(r.t, e.Close(context.Background())) })
	return r
}

func (r *rig) conversation() *durable.Conversation {
	r.t.Helper()
	c, err := r.engine.NewConversation(r.t.Context(), nil)
	require.NoError(r.t, err)
	return c
}

func (r *rig) send(c *durable.Conversation, text string) *durable.Submission {
	r.t.Helper()
	s, err := c.Send(r.t.Context(), text)
	require.NoError(r.t, err)
	return s
}

func (r *rig) wait(s *durable.Submission) durable.SubmissionRecord {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 30*time.Second)
	defer cancel()
	rec, err := s.Wait(ctx)
	require.NoError(r.t, err)
	return rec
}

func (r *rig) answer(s *durable.Submission) string {
	r.t.Helper()
	rec := r.wait(s)
	require.Equal(r.t, durable.SubmissionDone, rec.Status, "%s %s", rec.Reason, rec.Detail)
	m, err := s.Answer(r.t.Context())
	require.NoError(r.t, err)
	return m.Text()
}

// kinds lists the entries of a conversation, for short comparisons.
func (r *rig) kinds(c *durable.Conversation) []string {
	r.t.Helper()
	entries, err := c.Entries(r.t.Context(), durable.EntryQuery{})
	require.NoError(r.t, err)
	var out []string
	for _, e := range entries {
		out = append(out, e.Kind)
	}
	return out
}

func (r *rig) entries(c *durable.Conversation) []durable.Entry {
	r.t.Helper()
	entries, err := c.Entries(r.t.Context(), durable.EntryQuery{})
	require.NoError(r.t, err)
	return entries
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) { w.t.Logf("%s", p); return len(p), nil }

func text(s string) faux.Step { return faux.Step{Text: s} }

func call(name, args string) faux.Step {
	return faux.Step{ToolCalls: []faux.ToolCall{{Name: name, Arguments: json.RawMessage(args)}}}
}

type echoArgs struct {
	Text string `json:"text"`
}

func echoTool() *durable.Tool {
	return durable.NewTool(durable.ToolSpec{Name: "echo", Description: "Says text."},
		func(_ context.Context, _ *durable.ToolCall, a echoArgs) (durable.ToolResult, error) {
			return durable.TextResult("echo: " + a.Text), nil
		})
}

func TestEngine_PlainTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	r.model.Push(text("hello back"))
	require.Equal(t, "hello back", r.answer(r.send(c, "hello")))
	require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
	r.model.Push(text("again"))
	require.Equal(t, "again", r.answer(r.send(c, "and again")))
	require.Len(t, r.model.Requests()[1].Messages, 3)
}

func TestEngine_ToolRound(t *testing.T) {
	t.Parallel()
	r := newRig(t, durable.Extension{Name: "x", Tools: []*durable.Tool{echoTool()}}).open()
	c := r.conversation()
	r.model.Push(call("echo", `{"text":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.assistant"}, r.kinds(c))
	require.Equal(t, "echo: a", r.entries(c)[3].Model[0].Text())
}

func TestEngine_ManyConversations(t *testing.T) {
	t.Parallel()
	r := newRig(t, durable.Extension{Name: "x", Tools: []*durable.Tool{echoTool()}})
	r.model.AddRules([]faux.Rule{{When: "go", Step: call("echo", `{"text":"a"}`)}, {When: "echo: a", Step: text("done")}}, 1000)
	r.open()
	var subs []*durable.Submission
	for i := range 50 {
		subs = append(subs, r.send(r.conversation(), fmt.Sprintf("go %d", i)))
	}
	for _, s := range subs {
		require.Equal(t, "done", r.answer(s))
	}
}
