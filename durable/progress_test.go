package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

type (
	stepRun = durable.TaskRun[int, int, int]
	aStep   = durable.Step[int, int]
)

// phases makes a task kind whose input, checkpoint and result are numbers. It
// begins in phase "a".
func phases(name string, fns map[string]func(ctx context.Context, run *stepRun) error) *durable.Task[int, int, int] {
	return durable.NewTask(durable.TaskSpec[int, int, int]{Name: name, Start: "a", Phases: fns})
}

// sleeper is a task that waits for a signal that nobody sends.
func sleeper() *durable.Task[int, int, int] {
	return phases("test.sleeper", map[string]func(context.Context, *stepRun) error{
		"a": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Wait("b", 0, durable.WaitOptions{Signal: "never"}), nil })
		},
		"b": func(ctx context.Context, run *stepRun) error { return complete(ctx, run, 0) },
	})
}

func move(ctx context.Context, run *stepRun, fn func(tx *durable.Tx) (aStep, error)) error {
	return run.Commit(ctx, func(_ context.Context, tx *durable.Tx) (aStep, error) { return fn(tx) })
}

func complete(ctx context.Context, run *stepRun, result int) error {
	return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Complete(result), nil })
}

func kinds(defs ...durable.TaskDefinition) durable.Extension {
	return durable.Extension{Name: "tasks", Tasks: defs}
}

// start starts a task in a conversation.
func (r *rig) start(c *durable.Conversation, kind *durable.Task[int, int, int], in int, opts durable.TaskOptions) (id durable.TaskID) {
	help(r.t)
	opts.Conversation = c.ID()
	r.update(c, func(tx *durable.Tx) (err error) {
		id, err = durable.StartTask(tx, kind, in, opts)
		return err
	})
	return id
}

// idle waits until the conversation is idle.
func (r *rig) idle(c *durable.Conversation) {
	help(r.t)
	ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
	defer cancel()
	require.NoError(r.t, c.WaitIdle(ctx))
}

// completed waits for a task's result.
func (r *rig) completed(c *durable.Conversation, id durable.TaskID) int {
	help(r.t)
	r.idle(c)
	rec := r.task(id)
	require.Equal(r.t, durable.TaskTerminal, rec.State.Status)
	o := rec.State.Outcome
	require.Equal(r.t, durable.OutcomeCompleted, o.Status, "%v", o.Error)
	var n int
	require.NoError(r.t, json.Unmarshal(o.Result, &n))
	return n
}

// A wait that is over before the handler returns was progress, also when it
// leads to the same phase with the same data (E6.3, E6.7).
func TestProgress_WaitOverAtOnce(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(ctx context.Context, run *stepRun) error{
		"signal": func(ctx context.Context, run *stepRun) error {
			err := move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Wait("a", 0, durable.WaitOptions{Signal: "go"}), nil })
			if err != nil {
				return err
			}
			return run.Engine().Signal(ctx, run.ID(), "go", 1)
		},
		"past deadline": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(*durable.Tx) (aStep, error) {
				return run.Wait("a", 0, durable.WaitOptions{Deadline: time.Unix(1, 0)}), nil
			})
		},
		"past deadline, returns late": func(ctx context.Context, run *stepRun) error {
			err := move(ctx, run, func(*durable.Tx) (aStep, error) {
				return run.Wait("a", 0, durable.WaitOptions{Deadline: time.Unix(1, 0)}), nil
			})
			<-time.After(time.Second)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				var n atomic.Int32
				kind := phases("test.poll", map[string]func(context.Context, *stepRun) error{
					"a": func(ctx context.Context, run *stepRun) error {
						if n.Add(1) == 5 {
							return complete(ctx, run, 5)
						}
						return how(ctx, run)
					},
				})
				r := newRig(t, kinds(kind)).open()
				c := r.conversation()
				require.Equal(t, 5, r.completed(c, r.start(c, kind, 0, durable.TaskOptions{})))
			})
		})
	}
}

// A handler that commits where it stood, or nothing, makes no progress (E6.3).
func TestProgress_None(t *testing.T) {
	t.Parallel()
	for name, how := range map[string]func(ctx context.Context, run *stepRun) error{
		"no commit": func(context.Context, *stepRun) error { return nil },
		"an empty commit": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(*durable.Tx) (aStep, error) { return aStep{}, nil })
		},
		"the same checkpoint": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Next("a", run.Checkpoint()), nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := phases("test.idle", map[string]func(context.Context, *stepRun) error{"a": how})
			r := newRig(t, kinds(kind)).open()
			c := r.conversation()
			id := r.start(c, kind, 0, durable.TaskOptions{})
			r.idle(c)
			o := r.task(id).State.Outcome
			require.Equal(t, durable.OutcomeFaulted, o.Status)
			require.Contains(t, o.Error.Message, "without progress")
		})
	}
}

// refusing is a store that refuses some commits for ever.
type refusing struct {
	durable.Store
	refuse func(b *durable.Batch) bool
}

func (s *refusing) Commit(ctx context.Context, b *durable.Batch) (durable.Seq, error) {
	if s.refuse(b) {
		return 0, fmt.Errorf("not this one: %w", durable.ErrRejected)
	}
	return s.Store.Commit(ctx, b)
}

