package durable_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// An abort in the middle of an answer keeps what was shown of it as an aborted
// entry, settles the input, takes back what waited, places writes, counts what
// the provider reported, and leaves a conversation that goes on (E7.4, E15).
func TestAbort_Answer(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t).open()
		c := r.conversation()
		r.model.Push(faux.Step{Thinking: "hm", Text: "half an ans", Hold: make(chan struct{}), Usage: &model.Usage{Input: 7, Output: 3, Total: 10}})
		s := r.send(c, "go")
		after(time.Second)
		follow, steer, write := r.send(c, "next"), r.submit(c, "aside", durable.Steer), r.write(c, "n")
		res, err := c.Abort(r.ctx, &durable.AbortParams{Reason: "enough"})
		require.NoError(t, err)
		require.Equal(t, []durable.SubmissionID{follow.ID(), steer.ID()}, res.Withdrawn)
		require.False(t, res.Busy)
		for _, sub := range []*durable.Submission{s, follow, steer} {
			r.unanswered(sub, durable.ReasonAborted)
		}
		require.Equal(t, durable.SubmissionDone, r.record(write).Status)
		require.Equal(t, []string{"pi.user", "pi.assistant", "test.note"}, r.kinds(c))
		m := r.entries(c)[1].Model[0]
		require.Equal(t, model.StopAborted, m.StopReason)
		require.Equal(t, "half an ans", m.Text())
		require.Equal(t, "faux/faux-1", m.Provider+"/"+m.Model)
		task := r.task(r.record(s).TaskID)
		require.Equal(t, durable.OutcomeAborted, task.State.Outcome.Status)
		require.Equal(t, "enough", task.State.Outcome.Reason)
		total, err := c.Usage(r.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 10, total.Models["faux/faux-1"].Total)

		r.model.Push(text("fresh"))
		require.Equal(t, "fresh", r.answer(r.send(c, "again")))
		require.Len(t, r.model.Requests()[1].Messages, 2, "the aborted answer is not sent")
		r.sameAsFresh(c)
	})
}

// On an idle conversation an abort writes nothing (E7.4).
func TestAbort_Idle(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	r.model.Push(text("done"))
	r.answer(r.send(c, "go"))
	require.NoError(t, c.WaitIdle(r.ctx))
	before, _ := r.history.counts()
	res, err := c.Abort(r.ctx, &durable.AbortParams{Background: true})
	require.NoError(t, err)
	require.Equal(t, &durable.AbortResult{}, res)
	now, _ := r.history.counts()
	require.Equal(t, before, now)
}

// Running tools end aborted with their output so far, those that had not begun
// without any; each call has its result, and the hooks of those that ran are
// told (E7.4, E9.3, E10.4).
func TestAbort_Tools(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var told atomic.Int32
		stuck := toolOf(durable.ToolSpec{Name: "stuck", Mode: durable.ToolSequential}, func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
			call.Output([]byte("half of " + arg + "\n"))
			<-ctx.Done()
			call.Output([]byte("last words\n"))
			require.ErrorIs(t, context.Cause(ctx), durable.ErrAborted)
			return durable.ToolResult{}, ctx.Err()
		})
		r := newRig(t, durable.Extension{Name: "x", Tools: []*durable.Tool{stuck}, Hooks: durable.Hooks{
			OnToolAbort: func(_ context.Context, call *durable.ToolCall) error { told.Add(1); return nil },
		}}).open()
		c := r.conversation()
		r.model.Push(calls("stuck", "a", "b"))
		s := r.send(c, "go")
		after(time.Minute)
		_, err := c.Abort(r.ctx, nil)
		require.NoError(t, err)
		r.unanswered(s, durable.ReasonAborted)
		require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.tool-result"}, r.kinds(c))
		aborted := "<harness>\n[error] The call was aborted.\n</harness>"
		texts := map[string]string{}
		for _, e := range r.entries(c)[3:] {
			m := e.Model[0]
			require.True(t, m.IsError)
			texts[m.ToolCallID] = m.Text()
			require.Contains(t, string(e.Data), `"code":"aborted"`)
		}
		require.Equal(t, map[string]string{"call_1": "half of a\nlast words\n" + aborted, "call_2": aborted}, texts)
		require.EqualValues(t, 1, told.Load())
		r.model.Push(text("fine"))
		require.Equal(t, "fine", r.answer(r.send(c, "and now")))
	})
}

// A wait for a repetition ends at once (E7.4).
func TestAbort_Retry(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t).open()
		c := r.conversation()
		r.model.Push(failure(model.ClassOverloaded))
		s := r.send(c, "go")
		after(time.Second)
		began := time.Now()
		_, err := c.Abort(r.ctx, nil)
		require.NoError(t, err)
		require.Less(t, time.Since(began), time.Second)
		r.unanswered(s, durable.ReasonAborted)
		require.Equal(t, []string{"pi.user"}, r.kinds(c))
		after(time.Hour)
		require.EqualValues(t, 1, r.model.Count())
	})
}

