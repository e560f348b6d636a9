package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

// A task goes from phase to phase, each beginning with what the one before
// left, and ends with its result (E3, E6.1, E6.2).
func TestTask_Phases(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		kind := durable.NewTask(durable.TaskSpec[string, []string, int]{
			Name: "test.walk", Version: 3, Start: "one",
			Initial: func(in string) []string { return []string{in} },
			Phases: map[string]func(context.Context, *durable.TaskRun[string, []string, int]) error{
				"one": func(ctx context.Context, run *durable.TaskRun[string, []string, int]) error {
					require.Equal(t, "one", run.Phase())
					require.Equal(t, "in", run.Input())
					return run.Commit(ctx, func(_ context.Context, tx *durable.Tx) (durable.Step[[]string, int], error) {
						_, err := tx.AppendEntry(run.Conversation().ID(), *note("from one"))
						return run.Next("two", append(run.Checkpoint(), "one")), err
					})
				},
				"two": func(ctx context.Context, run *durable.TaskRun[string, []string, int]) error {
					require.Equal(t, []string{"in", "one"}, run.Checkpoint())
					return run.Commit(ctx, func(context.Context, *durable.Tx) (durable.Step[[]string, int], error) {
						return run.Complete(len(run.Checkpoint())), nil
					})
				},
			},
		})
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		began := time.Now().UTC()
		var id durable.TaskID
		r.update(c, func(tx *durable.Tx) (err error) {
			id, err = durable.StartTask(tx, kind, "in", durable.TaskOptions{Conversation: c.ID()})
			rec, terr := tx.Task(id)
			require.NoError(t, terr)
			require.Equal(t, durable.TaskPending, rec.State.Status)
			return err
		})
		r.idle(c)
		rec := r.task(id)
		require.Equal(t, durable.TaskRecord{
			ID: id, ConversationID: c.ID(), TreeID: c.ID(), Kind: "test.walk", Version: 3, Input: json.RawMessage(`"in"`),
			CreatedAt: began, StartedAt: &began, EndedAt: &began,
			State: durable.TaskState{Status: durable.TaskTerminal, Outcome: &durable.Outcome{Status: durable.OutcomeCompleted, Result: json.RawMessage(`2`)}},
		}, rec)
		entry := r.entries(c)[0]
		require.Equal(t, id, entry.ByTaskID)
	})
}

// A declaration that cannot work is a mistake of the program (E6.1).
func TestTask_Declaration(t *testing.T) {
	t.Parallel()
	phase := func(context.Context, *stepRun) error { return nil }
	for name, spec := range map[string]durable.TaskSpec[int, int, int]{
		"no name":         {Start: "a", Phases: map[string]func(context.Context, *stepRun) error{"a": phase}},
		"no start":        {Name: "x", Phases: map[string]func(context.Context, *stepRun) error{"a": phase}},
		"unknown start":   {Name: "x", Start: "b", Phases: map[string]func(context.Context, *stepRun) error{"a": phase}},
		"no handler":      {Name: "x", Start: "a", Phases: map[string]func(context.Context, *stepRun) error{"a": phase, "b": nil}},
		"negative number": {Name: "x", Version: -1, Start: "a", Phases: map[string]func(context.Context, *stepRun) error{"a": phase}},
	} {
		require.Panics(t, func() { durable.NewTask(spec) }, name)
	}
	reg := durable.NewRegistry(kinds(sleeper()))
	require.ErrorIs(t, reg.Install(durable.Extension{Name: "other", Tasks: []durable.TaskDefinition{sleeper()}}), durable.ErrInvalid)
	require.ErrorIs(t, reg.Install(kindsNamed("pi.mine")), durable.ErrInvalid)
	require.Equal(t, []string{"tasks"}, reg.Names())
}

func kindsNamed(name string) durable.Extension {
	x := kinds(phases(name, map[string]func(context.Context, *stepRun) error{"a": func(context.Context, *stepRun) error { return nil }}))
	x.Name = name
	return x
}

