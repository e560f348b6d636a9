package durable_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

// A scripted run on a store one of whose commits fails, for every commit and
// every way to fail: the run ends properly, no tool that must not runs twice,
// nothing is stored twice, and memory and store say the same (E2.1, E2.2, E2.5
// to E2.9, E4.3).
func TestFault_EveryCommit(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]storetest.Fault{
		"rejected": storetest.Rejected, "store full": storetest.Full, "lost": storetest.Lost,
		"applied unseen": storetest.Applied, "store failed": storetest.Failed,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, step := 0, 1
			if testing.Short() {
				step = 5
			}
			for reached := true; reached; {
				n += step
				bubble(t, func(t *testing.T) {
					s := newFaultScript(t)
					s.faulty.FailCommit(n, fault)
					s.run()
					reached = s.faulty.Commits() >= n
				})
				if t.Failed() {
					t.Fatalf("with commit %d", n)
				}
			}
			require.Greater(t, n, 30, "commits of the script")
		})
	}
}

// faultScript drives an engine through about everything it does, and does not
// give up when a call fails.
type faultScript struct {
	t      *testing.T
	r      *rig
	faulty *storetest.FaultyStore
	c      *durable.Conversation
	group  *durable.Task[int, faultState, string]

	let chan struct{} // closed when calls of hold may return

	mu     sync.Mutex
	starts map[string]int
	failed map[string]bool // requests that have failed once
}

// faultState is the checkpoint of a task that owns others.
type faultState struct {
	Child durable.TaskID
	Conv  durable.ConversationID
}

func newFaultScript(t *testing.T) *faultScript {
	s := &faultScript{
		t: t, starts: map[string]int{}, failed: map[string]bool{}, let: make(chan struct{}),
	}
	spec := func(name string, replay durable.Replay) durable.ToolSpec {
		return durable.ToolSpec{Name: name, Replay: replay}
	}
	s.group = s.groupTask()
	s.r = newRig(t, durable.Extension{
		Name: "x", Tasks: []durable.TaskDefinition{s.group},
		Tools: []*durable.Tool{toolOf(spec("hold", durable.ReplayNever), s.hold), toolOf(spec("count", durable.ReplaySafe), s.count)},
	})
	s.r.opts.Logger = slog.New(slog.DiscardHandler)
	s.faulty = storetest.Faulty(s.r.history)
	s.r.store = s.faulty
	s.r.model = faux.New(&faux.Options{Strict: true, Handler: s.answer})
	s.r.provide(s.r.model)
	s.r.open()
	return s
}

// groupTask owns a task that must end and a conversation with a run of its own.
func (s *faultScript) groupTask() *durable.Task[int, faultState, string] {
	type run = durable.TaskRun[int, faultState, string]
	type step = durable.Step[faultState, string]
	var kind *durable.Task[int, faultState, string]
	kind = durable.NewTask(durable.TaskSpec[int, faultState, string]{
		Name: "test.group", Start: "begin",
		Phases: map[string]func(context.Context, *run) error{
			"begin": func(ctx context.Context, r *run) error {
				if r.Input() == 0 { // the child
					return r.Commit(ctx, func(context.Context, *durable.Tx) (step, error) {
						return r.Wait("end", faultState{}, durable.WaitOptions{Deadline: time.Now().Add(time.Second)}), nil
					})
				}
				return r.Commit(ctx, func(_ context.Context, tx *durable.Tx) (step, error) {
					child, err := durable.StartTask(tx, kind, 0, durable.TaskOptions{Conversation: r.Conversation().ID(), Owner: r.ID()})
					if err != nil {
						return step{}, err
					}
					conv, err := tx.CreateConversation(r.ID())
					if err != nil {
						return step{}, err
					}
					_, _, err = tx.Submit(conv, &durable.SubmitParams{Content: []model.Block{model.Text("sub question")}})
					return r.Wait("end", faultState{child, conv}, durable.WaitOptions{On: []durable.TaskID{child}}), err
				})
			},
			"end": func(ctx context.Context, r *run) error {
				return r.Commit(ctx, func(context.Context, *durable.Tx) (step, error) { return r.Complete("grouped"), nil })
			},
		},
	})
	return kind
}

func (s *faultScript) start(name, arg string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.starts[name+" "+arg]++
}

// hold prints something and then waits for the script.
func (s *faultScript) hold(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
	s.start("hold", arg)
	call.Output([]byte("holding " + arg + "\n"))
	select {
	case <-s.let:
		return durable.TextResult("held " + arg), nil
	case <-ctx.Done():
		return durable.ToolResult{}, context.Cause(ctx)
	}
}

func (s *faultScript) count(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
	s.start("count", arg)
	var drawn string
	if err := call.Memo(ctx, "drawn", arg+" once", &drawn); err != nil {
		return durable.ToolResult{}, err
	}
	call.Output([]byte("one\n"))
	<-time.After(300 * time.Millisecond)
	call.Output([]byte("two\n"))
	return durable.TextResult("counted " + drawn), nil
}

// lastSaid returns the last message that is not the system's.
func lastSaid(req *model.Request) model.Message {
	for i := len(req.Messages) - 1; i >= 0; i-- {
		if req.Messages[i].Role != model.RoleSystem {
			return req.Messages[i]
		}
	}
	return model.Message{}
}

