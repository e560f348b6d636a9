package durable_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// below is a tool that makes conversations and sends inputs to each; then it
// waits for the first of them, or returns at once.
type below struct {
	sends [][]string // inputs of each conversation
	waits bool

	mu   sync.Mutex
	subs []*durable.Submission
}

func (b *below) tool() *durable.Tool {
	return tool("sub", func(ctx context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) {
		ids := make([]durable.ConversationID, len(b.sends))
		err := call.Commit(ctx, func(_ context.Context, tx *durable.Tx) (err error) {
			for i := range ids {
				if ids[i], err = tx.CreateConversation(call.TaskID()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return durable.ToolResult{}, err
		}
		for i, id := range ids {
			c, err := call.Conversation().Engine().Conversation(ctx, id)
			if err != nil {
				return durable.ToolResult{}, err
			}
			for _, text := range b.sends[i] {
				s, err := c.Send(ctx, text)
				if err != nil {
					return durable.ToolResult{}, err
				}
				b.mu.Lock()
				b.subs = append(b.subs, s)
				b.mu.Unlock()
			}
		}
		if b.waits {
			_, err = b.sent()[0].Wait(ctx)
		}
		return durable.TextResult("sent"), err
	})
}

func (b *below) sent() []*durable.Submission {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]*durable.Submission(nil), b.subs...)
}

func (r *rig) within(fn func(ctx context.Context) error) {
	help(r.t)
	ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
	defer cancel()
	require.NoError(r.t, fn(ctx))
}

// An abort reaches inputs that wait in conversations below what it aborts: none
// is left, none starts a run, and the abort ends (E2.7, E7.3, E7.4).
func TestEnding_AbortWithQueueBelow(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		b := &below{sends: [][]string{{"slow work", "follow up", "another"}}, waits: true}
		r := newRig(t, tools(b.tool()))
		r.model.AddRules([]faux.Rule{{When: "go", Step: call("sub", `{"text":""}`)}, {When: "slow work", Step: faux.Step{Text: "w", Wait: make(chan struct{})}}}, 0)
		r.open()
		c := r.conversation()
		s := r.send(c, "go")
		after(time.Minute)
		require.Len(t, b.sent(), 3)
		r.within(func(ctx context.Context) error { _, err := c.Abort(ctx, nil); return err })
		r.unanswered(s, durable.ReasonAborted)
		for _, s := range b.sent() {
			r.unanswered(s, durable.ReasonAborted)
		}
		require.EqualValues(t, 2, r.model.Count(), "requests")
	})
}

// A task that has ended while inputs wait below it is terminal once what had
// begun is done. No run begins below it before that; what would have had to is
// settled. A conversation whose owner is terminal goes on by itself (E2.7,
// E7.1, E7.2).
func TestEnding_TaskEndsWithQueueBelow(t *testing.T) {
	t.Parallel()
	const done, aborted = durable.SubmissionDone, durable.SubmissionUnanswered
	for name, test := range map[string]struct {
		sends [][]string
		ends  []durable.SubmissionStatus
	}{
		"one conversation":                   {[][]string{{"slow work", "follow up"}}, []durable.SubmissionStatus{done, done}},
		"two conversations, one has a queue": {[][]string{{"slow work", "follow up"}, {"slower work"}}, []durable.SubmissionStatus{done, aborted, done}},
		"two conversations, two queues":      {[][]string{{"slow work", "follow up"}, {"slower work", "follow up"}}, []durable.SubmissionStatus{done, aborted, done, done}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				b := &below{sends: test.sends}
				r := newRig(t, tools(b.tool()))
				r.store = memstore.New()
				r.model.AddRules([]faux.Rule{
					{When: "go", Step: call("sub", `{"text":""}`)}, {When: "slow work", Step: faux.Step{Text: "slow", DelayMS: 60_000}},
					{When: "slower work", Step: faux.Step{Text: "slower", DelayMS: 120_000}}, {Step: text("ok")},
				}, 0)
				r.open()
				c := r.conversation()
				s := r.send(c, "go")
				after(time.Hour)
				require.Equal(t, "ok", r.answer(s))
				for i, s := range b.sent() {
					rec := r.wait(s)
					require.Equal(t, test.ends[i], rec.Status, "input %d", i)
					if rec.Status == aborted {
						require.Equal(t, durable.ReasonAborted, rec.Reason)
					}
				}
				live, err := r.store.Tasks(r.ctx, durable.TaskQuery{TreeID: c.ID(), Live: true})
				require.NoError(t, err)
				require.Empty(t, live)
			})
		})
	}
}