// A panic, an error, a step to nowhere and a return without a step end that
// task as faulted, and nothing else (E2.10, E6.3).
func TestTask_Faults(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		failing := map[string]func(ctx context.Context, run *stepRun) error{
			"panic in test.panics": func(context.Context, *stepRun) error { panic("boo") },
			"it broke":             func(context.Context, *stepRun) error { return errors.New("it broke") },
			`phase "nowhere"`: func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Next("nowhere", 1), nil })
			},
			"without progress": func(context.Context, *stepRun) error { return nil },
			"update: boo": func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(*durable.Tx) (aStep, error) { panic("boo") })
			},
			"wait for nothing": func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Wait("a", 1, durable.WaitOptions{}), nil })
			},
		}
		x := durable.Extension{Name: "x"}
		byKind := map[string]*durable.Task[int, int, int]{}
		i := 0
		for want, fn := range failing {
			kind := phases(fmt.Sprintf("test.%d", i), map[string]func(context.Context, *stepRun) error{"a": fn})
			i++
			byKind[want] = kind
			x.Tasks = append(x.Tasks, kind)
		}
		r := newRig(t, x).open()
		c := r.conversation()
		w := watch(r, c)
		synctest.Wait()
		for want, kind := range byKind {
			id := r.start(c, kind, 0, durable.TaskOptions{})
			r.idle(c)
			o := r.task(id).State.Outcome
			require.Equal(t, durable.OutcomeFaulted, o.Status, want)
			if want == "panic in test.panics" {
				want = "boo"
			}
			if want == "update: boo" {
				want = "panic in update: boo"
			}
			require.Contains(t, o.Error.Message, want)
		}
		synctest.Wait()
		require.Len(t, w.of(durable.EventTaskFailed), len(failing), "reported")
		r.model.Push(text("all well"))
		require.Equal(t, "all well", r.answer(r.send(c, "how are you?")))
	})
}

// of returns the watched events of a type.
func (w *watcher) of(kind durable.EventType) (out []durable.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ev := range w.events {
		if ev.Type == kind {
			out = append(out, ev)
		}
	}
	return out
}

// A failed task says why, with details (E3).
func TestTask_Fails(t *testing.T) {
	t.Parallel()
	kind := phases("test.fails", map[string]func(context.Context, *stepRun) error{
		"a": func(ctx context.Context, run *stepRun) error {
			return move(ctx, run, func(*durable.Tx) (aStep, error) {
				return run.Fail(errors.New("no luck"), map[string]int{"code": 3}), nil
			})
		},
	})
	r := newRig(t, kinds(kind)).open()
	c := r.conversation()
	id := r.start(c, kind, 0, durable.TaskOptions{})
	r.idle(c)
	require.Equal(t, &durable.Outcome{
		Status: durable.OutcomeFailed, Error: &durable.TaskError{Message: "no luck", Detail: json.RawMessage(`{"code":3}`)},
	}, r.task(id).State.Outcome)
}

// A memo is drawn once, whatever happens, and ends with its task (E6.4).
func TestTask_Memo(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var drawn []int
		var n atomic.Int32
		kind := phases("test.memo", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				for range 2 {
					var got int
					if err := run.Memo(ctx, "lot", int(n.Add(1)), &got); err != nil {
						return err
					}
					drawn = append(drawn, got)
				}
				if err := run.Memo(ctx, "unread", "x", nil); err != nil {
					return err
				}
				select {
				case <-run.Engine().Closing():
					return context.Cause(ctx)
				case <-time.After(time.Hour):
				}
				return complete(ctx, run, 0)
			},
		})
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		id := r.start(c, kind, 0, durable.TaskOptions{})
		after(time.Minute)
		require.Len(t, r.task(id).Memos, 2)
		r.restart()
		r.again(c)
		after(2 * time.Hour)
		require.Equal(t, []int{1, 1, 1, 1}, drawn)
		require.Empty(t, r.task(id).Memos)
	})
}

