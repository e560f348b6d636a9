package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// TaskRun is what a task's handler works with. It belongs to the handler's
// goroutine and ends with it; Commit and Memo may be called from several.
type TaskRun[In, Ckpt, Res any] struct {
	r    *taskRun
	in   In
	ckpt Ckpt
}

func newTaskRun[In, Ckpt, Res any](r *taskRun) (*TaskRun[In, Ckpt, Res], error) {
	run := &TaskRun[In, Ckpt, Res]{r: r}
	if err := json.Unmarshal(r.input, &run.in); err != nil {
		return nil, fmt.Errorf("task %d: input: %w", r.rec.ID, err)
	}
	if len(r.ckpt.Data) > 0 {
		if err := json.Unmarshal(r.ckpt.Data, &run.ckpt); err != nil {
			return nil, fmt.Errorf("task %d: checkpoint: %w", r.rec.ID, err)
		}
	}
	return run, nil
}

// ID returns the task's id.
func (run *TaskRun[In, Ckpt, Res]) ID() TaskID { return run.r.rec.ID }

// Input returns what the task was started with.
func (run *TaskRun[In, Ckpt, Res]) Input() In { return run.in }

// Checkpoint returns the data the phase began with.
func (run *TaskRun[In, Ckpt, Res]) Checkpoint() Ckpt { return run.ckpt }

// Phase returns the phase that runs.
func (run *TaskRun[In, Ckpt, Res]) Phase() string { return run.r.ckpt.Phase }

// Recovered reports whether this phase was begun before, by a process that
// died or a commit that the store refused, so that its effects may have been.
func (run *TaskRun[In, Ckpt, Res]) Recovered() bool { return run.r.recovered }

// AbortReason returns why the task is to end, empty when it is not.
func (run *TaskRun[In, Ckpt, Res]) AbortReason() string { return run.r.rec.AbortReason }

// Engine returns the engine the task runs in.
func (run *TaskRun[In, Ckpt, Res]) Engine() *Engine { return run.r.e }

// Conversation returns the conversation the task belongs to.
func (run *TaskRun[In, Ckpt, Res]) Conversation() *Conversation { return run.r.conversation() }

// Signal reads the payload of the signal that ended the last wait into out and
// reports whether there was one; after a deadline there is none.
func (run *TaskRun[In, Ckpt, Res]) Signal(out any) (bool, error) {
	raw := run.r.rec.State.Signal
	if raw == nil {
		return false, nil
	}
	return true, json.Unmarshal(raw, out)
}

// Outcome returns how another task ended, or nil when it has not.
func (run *TaskRun[In, Ckpt, Res]) Outcome(ctx context.Context, id TaskID) (*Outcome, error) {
	return run.r.outcome(ctx, id)
}

// Memo stores candidate under a name the first time it is called with it, and
// reads what is stored into out, so that a value drawn once is the same after
// a crash. Memos end with the task.
func (run *TaskRun[In, Ckpt, Res]) Memo(ctx context.Context, name string, candidate, out any) error {
	return run.r.memo(ctx, name, candidate, out)
}

// Commit runs fn under the line and stores what it staged together with the
// step it returns: where the task goes next. It returns [ErrTaskEnded] when
// the task has ended meanwhile. A full disk is waited out until ctx ends.
func (run *TaskRun[In, Ckpt, Res]) Commit(ctx context.Context, fn func(ctx context.Context, tx *Tx) (Step[Ckpt, Res], error)) error {
	return run.r.commit(ctx, func(ctx context.Context, tx *Tx) (step, error) {
		s, err := fn(ctx, tx)
		if err != nil {
			return step{}, err
		}
		return s.take()
	})
}

// Step says where a task goes with a commit. The zero Step leaves it where it
// is. See [TaskRun.Next], [TaskRun.Wait], [TaskRun.Complete], [TaskRun.Fail].
type Step[Ckpt, Res any] struct{ build func() (step, error) }

func (s Step[Ckpt, Res]) take() (step, error) {
	if s.build == nil {
		return step{}, nil
	}
	return s.build()
}

// Next goes on with another phase.
func (run *TaskRun[In, Ckpt, Res]) Next(phase string, ckpt Ckpt) Step[Ckpt, Res] {
	return Step[Ckpt, Res]{func() (step, error) { return nextStep(phase, ckpt, nil) }}
}

// Wait goes on with a phase once what is waited for has come. Until then the
// task holds no goroutine.
func (run *TaskRun[In, Ckpt, Res]) Wait(phase string, ckpt Ckpt, on WaitOptions) Step[Ckpt, Res] {
	return Step[Ckpt, Res]{func() (step, error) { return nextStep(phase, ckpt, &on) }}
}

