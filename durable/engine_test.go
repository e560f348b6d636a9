package durable_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

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
	r.sameAsFresh(c)
}

func TestEngine_ToolRound(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(echoTool())).open()
	c := r.conversation()
	r.model.Push(call("echo", `{"text":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.assistant"}, r.kinds(c))
	require.Equal(t, "echo: a", r.entries(c)[3].Model[0].Text())
	r.sameAsFresh(c)
}

func TestEngine_ManyConversations(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(echoTool()))
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

// readings counts how often trees are read from the store.
type readings struct {
	durable.Store
	n atomic.Int32
}

func (s *readings) TreeConversations(ctx context.Context, tree durable.ConversationID) ([]durable.ConversationRecord, error) {
	s.n.Add(1)
	return s.Store.TreeConversations(ctx, tree)
}

// An idle tree leaves memory after its retention; one with a watcher, or with
// work that waits, stays (E18).
func TestEngine_Retention(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		kind := sleeper()
		r := newRig(t, kinds(kind))
		store := &readings{Store: r.history}
		r.store = store
		r.opts.Retention = time.Minute
		r.model.AddRules([]faux.Rule{{Step: text("answer")}}, 0)
		r.open()
		idle, watched, waits := r.conversation(), r.conversation(), r.conversation()
		for _, c := range []*durable.Conversation{idle, watched, waits} {
			r.answer(r.send(c, "go"))
		}
		r.start(waits, kind, 0, durable.TaskOptions{Background: true})
		ctx, cancel := context.WithCancel(r.ctx)
		go func() {
			for _, err := range watched.Events(ctx, "") {
				if err != nil {
					return // the watching is over
				}
			}
		}()
		synctest.Wait()
		reads := func(use func()) int32 {
			before := store.n.Load()
			use()
			return store.n.Load() - before
		}
		after(50 * time.Second)
		require.Zero(t, reads(func() { r.answer(r.send(idle, "go")) }), "still in memory")
		after(50 * time.Second)
		require.Zero(t, reads(func() { r.answer(r.send(idle, "go")) }), "its use has kept it")
		after(5 * time.Minute)
		require.EqualValues(t, 1, reads(func() { r.answer(r.send(idle, "go")) }), "it had left memory")
		require.Zero(t, reads(func() { r.answer(r.send(watched, "go")) }))
		require.Zero(t, reads(func() { r.answer(r.send(waits, "go")) }))
		cancel()
		after(5 * time.Minute)
		require.EqualValues(t, 1, reads(func() { r.answer(r.send(watched, "go")) }))
		r.sameAsFresh(idle)
		r.sameAsFresh(watched)
	})
}

// Many interrupted runs are all resumed and answered after one restart, and
// conversations with nothing to do cost nothing (E2.9, E18).
func TestEngine_Recovery(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.Logger = slog.New(slog.DiscardHandler)
		store := &readings{Store: r.history}
		r.store = store
		const n = 2500 // more than a page of trees
		ready := make(chan struct{})
		answer := faux.Step{Text: "answer", Wait: ready, Usage: &model.Usage{}}
		r.model = faux.New(&faux.Options{KeepRequests: -1, Handler: func(*model.Request) (faux.Step, bool) { return answer, true }})
		r.provide(r.model)
		r.open()
		for range 200 {
			r.conversation() // idle
		}
		var subs []*durable.Submission
		for range n {
			subs = append(subs, r.send(r.conversation(), "go"))
		}
		synctest.Wait()
		store.n.Store(0)
		r.restart()
		require.EqualValues(t, n, store.n.Load(), "trees that were read at open")
		close(ready)
		for _, s := range subs {
			s, err := r.engine.Submission(r.ctx, s.ID())
			require.NoError(t, err)
			require.Equal(t, "answer", r.answer(s))
		}
	})
}

// A closed engine does nothing any more, and says so; closing it again waits in
// the same way.
func TestEngine_Close(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		slow := tool("slow", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
			<-let
			return durable.TextResult("late"), nil
		})
		r := newRig(t, tools(slow)).open()
		c := r.conversation()
		r.model.Push(calls("slow", "a"))
		s := r.send(c, "go")
		after(time.Second)
		e := r.engine
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		require.ErrorIs(t, e.Close(ctx), context.DeadlineExceeded)
		for name, call := range map[string]func() error{
			"NewConversation": func() error { _, err := e.NewConversation(r.ctx, nil); return err },
			"Send":            func() error { _, err := c.Send(r.ctx, "a"); return err },
			"Update":          func() error { return c.Update(r.ctx, func(context.Context, *durable.Tx) error { return nil }) },
			"Abort":           func() error { _, err := c.Abort(r.ctx, nil); return err },
			"Wait":            func() error { _, err := s.Wait(r.ctx); return err },
			"Busy":            func() error { _, err := c.Busy(r.ctx); return err },
			"Events":          func() error { return first(c.Events(r.ctx, "")) },
			"Stream":          func() error { return first(s.Stream(r.ctx)) },
			"Signal":          func() error { return e.Signal(r.ctx, r.record(s).TaskID, "x", 1) },
		} {
			require.ErrorIs(t, call(), durable.ErrClosed, name)
		}
		close(let)
		require.NoError(t, e.Close(r.ctx))
		require.NoError(t, e.Close(r.ctx))
		r.model.Push(text("done"))
		r.open()
		after(time.Second)
		require.Equal(t, durable.SubmissionDone, r.record(s).Status)
		_, m := r.result(r.again(c))
		require.Equal(t, "late", m.Text(), "what had been done is recorded")
	})
}

func first[T any](seq iter.Seq2[T, error]) error {
	for _, err := range seq {
		return err
	}
	return nil
}

// What does not exist is ErrNotFound.
func TestEngine_NotFound(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	for name, call := range map[string]func() error{
		"Conversation": func() error { _, err := r.engine.Conversation(r.ctx, 1<<40); return err },
		"Submission":   func() error { _, err := r.engine.Submission(r.ctx, 1<<40); return err },
		"Task":         func() error { _, err := r.engine.Task(r.ctx, 1<<40); return err },
		"Update": func() error {
			return r.engine.Update(r.ctx, 1<<40, func(context.Context, *durable.Tx) error { return nil })
		},
	} {
		require.ErrorIs(t, call(), durable.ErrNotFound, name)
	}
}

// Wrong options are refused by name.
func TestEngine_Options(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]*durable.Options{
		"Retry.Base": {Retry: durable.RetryPolicy{Base: -1}}, "Retry.Cap": {Retry: durable.RetryPolicy{Cap: -1}},
		"ConcurrentRuns": {ConcurrentRuns: -1}, "PartialInterval": {PartialInterval: -1}, "Retention": {Retention: -1},
		"Agent.OutputTokens": {Agent: durable.Agent{OutputTokens: -1}}, "ToolMode": {ToolMode: "odd"},
		"Agent.ThinkingLevel": {Agent: durable.Agent{ThinkingLevel: "odd"}},
	} {
		_, err := durable.Open(t.Context(), memstore.New(), opts)
		require.ErrorIs(t, err, durable.ErrInvalid)
		require.ErrorContains(t, err, name)
	}
	e, err := durable.Open(t.Context(), memstore.New(), nil)
	require.NoError(t, err)
	require.NoError(t, e.Close(t.Context()))
}

// A claim makes a conversation once over the whole store; who comes second is
// told who won (E4.1).
func TestEngine_Claim(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	var wg sync.WaitGroup
	ids := make([]durable.ConversationID, 20)
	won := atomic.Int32{}
	for i := range ids {
		wg.Go(func() {
			c, err := r.engine.NewConversation(r.ctx, &durable.ConversationParams{
				Claim: &durable.Claim{Scope: "request", Key: "a"},
				Init: func(_ context.Context, tx *durable.Tx, id durable.ConversationID) error {
					_, _, err := tx.Submit(id, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: note("first")})
					return err
				},
			})
			if err == nil {
				won.Add(1)
				ids[i] = c.ID()
				return
			}
			if taken, ok := errors.AsType[*durable.ConflictError](err); ok {
				ids[i] = durable.ConversationID(taken.Claim.Value)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, won.Load())
	for _, id := range ids {
		require.Equal(t, ids[0], id)
	}
	list, err := r.engine.Conversations(r.ctx, durable.ConversationQuery{Limit: 100})
	require.NoError(t, err)
	require.Len(t, list, 1)
	c, err := r.engine.Conversation(r.ctx, ids[0])
	require.NoError(t, err)
	require.Equal(t, []string{"test.note"}, r.kinds(c))
}

// Entries come in pages, in both directions.
func TestConversation_Entries(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	head, err := c.Head(r.ctx)
	require.NoError(t, err)
	require.Zero(t, head)
	var all []durable.EntryID
	for i := range 10 {
		all = append(all, r.record(r.write(c, fmt.Sprint(i))).EntryID)
	}
	ids := func(q durable.EntryQuery) (out []durable.EntryID) {
		t.Helper()
		entries, err := c.Entries(r.ctx, q)
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, e.ID)
		}
		return out
	}
	require.Equal(t, all, ids(durable.EntryQuery{}))
	require.Equal(t, all[3:], ids(durable.EntryQuery{From: all[3]}))
	require.Equal(t, all[3:5], ids(durable.EntryQuery{From: all[3], Limit: 2}))
	require.Equal(t, all[:4], ids(durable.EntryQuery{To: all[3]}))
	require.Equal(t, []durable.EntryID{all[9], all[8]}, ids(durable.EntryQuery{Descending: true, Limit: 2}))
	require.Equal(t, []durable.EntryID{all[3], all[2]}, ids(durable.EntryQuery{Descending: true, To: all[3], From: all[2]}))
	head, err = c.Head(r.ctx)
	require.NoError(t, err)
	require.Equal(t, all[9], head)
}

// Edits change what the model sees of earlier entries, not what is stored; the
// newest one of a target wins (E3, E13).
func TestConversation_Edits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.model.AddRules([]faux.Rule{{Step: text("ok")}}, 0)
	r.open()
	c := r.conversation()
	r.answer(r.send(c, "secret"))
	r.answer(r.send(c, "boring"))
	target := r.entries(c)
	edit := func(edits ...durable.Edit) {
		s, _, err := c.Submit(r.ctx, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "test.edit", Edits: edits}})
		require.NoError(t, err)
		require.Equal(t, durable.SubmissionDone, r.wait(s).Status)
	}
	edit(durable.Edit{Target: target[0].ID, Action: durable.EditReplace, Messages: []model.Message{model.UserMessage("[redacted]", time.Time{})}},
		durable.Edit{Target: target[2].ID, Action: durable.EditOmit}, durable.Edit{Target: target[3].ID, Action: durable.EditOmit})
	said := func() (out []string) {
		reqs := r.model.Requests()
		for _, m := range reqs[len(reqs)-1].Messages {
			out = append(out, m.Text())
		}
		return out
	}
	r.answer(r.send(c, "next"))
	require.Equal(t, []string{"[redacted]", "ok", "next"}, said())
	edit(durable.Edit{Target: target[0].ID, Action: durable.EditReplace, Messages: []model.Message{model.UserMessage("[gone]", time.Time{})}})
	r.answer(r.send(c, "last"))
	require.Equal(t, []string{"[gone]", "ok", "next", "ok", "last"}, said())
	require.Equal(t, "secret", r.entries(c)[0].Model[0].Text(), "the history stays")
	r.sameAsFresh(c)
	r.wellFormed(c)
}

// Close waits for the commits of callers that are under way, so that nothing of
// this engine is written once another one has been opened.
func TestEngine_CloseWaitsForCommits(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		faulty := storetest.Faulty(r.history)
		let := make(chan struct{})
		faulty.Before = func(n int, _ *durable.Batch) {
			if n == 2 {
				<-let
			}
		}
		r.store = faulty
		r.open()
		c := r.conversation()
		updated, closed := make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.Send(r.ctx, "go"); updated <- err }()
		synctest.Wait()
		go func() { closed <- r.engine.Close(r.ctx) }()
		after(time.Hour)
		require.Empty(t, closed)
		close(let)
		require.NoError(t, <-closed)
		require.NoError(t, <-updated)
		r.model.Push(text("answer"))
		r.open()
		after(time.Second)
		require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(r.again(c)))
	})
}