// answer says what the model answers, by what it is asked.
func (s *faultScript) answer(req *model.Request) (faux.Step, bool) {
	last := lastSaid(req)
	said := last.Text()
	if last.Role == model.RoleToolResult {
		said = "results"
	}
	slow := func(text string) faux.Step { return faux.Step{Text: text, ChunkSize: 9, ChunkMS: 120} }
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case strings.Contains(said, "question"):
		return slow("the sub answer"), true
	case strings.Contains(said, "use tools"):
		st := slow("I will use them.")
		st.ToolCalls = append(calls("hold", "a").ToolCalls, calls("count", "b").ToolCalls...)
		return st, true
	case strings.Contains(said, "steer") && !s.failed["steer"]:
		s.failed["steer"] = true
		st := slow("this will not stand")
		st.Error = &faux.Error{Class: model.ClassOverloaded, Message: "scripted"}
		return st, true
	case strings.Contains(said, "never"):
		return faux.Step{Text: "an endless answer ", ChunkSize: 3, ChunkMS: 1000_000}, true
	}
	return slow("answer to " + said), true
}

// do repeats a call until it succeeds, and opens the engine anew after the
// store has failed.
func (s *faultScript) do(fn func() error) {
	for range 50 {
		err := fn()
		switch {
		case err == nil:
			return
		case errors.Is(err, durable.ErrStoreFailed):
			// What the disk has is what the history saw.
			s.r.store = s.r.history
			s.r.restart()
			if s.c != nil {
				s.c = s.r.again(s.c)
			}
		default:
			require.True(s.t, errors.Is(err, storetest.ErrInjected), "%v", err)
			after(time.Second)
		}
	}
	require.FailNow(s.t, "does not succeed")
}

func (s *faultScript) submit(p durable.SubmitParams, said string) *durable.Submission {
	p.RequestID = said
	if p.Type == "" {
		p.Content = []model.Block{model.Text(said)}
	}
	var sub *durable.Submission
	s.do(func() (err error) { sub, _, err = s.c.Submit(s.r.ctx, &p); return err })
	return sub
}

func (s *faultScript) settled(sub *durable.Submission) (rec durable.SubmissionRecord) {
	s.do(func() error {
		own, err := s.r.engine.Submission(s.r.ctx, sub.ID())
		require.NoError(s.t, err)
		ctx, cancel := context.WithTimeout(s.r.ctx, time.Hour)
		defer cancel()
		rec, err = own.Wait(ctx)
		return err
	})
	return rec
}

func (s *faultScript) run() {
	t := s.t
	s.do(func() (err error) {
		c, err := s.r.engine.NewConversation(s.r.ctx, &durable.ConversationParams{Claim: &durable.Claim{Scope: "test", Key: "conversation"}})
		if taken, ok := errors.AsType[*durable.ConflictError](err); ok {
			c, err = s.r.engine.Conversation(s.r.ctx, durable.ConversationID(taken.Claim.Value))
		}
		if err == nil {
			s.c = c
		}
		return err
	})
	first := s.submit(durable.SubmitParams{}, "use tools")
	after(10 * time.Second)
	// The tools run now, or did: the round goes on when hold is let go.
	steer := s.submit(durable.SubmitParams{WhenBusy: durable.Steer}, "steer")
	follow := s.submit(durable.SubmitParams{}, "follow up")
	write := s.submit(durable.SubmitParams{Type: durable.SubmissionWrite, Entry: note("n")}, "write")
	close(s.let)
	for _, sub := range []*durable.Submission{first, steer, follow, write} {
		rec := s.settled(sub)
		require.Equal(t, durable.SubmissionDone, rec.Status, "%s: %s %s", rec.RequestID, rec.Reason, rec.Detail)
		if rec.Type == durable.SubmissionInput {
			m, err := sub.Answer(s.r.ctx)
			if err == nil { // else of an engine that is gone
				require.Contains(t, []string{"answer to steer", "answer to follow up", "answer to use tools", "answer to results"}, m.Text())
			}
		}
	}

	var group durable.TaskID
	s.do(func() error {
		return s.c.Update(s.r.ctx, func(_ context.Context, tx *durable.Tx) (err error) {
			group, err = durable.StartTask(tx, s.group, 1, durable.TaskOptions{Conversation: s.c.ID(), Background: true})
			return err
		})
	})

	never := s.submit(durable.SubmitParams{}, "never")
	after(10 * time.Second)
	s.do(func() error { _, err := s.c.Abort(s.r.ctx, nil); return err })
	rec := s.settled(never)
	require.Equal(t, durable.SubmissionUnanswered, rec.Status)
	require.Equal(t, durable.ReasonAborted, rec.Reason)
	last := s.submit(durable.SubmitParams{}, "the last")
	require.Equal(t, durable.SubmissionDone, s.settled(last).Status)
	after(time.Hour)
	if s.r.engine.Store() != s.r.history {
		select {
		case <-s.r.engine.Failed():
			s.do(func() error { return durable.ErrStoreFailed })
			after(time.Hour)
		default:
		}
	}

	o := s.r.task(group).State.Outcome
	require.NotNil(t, o, "the group ended")
	require.Equal(t, durable.OutcomeCompleted, o.Status, "%s", mustJSON(o))
	s.mu.Lock()
	require.LessOrEqual(t, s.starts["hold a"], 1, "starts of a tool that must not run twice (E2.6)")
	require.GreaterOrEqual(t, s.starts["count b"], 1)
	s.mu.Unlock()
	for _, id := range s.r.history.conversations() {
		c, err := s.r.engine.Conversation(s.r.ctx, id)
		require.NoError(t, err)
		s.r.sameAsFresh(c)
		s.r.wellFormed(c)
	}
	require.Len(t, s.r.history.conversations(), 2)
	for _, sub := range s.r.history.submissions() {
		require.NotNil(t, sub.SettledAt, sub.RequestID)
	}
}