// Complete ends the task with a result.
func (run *TaskRun[In, Ckpt, Res]) Complete(res Res) Step[Ckpt, Res] {
	return Step[Ckpt, Res]{func() (step, error) {
		raw, err := encode(res)
		return step{outcome: &Outcome{Status: OutcomeCompleted, Result: raw}}, err
	}}
}

// Fail ends the task with an error and, when detail is not nil, JSON about it.
func (run *TaskRun[In, Ckpt, Res]) Fail(cause error, detail any) Step[Ckpt, Res] {
	return Step[Ckpt, Res]{func() (step, error) {
		o := &Outcome{Status: OutcomeFailed, Error: &TaskError{Message: cause.Error()}}
		var err error
		if detail != nil {
			o.Error.Detail, err = encode(detail)
		}
		return step{outcome: o}, err
	}}
}

// Abort ends the task as aborted; for the abort handler.
func (run *TaskRun[In, Ckpt, Res]) Abort(reason string) Step[Ckpt, Res] {
	return Step[Ckpt, Res]{func() (step, error) {
		return step{outcome: &Outcome{Status: OutcomeAborted, Reason: reason}}, nil
	}}
}

// step is a task's move: a checkpoint, with a wait or without, an outcome, or
// nothing.
type step struct {
	ckpt    *checkpoint
	wait    *WaitOptions
	outcome *Outcome
}

func nextStep(phase string, ckpt any, wait *WaitOptions) (step, error) {
	data, err := encode(ckpt)
	if err != nil {
		return step{}, fmt.Errorf("checkpoint: %w", err)
	}
	return step{ckpt: &checkpoint{phase, data}, wait: wait}, nil
}

// taskRun is one call of a task's code.
type taskRun struct {
	e         *Engine
	t         *tree
	h         *taskHandle
	def       *taskDef
	rec       *TaskRecord // as it was when the call began
	recovered bool
	began     time.Time
	moved     atomic.Bool // a step was committed
	input     json.RawMessage
	ckpt      checkpoint
}

func (r *taskRun) conversation() *Conversation {
	r.t.mu.RLock()
	defer r.t.mu.RUnlock()
	return &Conversation{e: r.e, rec: r.t.convs[r.rec.ConversationID].rec}
}

// open decodes the checkpoint, through a migration when it is of an older
// version; the migrated one is stored with the next commit.
func (r *taskRun) open() error {
	if err := json.Unmarshal(r.rec.State.Checkpoint, &r.ckpt); err != nil {
		return fmt.Errorf("task %d: checkpoint: %w", r.rec.ID, err)
	}
	r.input = r.rec.Input
	if r.rec.Version < r.def.version {
		in, data, err := r.def.migrate(r.rec.Version, r.rec.Input, r.ckpt.Data)
		if err != nil {
			return &migrationError{fmt.Errorf("task %d: migrate from version %d: %w", r.rec.ID, r.rec.Version, err)}
		}
		r.input, r.ckpt.Data = in, data
	}
	return nil
}

// migrationError blocks a task: its definition could not read what is stored.
type migrationError struct{ err error }

func (m *migrationError) Error() string { return m.err.Error() }
func (m *migrationError) Unwrap() error { return m.err }

func isMigration(err error) bool {
	_, ok := errors.AsType[*migrationError](err)
	return ok
}

// runPhase calls the handler of the task's phase and faults the task when it
// fails or makes no progress.
func (r *taskRun) runPhase(ctx context.Context) error {
	err := r.e.protect("task "+r.rec.Kind, func() error {
		if err := r.open(); err != nil {
			return err
		}
		handler := r.def.phases[r.ckpt.Phase]
		if handler == nil {
			return fmt.Errorf("task %d: phase %q is unknown", r.rec.ID, r.ckpt.Phase)
		}
		return handler(ctx, r)
	})
	now, open := r.current()
	switch {
	case !open:
		return nil // closing: the checkpoint stays
	case now == nil || now.State.Status == TaskTerminal || now.State.Status == TaskCompleting:
		return nil
	case now.AbortRequested:
		return nil // the abort handler comes next
	case err != nil && (r.e.storeTrouble(err) || isMigration(err)):
		return err
	case err != nil:
		return r.fault(err)
	case !r.moved.Load():
		return r.fault(fmt.Errorf("phase %s returned without progress", r.ckpt.Phase))
	}
	return nil
}

// storeTrouble reports whether an error is the store's and not the task's.
func (e *Engine) storeTrouble(err error) bool {
	return errors.Is(err, ErrRejected) || errors.Is(err, errUnreachable) || e.dead()
}

// current returns the task as it is stored, waiting until the tree is in
// memory; open is false when the engine closes or the store has failed.
func (r *taskRun) current() (rec *TaskRecord, open bool) {
	if !r.t.ensure() {
		return nil, false
	}
	r.t.mu.RLock()
	defer r.t.mu.RUnlock()
	return r.t.tasks[r.rec.ID], true
}