// Background work is a boundary for an abort unless it is asked to pass, and
// then it passes at every depth (E7.3, E7.4).
func TestEnding_AbortBackgroundDepth(t *testing.T) {
	t.Parallel()
	for name, background := range map[string]bool{"boundary": false, "asked for": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sleep := sleeper()
			r := newRig(t, kinds(sleep)).open()
			c := r.conversation()
			// A chain: each conversation belongs to a foreground task of the one
			// above and has a task in the background.
			var fore, back []durable.TaskID
			at := c
			for range 3 {
				fore = append(fore, r.start(at, sleep, 0, durable.TaskOptions{}))
				back = append(back, r.start(at, sleep, 0, durable.TaskOptions{Background: true}))
				var id durable.ConversationID
				r.update(at, func(tx *durable.Tx) (err error) {
					id, err = tx.CreateConversation(fore[len(fore)-1])
					return err
				})
				var err error
				at, err = r.engine.Conversation(r.ctx, id)
				require.NoError(t, err)
			}
			r.within(func(ctx context.Context) error {
				_, err := c.Abort(ctx, &durable.AbortParams{Background: background})
				return err
			})
			for _, id := range fore {
				require.Equal(t, durable.TaskTerminal, r.task(id).State.Status)
			}
			for i, id := range back {
				rec := r.task(id)
				require.Equal(t, background, rec.AbortRequested, "depth %d", i)
				require.Equal(t, background, rec.State.Status == durable.TaskTerminal, "depth %d", i)
			}
		})
	}
}

// An abort right behind a send finds its run at every stage of its start
// (E7.4).
func TestEnding_AbortRightAfterSend(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.model.AddRules([]faux.Rule{{Step: faux.Step{Text: "x", Wait: make(chan struct{})}}}, 0)
	r.open()
	for range 300 {
		c := r.conversation()
		s := r.send(c, "hi")
		r.within(func(ctx context.Context) error { _, err := c.Abort(ctx, nil); return err })
		r.unanswered(s, durable.ReasonAborted)
		busy, err := c.Busy(r.ctx)
		require.NoError(t, err)
		require.False(t, busy)
	}
}

// However sends and aborts meet, every input is settled: answered when it came
// behind the last abort, aborted or answered when before (E2.7, E7.4).
func TestEnding_SendAbortRace(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(echoTool()))
	r.model.AddRules([]faux.Rule{{When: "echo: a", Step: text("done")}, {Step: call("echo", `{"text":"a"}`)}}, 0)
	r.open()
	for range 20 {
		c := r.conversation()
		var group sync.WaitGroup
		var mu sync.Mutex
		var subs []*durable.Submission
		var errs []error
		for range 4 {
			group.Go(func() {
				for range 5 {
					s, err := c.Send(r.ctx, "go")
					mu.Lock()
					subs, errs = append(subs, s), append(errs, err)
					mu.Unlock()
				}
			})
		}
		group.Go(func() {
			for range 5 {
				_, err := c.Abort(r.ctx, nil)
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
		group.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		for _, s := range subs {
			if rec := r.wait(s); rec.Status != durable.SubmissionDone {
				require.Equal(t, durable.ReasonAborted, rec.Reason)
			}
		}
		require.Equal(t, "done", r.answer(r.send(c, "go")))
		r.idle(c)
		r.sameAsFresh(c)
	}
}