// Recovered says that a phase may have been begun before: after a restart, and
// after a commit that the store refused, but not for a new task or phase.
func TestTask_Recovered(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var seen []string
		kind := phases("test.recovered", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				seen = append(seen, fmt.Sprint("a ", run.Recovered()))
				if !run.Recovered() {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Next("b", 1), nil })
			},
			"b": func(ctx context.Context, run *stepRun) error {
				seen = append(seen, fmt.Sprint("b ", run.Recovered()))
				return complete(ctx, run, 1)
			},
		})
		r := newRig(t, kinds(kind))
		faulty := storetest.Faulty(r.history)
		r.store = faulty
		r.open()
		c := r.conversation()
		id := r.start(c, kind, 0, durable.TaskOptions{})
		synctest.Wait()
		r.close()
		r.open()
		synctest.Wait()
		require.Equal(t, []string{"a false", "a true", "b false"}, seen)
		seen = nil

		r.start(r.again(c), kind, 0, durable.TaskOptions{})
		synctest.Wait()
		r.close()
		faulty.FailCommit(2, storetest.Rejected) // the end of b
		r.open()
		after(time.Minute)
		require.Equal(t, []string{"a false", "a true", "b false", "b true"}, seen)
		seen = nil

		// Also when its definition comes later than the engine.
		r.start(r.again(c), kind, 0, durable.TaskOptions{})
		synctest.Wait()
		r.close()
		r.opts.Registry.Uninstall("tasks")
		r.open()
		synctest.Wait()
		require.Equal(t, []string{"a false"}, seen)
		require.NoError(t, r.opts.Registry.Install(kinds(kind)))
		synctest.Wait()
		require.Equal(t, []string{"a false", "a true", "b false"}, seen)
		require.Equal(t, durable.OutcomeCompleted, r.task(id).State.Outcome.Status)
	})
}

// A wait for a time holds over a restart, long ones and many; one that has
// passed meanwhile is over at once (E6.4).
func TestTask_Deadlines(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		kind := phases("test.sleep", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				at := time.Now().Add(time.Duration(run.Input()) * time.Hour)
				return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Wait("b", 0, durable.WaitOptions{Deadline: at}), nil })
			},
			"b": func(ctx context.Context, run *stepRun) error {
				if known, err := run.Signal(new(int)); known || err != nil {
					return fmt.Errorf("a signal: %v %w", known, err)
				}
				return complete(ctx, run, run.Input())
			},
		})
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		start := time.Now()
		ids := map[int]durable.TaskID{}
		for h := 1; h <= 100; h++ {
			ids[h] = r.start(c, kind, h, durable.TaskOptions{})
		}
		check := func() {
			t.Helper()
			for h, id := range ids {
				rec := r.task(id)
				if past := time.Since(start) > time.Duration(h)*time.Hour; past != (rec.State.Status == durable.TaskTerminal) {
					t.Fatalf("after %v the task of %d hours is %s", time.Since(start), h, rec.State.Status)
				}
				if rec.EndedAt != nil {
					require.WithinDuration(t, start.Add(time.Duration(h)*time.Hour), *rec.EndedAt, time.Second)
				}
			}
		}
		after(10*time.Hour + time.Minute)
		check()
		r.restart()
		after(10 * time.Hour)
		check()
		r.close()
		<-time.After(30 * time.Hour)
		for h := 21; h <= 50; h++ {
			require.Equal(t, durable.TaskWaiting, mustTask(t, r, ids[h]).State.Status)
			delete(ids, h) // ended late
		}
		r.open()
		after(time.Minute)
		check()
		after(60 * time.Hour)
		check()
	})
}

func mustTask(t *testing.T, r *rig, id durable.TaskID) durable.TaskRecord {
	t.Helper()
	rec, err := r.history.Task(r.ctx, id)
	require.NoError(t, err)
	return rec
}