// An answer that the store refuses is not asked for again and again: every
// request is paid for (E2.7, E6.3).
func TestProgress_RefusedForEver(t *testing.T) {
	t.Parallel()
	answers := func(stop model.StopReason) func(b *durable.Batch) bool {
		return func(b *durable.Batch) bool {
			for _, e := range b.Entries {
				if e.Kind == durable.KindAssistant && (stop == "" || e.Model[0].StopReason == stop) {
					return true
				}
			}
			return false
		}
	}
	for name, test := range map[string]struct {
		refuse func(b *durable.Batch) bool
		step   faux.Step
	}{
		"every answer":            {answers(""), text("a")},
		"every long answer":       {answers(model.StopEnd), faux.Step{Text: "shown piece by piece", ChunkSize: 4, ChunkMS: 200}},
		"every call of a tool":    {answers(model.StopToolUse), call("echo", `{"text":"a"}`)},
		"every answer, with text": {answers(""), faux.Step{Text: "shown piece by piece", ChunkSize: 4, ChunkMS: 200}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				r := newRig(t, tools(echoTool()))
				r.store = &refusing{Store: r.history, refuse: test.refuse}
				r.model.AddRules([]faux.Rule{{Step: test.step}}, 0)
				r.open()
				c := r.conversation()
				s := r.send(c, "go")
				after(time.Hour)
				require.LessOrEqual(t, r.model.Count(), int64(4), "requests")
				r.unanswered(s, durable.ReasonFaulted)
				busy, err := c.Busy(r.ctx)
				require.NoError(t, err)
				require.False(t, busy)
			})
		})
	}
}

// A settle hook that fails stops neither the commit nor the next one (E3,
// E2.10).
func TestProgress_SettleHookFails(t *testing.T) {
	t.Parallel()
	for name, hook := range map[string]func(context.Context, *durable.Tx, durable.SubmissionRecord) error{
		"error": func(context.Context, *durable.Tx, durable.SubmissionRecord) error { return errors.New("no") },
		"panic": func(context.Context, *durable.Tx, durable.SubmissionRecord) error { panic("no") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.OnSettle = hook
			r.open()
			c := r.conversation()
			r.model.Push(text("one"), text("two"))
			require.Equal(t, "one", r.answer(r.send(c, "go")))
			require.Equal(t, "two", r.answer(r.send(c, "on")))
			require.EqualValues(t, 2, r.model.Count(), "requests")
			require.Equal(t, durable.SubmissionDone, r.wait(r.write(c, "a note")).Status)
		})
	}
}

// What a settle hook stages is followed up in the same commit: an abort reaches
// the work below (E3, E7.3).
func TestProgress_SettleHookAborts(t *testing.T) {
	t.Parallel()
	child := sleeper()
	var below durable.TaskID
	owner := phases("test.owner", map[string]func(context.Context, *stepRun) error{
		"a": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(tx *durable.Tx) (aStep, error) {
				id, err := durable.StartTask(tx, child, 0, durable.TaskOptions{Conversation: run.Conversation().ID(), Owner: run.ID()})
				below = id
				return run.Wait("b", 0, durable.WaitOptions{On: []durable.TaskID{id}}), err
			})
		},
		"b": func(ctx context.Context, run *stepRun) error { return complete(ctx, run, 0) },
	})
	bubble(t, func(t *testing.T) {
		r := newRig(t, kinds(owner, child))
		var id durable.TaskID
		r.opts.OnSettle = func(_ context.Context, tx *durable.Tx, _ durable.SubmissionRecord) error {
			return tx.Abort(id, "settled")
		}
		r.open()
		c := r.conversation()
		id = r.start(c, owner, 0, durable.TaskOptions{Background: true})
		after(time.Minute)
		require.Equal(t, durable.TaskWaiting, r.task(id).State.Status)
		r.model.Push(text("done"))
		require.Equal(t, "done", r.answer(r.send(c, "go")))
		after(time.Minute)
		for _, task := range []durable.TaskID{id, below} {
			rec := r.task(task)
			require.Equal(t, durable.TaskTerminal, rec.State.Status)
			require.Equal(t, durable.OutcomeAborted, rec.State.Outcome.Status)
		}
	})
}

// Details that are not JSON are left out; the call counts as made and runs once
// (E10.4, E2.6).
func TestProgress_DetailsNotJSON(t *testing.T) {
	t.Parallel()
	var starts atomic.Int32
	r := newRig(t, tools(toolOf(durable.ToolSpec{Name: "bad", Replay: durable.ReplaySafe}, func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		starts.Add(1)
		return durable.ToolResult{Content: []model.Block{model.Text("fine")}, Details: json.RawMessage("{bad")}, nil
	}))).open()
	c := r.conversation()
	r.model.Push(call("bad", `{"text":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.EqualValues(t, 1, starts.Load())
	result := r.entries(c)[3].Model[0]
	require.Equal(t, "fine", result.Text())
	require.False(t, result.IsError)
	require.Empty(t, result.Details)
}