// Inputs that come after the mark wait, and start in the commit that ends the
// abort; writes are placed there too (E7.4).
func TestAbort_InputsAfterTheMark(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		stubborn := tool("stubborn", func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
			<-let // does not look at its context
			return durable.TextResult("finished"), nil
		})
		r := newRig(t, tools(stubborn)).open()
		c := r.conversation()
		r.model.Push(calls("stubborn", "a"), text("the next"))
		s := r.send(c, "go")
		after(time.Second)
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		res, err := c.Abort(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, res.Busy)
		next, write := r.send(c, "next"), r.write(c, "n")
		after(time.Minute)
		require.Equal(t, durable.SubmissionQueued, r.record(next).Status)
		require.Equal(t, durable.SubmissionQueued, r.record(write).Status)
		close(let)
		r.unanswered(s, durable.ReasonAborted)
		require.Equal(t, "the next", r.answer(next))
		require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "test.note", "pi.user", "pi.assistant"}, r.kinds(c))
		require.Equal(t, "finished", r.entries(c)[3].Model[0].Text(), "what was done is recorded")
		ended := false
		for _, b := range r.history.batches {
			for _, task := range b.Tasks {
				if task.Kind == "pi.generation" && task.State.Status == durable.TaskTerminal && task.State.Outcome.Status == durable.OutcomeAborted {
					ended = true
					require.Len(t, b.Entries, 2, "the write and the input, in the same commit")
					require.Len(t, b.Submissions, 3)
				}
			}
		}
		require.True(t, ended)
	})
}

// Background work is neither busy nor aborted unless asked for (E7.3, E7.4).
func TestAbort_Background(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		kind := sleeper()
		p := &puppet{}
		r := newRig(t, kinds(kind)).provide(p).open()
		c := r.conversation()
		back := r.start(c, kind, 0, durable.TaskOptions{Background: true})
		below := r.start(c, kind, 0, durable.TaskOptions{Owner: back})
		busy, err := c.Busy(r.ctx)
		require.NoError(t, err)
		require.False(t, busy, "what a background task owns is background too")
		s := r.send(c, "go")
		after(time.Second)
		_, err = c.Abort(r.ctx, nil)
		require.NoError(t, err)
		r.unanswered(s, durable.ReasonAborted)
		require.Equal(t, durable.TaskWaiting, r.task(back).State.Status)
		_, err = c.Abort(r.ctx, &durable.AbortParams{Background: true, Reason: "all of it"})
		require.NoError(t, err)
		for _, id := range []durable.TaskID{back, below} {
			rec := r.task(id)
			require.Equal(t, durable.OutcomeAborted, rec.State.Outcome.Status)
			require.Equal(t, "all of it", rec.State.Outcome.Reason)
		}
	})
}

// A mark is durable at once: a process that ends between the mark and the end
// of the work goes on with the abort when it comes back (E7.3, E2.9).
func TestAbort_Restart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		g := newGate()
		slow := phases("test.slow", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				<-run.Engine().Closing() // does not look at the abort
				return nil
			},
		})
		r := newRig(t, durable.Extension{Name: "x", Tools: []*durable.Tool{g.tool(durable.ToolSpec{Name: "gate"})}, Tasks: []durable.TaskDefinition{slow}}).open()
		c := r.conversation()
		r.model.Push(calls("gate", "a"))
		s := r.send(c, "go")
		own := r.start(c, slow, 0, durable.TaskOptions{})
		after(time.Second)
		under := r.start(c, slow, 0, durable.TaskOptions{Owner: own})
		after(time.Second)
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		res, err := c.Abort(ctx, nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, res.Busy)
		require.True(t, r.task(under).AbortRequested, "marks flow down in the same commit")
		require.Equal(t, durable.SubmissionUnanswered, r.record(s).Status, "what heeds it has ended")
		r.restart()
		c = r.again(c)
		r.idle(c)
		for _, id := range []durable.TaskID{own, under} {
			require.Equal(t, durable.OutcomeAborted, r.task(id).State.Outcome.Status)
		}
	})
}

// AbortTask ends a task with what it owns, bottom-up, and leaves the rest
// alone; one that has ended is left as it is (E7.3).
func TestAbort_Task(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		kind := sleeper()
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		top := r.start(c, kind, 0, durable.TaskOptions{})
		child := r.start(c, kind, 0, durable.TaskOptions{Owner: top})
		leaf := r.start(c, kind, 0, durable.TaskOptions{Owner: child})
		apart := r.start(c, kind, 0, durable.TaskOptions{Owner: top, Background: true})
		other := r.start(c, kind, 0, durable.TaskOptions{})
		require.NoError(t, r.engine.AbortTask(r.ctx, child, "why not"))
		for id, want := range map[durable.TaskID]durable.TaskStatus{
			top: durable.TaskWaiting, child: durable.TaskTerminal, leaf: durable.TaskTerminal, apart: durable.TaskWaiting, other: durable.TaskWaiting,
		} {
			require.Equal(t, want, r.task(id).State.Status)
		}
		require.False(t, r.task(child).EndedAt.Before(*r.task(leaf).EndedAt))
		before, _ := r.history.counts()
		require.NoError(t, r.engine.AbortTask(r.ctx, child, "again"))
		now, _ := r.history.counts()
		require.Equal(t, before, now)
		require.Equal(t, "why not", r.task(child).State.Outcome.Reason)
		require.ErrorIs(t, r.engine.AbortTask(r.ctx, 1<<40, ""), durable.ErrNotFound)

		require.NoError(t, r.engine.AbortTask(r.ctx, top, "too"))
		require.Equal(t, durable.TaskWaiting, r.task(apart).State.Status, "a background task is a boundary")
	})
}