// A signal is stored in one commit with its payload; the first wins, others
// find nobody waiting. Its deadline resumes the task without one (E6.7).
func TestTask_Signals(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		kind := durable.NewTask(durable.TaskSpec[bool, int, string]{
			Name: "test.ask", Start: "ask",
			Phases: map[string]func(context.Context, *durable.TaskRun[bool, int, string]) error{
				"ask": func(ctx context.Context, run *durable.TaskRun[bool, int, string]) error {
					return run.Commit(ctx, func(context.Context, *durable.Tx) (durable.Step[int, string], error) {
						o := durable.WaitOptions{Signal: "answer"}
						if run.Input() {
							o.Deadline = time.Now().Add(time.Hour)
						}
						return run.Wait("got", 0, o), nil
					})
				},
				"got": func(ctx context.Context, run *durable.TaskRun[bool, int, string]) error {
					var said *string
					known, err := run.Signal(&said)
					if err != nil {
						return err
					}
					res := fmt.Sprint(known)
					if said != nil {
						res += " " + *said
					}
					return run.Commit(ctx, func(context.Context, *durable.Tx) (durable.Step[int, string], error) { return run.Complete(res), nil })
				},
			},
		})
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		begin := func(deadline bool) (id durable.TaskID) {
			r.update(c, func(tx *durable.Tx) (err error) {
				id, err = durable.StartTask(tx, kind, deadline, durable.TaskOptions{Conversation: c.ID()})
				return err
			})
			synctest.Wait()
			return id
		}
		result := func(id durable.TaskID) string {
			t.Helper()
			rec := r.task(id)
			require.Equal(t, durable.TaskTerminal, rec.State.Status)
			var s string
			require.NoError(t, json.Unmarshal(rec.State.Outcome.Result, &s))
			return s
		}
		a := begin(true)
		w := r.task(a).State.Wait
		require.Equal(t, "answer", w.Signal)
		require.Equal(t, time.Now().UTC(), w.Since)
		require.ErrorIs(t, r.engine.Signal(r.ctx, a, "question", "x"), durable.ErrAlreadySignalled)
		require.NoError(t, r.engine.Signal(r.ctx, a, "answer", "yes"))
		require.ErrorIs(t, r.engine.Signal(r.ctx, a, "answer", "no"), durable.ErrAlreadySignalled)
		synctest.Wait()
		require.Equal(t, "true yes", result(a))
		require.ErrorIs(t, r.engine.Signal(r.ctx, a, "answer", "no"), durable.ErrAlreadySignalled)

		b := begin(true)
		after(time.Hour + time.Second)
		require.Equal(t, "false", result(b))
		require.ErrorIs(t, r.engine.Signal(r.ctx, b, "answer", "late"), durable.ErrAlreadySignalled)

		nothing := begin(false)
		require.NoError(t, r.engine.Signal(r.ctx, nothing, "answer", nil))
		synctest.Wait()
		require.Equal(t, "true", result(nothing), "a signal without payload is one")

		long := begin(false)
		after(1000 * time.Hour)
		r.restart()
		c = r.again(c)
		require.NoError(t, r.engine.Signal(r.ctx, long, "answer", "at last"))
		synctest.Wait()
		require.Equal(t, "true at last", result(long))
		require.ErrorIs(t, r.engine.Signal(r.ctx, 1<<40, "answer", 1), durable.ErrNotFound)
		require.Error(t, r.engine.Signal(r.ctx, long, "answer", func() {}))

		// The payload is in the store before anybody reads it.
		kept := begin(false)
		require.True(t, r.opts.Registry.Uninstall("tasks"))
		require.NoError(t, r.engine.Signal(r.ctx, kept, "answer", "kept"))
		synctest.Wait()
		require.Equal(t, json.RawMessage(`"kept"`), r.task(kept).State.Signal)
		r.restart()
		require.NoError(t, r.opts.Registry.Install(kinds(kind)))
		synctest.Wait()
		require.Equal(t, "true kept", result(kept))
	})
}

// versioned is a task kind of some version that waits, and then ends with what
// its checkpoint holds.
func versioned(version int, migrate func(int, json.RawMessage, json.RawMessage) (int, int, error)) *durable.Task[int, int, int] {
	return durable.NewTask(durable.TaskSpec[int, int, int]{
		Name: "test.versioned", Version: version, Start: "a", Migrate: migrate,
		Phases: map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(*durable.Tx) (aStep, error) {
					return run.Wait("b", run.Input()*10, durable.WaitOptions{Signal: "go"}), nil
				})
			},
			"b": func(ctx context.Context, run *stepRun) error { return complete(ctx, run, run.Checkpoint()) },
		},
	})
}

