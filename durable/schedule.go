package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// taskHandle is a task whose code runs on a goroutine of this process.
type taskHandle struct {
	id TaskID
	// cancel ends the context of the code that runs now. Guarded by the
	// tree's mu.
	cancel context.CancelCauseFunc
	// aborting: the abort handler runs, which an abort does not cancel.
	aborting bool
}

// action is what the scheduler does with a task next (E6.3).
type action int

const (
	actNothing action = iota
	actPhase          // run the handler of its phase
	actAbort          // run its abort handler
	actOrphan         // end it: aborted, and there is no definition to do it
	actBlocked        // keep it until the registry changes
)

// next decides what is to be done with a task. The caller holds mu.
func (t *tree) next(rec *TaskRecord) (action, *taskDef, string) {
	if rec == nil || rec.State.Status == TaskTerminal || rec.State.Status == TaskCompleting {
		return actNothing, nil, ""
	}
	if rec.AbortRequested && t.workBelow(rec.ID) {
		return actNothing, nil, ""
	}
	if rec.State.Status == TaskWaiting && !rec.AbortRequested {
		return actNothing, nil, ""
	}
	def, blocked := t.e.definition(rec)
	if b, ok := t.blocked[rec.ID]; ok && b.def != nil && b.def == def {
		blocked = b.why // the migration failed, and it is still the same
	}
	switch {
	case blocked != "" && rec.AbortRequested:
		return actOrphan, nil, blocked
	case blocked != "":
		return actBlocked, nil, blocked
	case rec.AbortRequested:
		return actAbort, def, ""
	}
	return actPhase, def, ""
}

// workBelow reports whether ordinary work below a task lives. The caller holds
// mu.
func (t *tree) workBelow(id TaskID) bool {
	for _, rec := range t.tasks {
		if rec.Background || rec.State.Status == TaskTerminal {
			continue
		}
		if rec.Owner == id {
			return true
		}
		if rec.Owner == 0 {
			if c := t.convs[rec.ConversationID]; c != nil && c.rec.Owner != nil && c.rec.Owner.TaskID == id {
				return true
			}
		}
	}
	return false
}

// definition returns how to run a task, or why it is blocked (E6.6).
func (e *Engine) definition(rec *TaskRecord) (*taskDef, string) {
	def := builtinTasks[rec.Kind]
	if def == nil {
		def = e.opts.Registry.task(rec.Kind)
	}
	switch {
	case def == nil:
		return nil, fmt.Sprintf("task kind %s is not installed", rec.Kind)
	case rec.Version > def.version:
		return nil, fmt.Sprintf("task kind %s: stored version %d is newer than %d", rec.Kind, rec.Version, def.version)
	case rec.Version < def.version && def.migrate == nil:
		return nil, fmt.Sprintf("task kind %s: no migration from version %d to %d", rec.Kind, rec.Version, def.version)
	}
	return def, ""
}

// schedule starts every task that is runnable and has no goroutine, and the
// timers of those that wait for a time. The caller holds mu.
func (t *tree) schedule() {
	e := t.e
	if e.dead() {
		return
	}
	for id, rec := range t.tasks {
		if w := rec.State.Wait; rec.State.Status == TaskWaiting && w != nil && w.Deadline != nil && t.timers[id] == nil {
			deadline := *w.Deadline
			t.timers[id] = e.clock.AfterFunc(max(0, deadline.Sub(e.clock.Now())), func() { t.expire(id, deadline) })
		}
		if t.runs[id] != nil {
			continue
		}
		act, _, blocked := t.next(rec)
		switch act {
		case actNothing:
			continue
		case actBlocked:
			t.noteBlocked(rec, nil, blocked)
			continue
		}
		if act != actOrphan { // which must say why
			delete(t.blocked, id)
		}
		h := &taskHandle{id: id, cancel: func(error) {}}
		if !e.begin() {
			return
		}
		t.runs[id] = h
		again := t.recovered[id]
		delete(t.recovered, id)
		go func() {
			defer e.wg.Done()
			t.run(h, again)
		}()
	}
}

// blockedTask is why a task cannot run, and the definition whose migration
// failed, nil when there is no definition that fits.
type blockedTask struct {
	why string
	def *taskDef
}

