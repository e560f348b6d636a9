package durable_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// waiter is a task that waits for the task that is its input, as opts say.
func waiter(opts durable.WaitOptions) *durable.Task[int, int, int] {
	return phases("test.waiter", map[string]func(context.Context, *stepRun) error{
		"a": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(*durable.Tx) (aStep, error) {
				o := opts
				if run.Input() != 0 {
					o.On = []durable.TaskID{durable.TaskID(run.Input())}
				}
				return run.Wait("b", 0, o), nil
			})
		},
		"b": func(ctx context.Context, run *stepRun) error { return complete(ctx, run, 0) },
	})
}

// A wait that could never end, or that is not understood, is refused (E6.5).
func TestWait_Refused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts  durable.WaitOptions
		on    func(r *rig, c *durable.Conversation, sleep *durable.Task[int, int, int]) durable.TaskID
		wrong string
	}{
		"task of another tree": {
			on: func(r *rig, _ *durable.Conversation, sleep *durable.Task[int, int, int]) durable.TaskID {
				return r.start(r.conversation(), sleep, 0, durable.TaskOptions{})
			},
			wrong: "another tree",
		},
		"missing task": {
			on:    func(*rig, *durable.Conversation, *durable.Task[int, int, int]) durable.TaskID { return 1 << 40 },
			wrong: "not found",
		},
		"unknown policy": {
			opts: durable.WaitOptions{Policy: "whenever"},
			on: func(r *rig, c *durable.Conversation, sleep *durable.Task[int, int, int]) durable.TaskID {
				return r.start(c, sleep, 0, durable.TaskOptions{Background: true})
			},
			wrong: "policy",
		},
		"failFast on a task it does not own": {
			opts: durable.WaitOptions{Policy: durable.FailFast},
			on: func(r *rig, c *durable.Conversation, sleep *durable.Task[int, int, int]) durable.TaskID {
				return r.start(c, sleep, 0, durable.TaskOptions{Background: true})
			},
			wrong: "does not own",
		},
		"nothing": {
			on:    func(*rig, *durable.Conversation, *durable.Task[int, int, int]) durable.TaskID { return 0 },
			wrong: "wait for nothing",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sleep, wait := sleeper(), waiter(test.opts)
			r := newRig(t, kinds(sleep, wait)).open()
			c := r.conversation()
			id := r.start(c, wait, int(test.on(r, c, sleep)), durable.TaskOptions{})
			r.idle(c)
			o := r.task(id).State.Outcome
			require.Equal(t, durable.OutcomeFaulted, o.Status)
			require.Contains(t, o.Error.Message, test.wrong)
		})
	}
}

// failFast sees a child that failed before the wait began and that its owner
// has let go of since (E6.5).
func TestWait_FailFastSeesEarlierFailure(t *testing.T) {
	t.Parallel()
	failing := phases("test.failing", map[string]func(context.Context, *stepRun) error{
		"a": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Fail(errors.New("no"), nil), nil })
		},
	})
	sleep := sleeper()
	var failed, asleep durable.TaskID
	owner := phases("test.owner", map[string]func(context.Context, *stepRun) error{
		"a": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(tx *durable.Tx) (_ aStep, err error) {
				o := durable.TaskOptions{Conversation: run.Conversation().ID(), Owner: run.ID()}
				if failed, err = durable.StartTask(tx, failing, 0, o); err != nil {
					return aStep{}, err
				}
				asleep, err = durable.StartTask(tx, sleep, 0, o)
				return run.Wait("b", 1, durable.WaitOptions{On: []durable.TaskID{failed}}), err
			})
		},
		"b": func(ctx context.Context, run *stepRun) error {
			for range 2 { // lets go of the ended child
				if err := run.Memo(ctx, time.Now().String(), 1, nil); err != nil {
					return err
				}
				<-time.After(time.Second)
			}
			return move(ctx, run, func(*durable.Tx) (aStep, error) {
				return run.Wait("c", 2, durable.WaitOptions{On: []durable.TaskID{failed, asleep}, Policy: durable.FailFast}), nil
			})
		},
		"c": func(ctx context.Context, run *stepRun) error { return complete(ctx, run, 7) },
	})
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds(owner, failing, sleep)).open()
		c := r.conversation()
		require.Equal(t, 7, r.completed(c, r.start(c, owner, 0, durable.TaskOptions{})))
		require.Equal(t, durable.OutcomeFailed, r.task(failed).State.Outcome.Status)
		require.Equal(t, durable.OutcomeAborted, r.task(asleep).State.Outcome.Status)
	})
}