// endedError: a task's own code went on after its end.
type endedError struct{ id TaskID }

func (e *endedError) Error() string { return fmt.Sprintf("task %d: %v", e.id, ErrTaskEnded) }
func (e *endedError) Unwrap() error { return ErrTaskEnded }

// fault ends a task whose code failed.
func (r *taskRun) fault(cause error) error {
	return r.end(r.e.ctx, Outcome{Status: OutcomeFaulted, Error: &TaskError{Message: cause.Error()}})
}

// end commits an outcome.
func (r *taskRun) end(ctx context.Context, o Outcome) error {
	return r.commit(ctx, func(context.Context, *Tx) (step, error) { return step{outcome: &o}, nil })
}

// runAbort calls the abort handler, and ends the task as aborted when that did
// not end it.
func (r *taskRun) runAbort(ctx context.Context) error {
	if r.def.abort != nil {
		err := r.e.protect("abort of task "+r.rec.Kind, func() error {
			if err := r.open(); err != nil {
				return err
			}
			return r.def.abort(ctx, r)
		})
		now, open := r.current()
		switch {
		case !open:
			return nil
		case now == nil || now.State.Status == TaskTerminal || now.State.Status == TaskCompleting:
			return nil
		case err != nil && (r.e.storeTrouble(err) || isMigration(err)):
			return err
		case err != nil:
			return r.fault(err)
		}
	}
	return r.end(ctx, Outcome{Status: OutcomeAborted, Reason: r.rec.AbortReason})
}

// commit stores what fn staged together with the task's step. It is not
// cancelled by ctx, which is the task's: what was done must be recorded. Only
// the wait for room on a full disk ends with it.
func (r *taskRun) commit(ctx context.Context, fn func(ctx context.Context, tx *Tx) (step, error)) error {
	for attempt := 0; ; attempt++ {
		moved := false
		err := r.t.update(withEngine(context.WithoutCancel(ctx)), r.rec.ID, func(ctx context.Context, tx *Tx) error {
			rec := tx.t.tasks[r.rec.ID]
			if rec == nil || rec.State.Status == TaskTerminal || rec.State.Status == TaskCompleting || !r.t.holds(r.h) {
				return &endedError{r.rec.ID}
			}
			s, err := fn(ctx, tx)
			if err != nil {
				return err
			}
			moved = s.outcome != nil || s.wait != nil || s.ckpt != nil && !bytes.Equal(marshalRaw(s.ckpt), r.rec.State.Checkpoint)
			return r.apply(tx, s)
		})
		if err == nil && moved {
			r.moved.Store(true)
		}
		if !errors.Is(err, ErrStoreFull) && !errors.Is(err, errUnreachable) {
			return err
		}
		if !r.e.backoff(ctx, attempt) {
			return err
		}
	}
}

// apply stages the task's own move.
func (r *taskRun) apply(tx *Tx, s step) error {
	if s.ckpt == nil && s.outcome == nil {
		return nil
	}
	rec := tx.editTask(r.rec.ID)
	if rec.StartedAt == nil {
		at := r.began
		rec.StartedAt = &at
	}
	rec.Version, rec.Input = r.def.versionOr(rec.Version), r.inputOr(rec.Input)
	if s.outcome != nil {
		tx.end(rec, *s.outcome)
		return nil
	}
	if r.def.phases[s.ckpt.Phase] == nil {
		return fmt.Errorf("task %d: phase %q is unknown: %w", rec.ID, s.ckpt.Phase, ErrInvalid)
	}
	raw := marshalRaw(s.ckpt)
	if s.wait == nil {
		rec.State = TaskState{Status: TaskRunning, Checkpoint: raw}
		return nil
	}
	w, err := tx.checkWait(rec, s.wait)
	if err != nil {
		return err
	}
	rec.State = TaskState{Status: TaskWaiting, Checkpoint: raw, Wait: w}
	return nil
}

func (d *taskDef) versionOr(v int) int {
	if d == nil {
		return v
	}
	return d.version
}

func (r *taskRun) inputOr(in json.RawMessage) json.RawMessage {
	if r.input == nil {
		return in
	}
	return r.input
}