// A task whose definition is missing, older than it, or cannot migrate it stays
// as it is until the registry changes; only an abort ends it, as orphaned with
// the reason (E6.6).
func TestTask_Versions(t *testing.T) {
	t.Parallel()
	tenfold := func(version int, in, ckpt json.RawMessage) (int, int, error) {
		var i, n int
		if err := errors.Join(json.Unmarshal(in, &i), json.Unmarshal(ckpt, &n)); err != nil {
			return 0, 0, err
		}
		return i, n + 1000*version, nil
	}
	unable := func(int, json.RawMessage, json.RawMessage) (int, int, error) {
		return 0, 0, errors.New("cannot read that")
	}
	for _, tc := range []struct {
		name   string
		next   *durable.Task[int, int, int] // nil: none
		reason string                       // why it is blocked; empty: it is not
		result int
	}{
		{"the same", versioned(2, nil), "", 70},
		{"newer, migrates", versioned(3, tenfold), "", 2070},
		{"newer, cannot", versioned(3, unable), "cannot read that", 0},
		{"newer, without migration", versioned(3, nil), "no migration from version 2 to 3", 0},
		{"older", versioned(1, nil), "stored version 2 is newer than 1", 0},
		{"missing", nil, "is not installed", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				old := versioned(2, nil)
				r := newRig(t, kinds(old)).open()
				c := r.conversation()
				first, second := r.start(c, old, 7, durable.TaskOptions{}), r.start(c, old, 7, durable.TaskOptions{})
				synctest.Wait()
				r.close()
				if tc.next == nil {
					r.opts.Registry.Uninstall("tasks")
				} else {
					require.NoError(t, r.opts.Registry.Install(kinds(tc.next)))
				}
				r.open()
				c = r.again(c)
				stored := r.task(first)
				require.NoError(t, r.engine.Signal(r.ctx, first, "go", 0))
				require.NoError(t, r.engine.Signal(r.ctx, second, "go", 0))
				after(time.Hour)
				if tc.reason == "" {
					require.Equal(t, tc.result, r.completed(c, first))
					require.Equal(t, tc.next != nil && tc.next.Name() != "", true)
					return
				}
				rec := r.task(first)
				require.Equal(t, durable.TaskRunning, rec.State.Status)
				require.Equal(t, stored.State.Checkpoint, rec.State.Checkpoint, "it stays as it is")
				require.Equal(t, 2, rec.Version)
				require.NoError(t, r.engine.AbortTask(r.ctx, first, "enough"))
				o := r.task(first).State.Outcome
				require.Equal(t, durable.OutcomeOrphaned, o.Status)
				require.Contains(t, o.Reason, tc.reason)

				// The other one goes on once there is a definition that fits.
				require.NoError(t, r.opts.Registry.Install(kinds(versioned(4, tenfold))))
				require.Equal(t, 2070, r.completed(c, second))
				require.Equal(t, 4, r.task(second).Version)
			})
		})
	}
}

// A definition that is replaced takes over a running task at its next phase
// (E6.8).
func TestTask_Handover(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		let := make(chan struct{})
		make2 := func(result int) *durable.Task[int, int, int] {
			return phases("test.handover", map[string]func(context.Context, *stepRun) error{
				"a": func(ctx context.Context, run *stepRun) error {
					<-let
					return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Next("b", result), nil })
				},
				"b": func(ctx context.Context, run *stepRun) error { return complete(ctx, run, run.Checkpoint()+100*result) },
			})
		}
		first := make2(1)
		r := newRig(t, kinds(first)).open()
		c := r.conversation()
		id := r.start(c, first, 0, durable.TaskOptions{})
		synctest.Wait()
		require.NoError(t, r.opts.Registry.Install(kinds(make2(2))))
		close(let)
		require.Equal(t, 201, r.completed(c, id))
	})
}