// noteBlocked reports a blocked task, once a reason. The caller holds mu.
func (t *tree) noteBlocked(rec *TaskRecord, def *taskDef, why string) {
	before := t.blocked[rec.ID]
	if before.why == why {
		return
	}
	t.blocked[rec.ID] = blockedTask{why, def}
	t.e.log.Warn("task blocked", slog.Int64("task", int64(rec.ID)), slog.String("kind", rec.Kind), slog.String("reason", why))
}

// expire resumes a task whose deadline has passed.
func (t *tree) expire(id TaskID, deadline time.Time) {
	e := t.e
	if !e.begin() {
		return
	}
	defer e.wg.Done()
	for attempt := 0; ; attempt++ {
		err := t.update(withEngine(e.ctx), 0, func(_ context.Context, tx *Tx) error {
			rec := tx.task(id)
			if rec == nil || rec.State.Status != TaskWaiting || rec.AbortRequested {
				return nil
			}
			if w := rec.State.Wait; w.Deadline == nil || !w.Deadline.Equal(deadline) {
				return nil
			}
			next := tx.editTask(id)
			next.State = TaskState{Status: TaskRunning, Checkpoint: rec.State.Checkpoint}
			return nil
		})
		if err == nil || e.dead() || !e.backoff(e.ctx, attempt) {
			return
		}
	}
}

// run is the goroutine of a task: it runs phase after phase until the task
// stops being runnable.
func (t *tree) run(h *taskHandle, recovered bool) {
	e := t.e
	refused := 0
	for attempt := 0; ; attempt++ {
		ctx, cancel := context.WithCancelCause(withEngine(e.ctx))
		r, act, why := t.take(h, cancel)
		if r == nil {
			cancel(nil)
			return
		}
		r.recovered = recovered
		recovered = false
		var err error
		switch {
		case refused > maxRefused:
			err = r.fault(fmt.Errorf("its commits were refused %d times", refused))
		case act == actPhase:
			err = r.runPhase(ctx)
		case act == actAbort:
			err = r.runAbort(ctx)
		case act == actOrphan:
			err = r.end(ctx, Outcome{Status: OutcomeOrphaned, Reason: why})
		}
		cancel(nil)
		if m, ok := errors.AsType[*migrationError](err); ok {
			t.mu.Lock()
			t.noteBlocked(r.rec, r.def, m.Error())
			t.mu.Unlock()
			err = nil
		}
		if ended, ok := errors.AsType[*endedError](err); ok && ended.id == h.id {
			err = nil
		}
		if err == nil {
			attempt = -1
			if !r.recovered {
				// A phase that only cleared up after a refusal is no success.
				refused = 0
			}
			continue
		}
		if errors.Is(err, ErrRejected) {
			refused++
		}
		// The store refused a commit or could not be reached: the phase is run
		// again, as after a crash.
		e.log.Warn("task will be tried again", slog.Int64("task", int64(h.id)), slog.Int("attempt", attempt+1), slog.Any("error", err))
		e.backoff(e.ctx, attempt)
		recovered = true
	}
}

// maxRefused bounds how often a phase is run again because the store refused
// its commits: what it does between them may cost.
const maxRefused = 3

// take decides what a task's goroutine does next, and gives up the handle, with
// a nil run, when there is nothing to do. cancel ends what it runs.
func (t *tree) take(h *taskHandle, cancel context.CancelCauseFunc) (r *taskRun, act action, why string) {
	e := t.e
	alive := t.ensure()
	t.mu.Lock()
	defer t.mu.Unlock()
	rec := t.tasks[h.id]
	act, def, why := t.next(rec)
	if alive && act != actNothing && act != actBlocked {
		h.cancel, h.aborting = cancel, act != actPhase
		return &taskRun{e: e, t: t, h: h, def: def, rec: rec, began: stamp(e.clock.Now())}, act, why
	}
	delete(t.runs, h.id)
	if act == actBlocked {
		t.noteBlocked(rec, nil, why)
	}
	t.wakeWaiters()
	return nil, act, why
}

// wakeWaiters lets those who await a change look again. The caller holds mu.
func (t *tree) wakeWaiters() {
	if t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
}