// checkWait applies E6.5: a task cannot wait for itself, for a task that does
// not exist, or for one of its owners; failFast is for own children.
func (tx *Tx) checkWait(rec *TaskRecord, o *WaitOptions) (*Wait, error) {
	if len(o.On) == 0 && o.Signal == "" && o.Deadline.IsZero() {
		return nil, fmt.Errorf("task %d: a wait for nothing: %w", rec.ID, ErrInvalid)
	}
	if o.Policy != "" && o.Policy != AllSettled && o.Policy != FailFast {
		return nil, fmt.Errorf("task %d: wait policy %q is unknown: %w", rec.ID, o.Policy, ErrInvalid)
	}
	for _, id := range o.On {
		on, err := tx.anyTask(id)
		if err != nil {
			return nil, fmt.Errorf("task %d: wait on task %d: %w", rec.ID, id, err)
		}
		if on.TreeID != tx.t.id {
			return nil, fmt.Errorf("task %d: wait on task %d of another tree: %w", rec.ID, id, ErrInvalid)
		}
		if o.Policy == FailFast && on.Owner != rec.ID {
			return nil, fmt.Errorf("task %d: failFast on task %d, which it does not own: %w", rec.ID, id, ErrInvalid)
		}
		for up := rec; up != nil; up = tx.owner(up) {
			if up.ID == id {
				return nil, fmt.Errorf("task %d: wait on itself or its owner %d: %w", rec.ID, id, ErrInvalid)
			}
		}
	}
	w := &Wait{On: slices.Clone(o.On), Policy: o.Policy, Signal: o.Signal, Since: tx.at}
	if !o.Deadline.IsZero() {
		at := stamp(o.Deadline)
		w.Deadline = &at
	}
	return w, nil
}

// anyTask returns a task in memory, or as it is stored. It must not be
// modified.
func (tx *Tx) anyTask(id TaskID) (*TaskRecord, error) {
	if rec := tx.task(id); rec != nil {
		return rec, nil
	}
	rec, err := tx.e.store.Task(tx.ctx, id)
	return &rec, err
}

// owner returns the task that owns a task, itself or through its conversation.
func (tx *Tx) owner(rec *TaskRecord) *TaskRecord {
	if rec.Owner != 0 {
		return tx.task(rec.Owner)
	}
	if c := tx.conversation(rec.ConversationID); c != nil && c.Owner != nil {
		return tx.task(c.Owner.TaskID)
	}
	return nil
}

func (r *taskRun) memo(ctx context.Context, name string, candidate, out any) error {
	r.t.mu.RLock()
	var have json.RawMessage
	if rec := r.t.tasks[r.rec.ID]; rec != nil {
		have = rec.Memos[name]
	}
	r.t.mu.RUnlock()
	if have == nil {
		raw, err := encode(candidate)
		if err != nil {
			return fmt.Errorf("memo %s: %w", name, err)
		}
		err = r.commit(ctx, func(_ context.Context, tx *Tx) (step, error) {
			rec := tx.editTask(r.rec.ID)
			if have = rec.Memos[name]; have != nil {
				return step{}, nil
			}
			if rec.Memos == nil {
				rec.Memos = map[string]json.RawMessage{}
			}
			rec.Memos[name], have = raw, raw
			return step{}, nil
		})
		if err != nil {
			return err
		}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(have, out)
}

// outcome returns how a task ended, nil when it has not.
func (r *taskRun) outcome(ctx context.Context, id TaskID) (*Outcome, error) {
	r.t.mu.RLock()
	rec := r.t.tasks[id]
	r.t.mu.RUnlock()
	if rec == nil {
		stored, err := r.e.store.Task(ctx, id)
		if err != nil {
			return nil, err
		}
		rec = &stored
	}
	if rec.State.Status != TaskTerminal {
		return nil, nil
	}
	c := rec.clone()
	return c.State.Outcome, nil
}

// Signal hands a payload to a task that waits for a signal of that name, in
// one commit; the first one wins. A task that does not wait for it, or was
// signalled already, is [ErrAlreadySignalled].
func (e *Engine) Signal(ctx context.Context, id TaskID, name string, payload any) error {
	raw, err := encode(payload)
	if err != nil {
		return fmt.Errorf("signal %s of task %d: %w", name, id, err)
	}
	rec, err := e.store.Task(ctx, id)
	if err != nil {
		return fmt.Errorf("signal %s: task %d: %w", name, id, err)
	}
	return e.Update(ctx, rec.ConversationID, func(_ context.Context, tx *Tx) error {
		rec := tx.task(id)
		if rec == nil || rec.State.Status != TaskWaiting || rec.State.Wait.Signal != name || rec.AbortRequested {
			return fmt.Errorf("signal %s of task %d: %w", name, id, ErrAlreadySignalled)
		}
		next := tx.editTask(id)
		next.State = TaskState{Status: TaskRunning, Checkpoint: rec.State.Checkpoint, Signal: raw}
		return nil
	})
}

// Task returns a task as it is stored, or ErrNotFound.
func (e *Engine) Task(ctx context.Context, id TaskID) (TaskRecord, error) {
	rec, err := e.store.Task(ctx, id)
	if err != nil {
		return rec, fmt.Errorf("task %d: %w", id, err)
	}
	return rec, nil
}

// deadlineIn is the time d from now, as it is stored.
func (e *Engine) deadlineIn(d time.Duration) time.Time { return stamp(e.clock.Now().Add(d)) }