// When the engine closes, the code's context ends with that cause, before it
// can see that the engine closes, and the checkpoint stays (E6.3).
func TestTask_Close(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		var causes atomic.Int32
		kind := phases("test.close", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(*durable.Tx) (aStep, error) { return run.Next("b", 5), nil })
			},
			"b": func(ctx context.Context, run *stepRun) error {
				<-run.Engine().Closing()
				if errors.Is(context.Cause(ctx), durable.ErrClosed) {
					causes.Add(1)
				}
				return nil
			},
		})
		const n = 50
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		var ids []durable.TaskID
		for range n {
			ids = append(ids, r.start(c, kind, 0, durable.TaskOptions{}))
		}
		synctest.Wait()
		r.close()
		require.EqualValues(t, n, causes.Load())
		for _, id := range ids {
			rec := mustTask(t, r, id)
			require.Equal(t, durable.TaskRunning, rec.State.Status)
			require.JSONEq(t, `{"phase":"b","data":5}`, string(rec.State.Checkpoint))
		}
		_, err := r.history.Task(r.ctx, ids[0])
		require.NoError(t, err)
	})
}

// Code that goes on after its task has ended cannot commit any more, nor can it
// start work below it (E7.1).
func TestTask_Ended(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		late := make(chan error, 3)
		var kind *durable.Task[int, int, int]
		kind = phases("test.late", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				if err := complete(ctx, run, 1); err != nil {
					return err
				}
				late <- complete(ctx, run, 2)
				late <- run.Memo(ctx, "x", 1, nil)
				late <- run.Conversation().Update(ctx, func(_ context.Context, tx *durable.Tx) error {
					_, err := durable.StartTask(tx, kind, 0, durable.TaskOptions{Conversation: run.Conversation().ID(), Owner: run.ID()})
					return err
				})
				return errors.New("too late to matter")
			},
		})
		r := newRig(t, kinds(kind)).open()
		c := r.conversation()
		id := r.start(c, kind, 0, durable.TaskOptions{})
		synctest.Wait()
		require.ErrorIs(t, <-late, durable.ErrTaskEnded)
		require.ErrorIs(t, <-late, durable.ErrTaskEnded)
		require.ErrorIs(t, <-late, durable.ErrOwnerEnded)
		require.Equal(t, 1, r.completed(c, id))
	})
}

// A task learns how others ended, and nothing while they live (E6.5).
func TestTask_Outcome(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		asleep := sleeper()
		var seen []string
		parent := phases("test.parent", map[string]func(context.Context, *stepRun) error{
			"a": func(ctx context.Context, run *stepRun) error {
				return move(ctx, run, func(tx *durable.Tx) (aStep, error) {
					id, err := durable.StartTask(tx, asleep, 0, durable.TaskOptions{Conversation: run.Conversation().ID(), Owner: run.ID()})
					return run.Wait("b", int(id), durable.WaitOptions{On: []durable.TaskID{id}, Deadline: time.Now().Add(time.Hour)}), err
				})
			},
			"b": func(ctx context.Context, run *stepRun) error {
				id := durable.TaskID(run.Checkpoint())
				o, err := run.Outcome(ctx, id)
				if err != nil {
					return err
				}
				if o == nil {
					seen = append(seen, "lives")
					return move(ctx, run, func(tx *durable.Tx) (aStep, error) {
						return run.Wait("b", run.Checkpoint(), durable.WaitOptions{On: []durable.TaskID{id}}), tx.Abort(id, "slow")
					})
				}
				seen = append(seen, string(o.Status)+" "+o.Reason)
				return complete(ctx, run, 0)
			},
		})
		r := newRig(t, kinds(asleep, parent)).open()
		c := r.conversation()
		id := r.start(c, parent, 0, durable.TaskOptions{})
		after(2 * time.Hour)
		r.completed(c, id)
		require.Equal(t, []string{"lives", "aborted slow"}, seen)
	})
}