// A head names an entry of the past: one that does not exist yet would hide
// what comes until then, in memory and store differently (E13).
func TestHead_BeyondNewestRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	r.model.Push(text("a"), text("b"))
	r.answer(r.send(c, "one"))
	head, err := c.Head(r.ctx)
	require.NoError(t, err)
	for _, beyond := range []durable.EntryID{head + 1000, 1 << 40, -2} {
		spec := durable.EntrySpec{Kind: "test.note", Head: beyond, Model: []model.Message{{Role: model.RoleUser, Content: []model.Block{model.Text("head")}}}}
		err := c.Update(r.ctx, func(_ context.Context, tx *durable.Tx) error { _, err := tx.AppendEntry(c.ID(), spec); return err })
		require.ErrorIs(t, err, durable.ErrInvalid, "entry with head %d", beyond)
		_, _, err = c.Submit(r.ctx, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: &spec})
		require.ErrorIs(t, err, durable.ErrInvalid, "write with head %d", beyond)
	}
	spec := durable.EntrySpec{Kind: "test.note", Head: head, Model: []model.Message{{Role: model.RoleUser, Content: []model.Block{model.Text("head")}}}}
	r.update(c, func(tx *durable.Tx) error { _, err := tx.AppendEntry(c.ID(), spec); return err })
	r.answer(r.send(c, "two"))
	r.sameAsFresh(c)
}

// A tool that the host's default leaves out can be taken in (E9.2, E10.4).
func TestAddTools_HostDefaultFilters(t *testing.T) {
	t.Parallel()
	adder := tool("adder", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		res := durable.TextResult("added")
		res.AddTools = []string{"echo"}
		return res, nil
	})
	r := newRig(t, tools(adder, echoTool()))
	r.opts.Agent.Tools = durable.List("adder")
	r.open()
	c := r.conversation()
	r.model.Push(call("adder", `{"text":""}`), call("echo", `{"text":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	var results []string
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindToolResult {
			results = append(results, e.Model[0].Text())
		}
	}
	require.Equal(t, []string{"added", "echo: a"}, results)
	a, err := c.Agent(r.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"adder", "echo"}, a.Tools.List)
	other, err := r.conversation().Agent(r.ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"adder"}, other.Tools.List, "the host's default stays")
}

// A store that failed wakes everybody who waits for a commit that will not come
// (E4.3).
func TestStoreFailed_WakesWaiters(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		stuck := toolOf(durable.ToolSpec{Name: "stuck"}, func(ctx context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) {
			<-call.Conversation().Engine().Failed() // heeds no abort
			return durable.TextResult("late"), nil
		})
		r := newRig(t, tools(stuck))
		failed := make(chan struct{})
		r.store = &failingStore{Store: r.history, failed: failed}
		r.model.AddRules([]faux.Rule{{Step: call("stuck", `{"text":"a"}`)}}, 0)
		r.open()
		c, other := r.conversation(), r.conversation()
		s := r.send(c, "go")
		after(time.Minute)

		woken := map[string]chan error{}
		wait := func(name string, fn func() error) {
			ch := make(chan error, 1)
			woken[name] = ch
			go func() { ch <- fn() }()
		}
		wait("Wait", func() error { _, err := s.Wait(r.ctx); return err })
		wait("WaitIdle", func() error { return c.WaitIdle(r.ctx) })
		wait("Stream", func() error {
			for _, err := range s.Stream(r.ctx) {
				if err != nil {
					return err
				}
			}
			return nil
		})
		wait("Events", func() error {
			for _, err := range c.Events(r.ctx, "") {
				if err != nil {
					return err
				}
			}
			return nil
		})
		wait("Abort", func() error { _, err := c.Abort(r.ctx, nil); return err })
		after(time.Minute)
		for name, ch := range woken {
			require.Empty(t, ch, "%s waits", name)
		}

		close(failed)
		_, err := other.Send(r.ctx, "anything")
		require.ErrorIs(t, err, durable.ErrStoreFailed)
		after(time.Minute)
		for name, ch := range woken {
			require.Len(t, ch, 1, "%s is woken", name)
			require.ErrorIs(t, <-ch, durable.ErrStoreFailed, name)
		}
		select {
		case <-r.engine.Failed():
		default:
			require.Fail(t, "Failed is not closed")
		}
		_, err = other.Send(r.ctx, "again")
		require.ErrorIs(t, err, durable.ErrStoreFailed)
	})
}

// failingStore takes no more commits once failed is closed.
type failingStore struct {
	durable.Store
	failed chan struct{}
}

func (s *failingStore) Commit(ctx context.Context, b *durable.Batch) (durable.Seq, error) {
	select {
	case <-s.failed:
		return 0, durable.ErrStoreFailed
	default:
		return s.Store.Commit(ctx, b)
	}
}
