package durable

import (
	"encoding/json"
	"fmt"
	"log/slog"
)

// settle derives, inside a commit, everything that follows from what its
// callback staged, until nothing follows any more:
//
//   - abort marks flow down to ordinary work (E7.3),
//   - held outcomes become terminal when the work below is done (E7.2),
//   - waits end when what they wait for has ended (E6.5),
//   - the inputs of a run that ended without settling them are settled (E8.4),
//   - queued submissions are placed in conversations that became idle (E8.2).
//
// Because it happens in the commit itself a crash cannot separate a cause from
// what follows from it. It is run on a tree that was just read, too.
func (tx *Tx) settle() error {
	if !tx.t.fresh && len(tx.tasks) == 0 && len(tx.subs) == 0 {
		return nil
	}
	for {
		changed := tx.settleTasks()
		more, err := tx.settleSubmissions()
		if err != nil {
			return err
		}
		if !changed && !more {
			break
		}
	}
	return nil
}

// settleTasks derives the next states of tasks and reports whether any moved.
func (tx *Tx) settleTasks() bool {
	any := false
	for {
		changed := false
		live := tx.live()
		for _, rec := range live {
			if reason, ok := cascades(rec); ok {
				for _, child := range tx.below(rec.ID, live) {
					if !child.AbortRequested {
						tx.markAbort(child.ID, reason)
						changed = true
					}
				}
			}
		}
		for _, rec := range live {
			rec = tx.task(rec.ID)
			switch rec.State.Status {
			case TaskCompleting:
				if len(tx.below(rec.ID, tx.live())) == 0 {
					tx.end(tx.editTask(rec.ID), *rec.State.Outcome)
					changed = true
				}
			case TaskWaiting:
				if tx.settleWait(rec) {
					changed = true
				}
			}
		}
		if !changed {
			return any
		}
		any = true
	}
}

// cascades reports whether the work below a task is to be aborted, and why.
func cascades(rec *TaskRecord) (reason string, ok bool) {
	if rec.AbortRequested {
		return rec.AbortReason, true
	}
	if rec.State.Status == TaskCompleting && rec.State.Outcome.Status != OutcomeCompleted {
		return "owner ended " + string(rec.State.Outcome.Status), true
	}
	return "", false
}

// below returns the live ordinary tasks that a task owns, itself or through a
// conversation.
func (tx *Tx) below(id TaskID, live []*TaskRecord) []*TaskRecord {
	var out []*TaskRecord
	for _, rec := range live {
		if rec.Background {
			continue
		}
		if rec.Owner == id {
			out = append(out, rec)
		} else if rec.Owner == 0 {
			if c := tx.conversation(rec.ConversationID); c != nil && c.Owner != nil && c.Owner.TaskID == id {
				out = append(out, rec)
			}
		}
	}
	return out
}

func (tx *Tx) markAbort(id TaskID, reason string) {
	rec := tx.editTask(id)
	rec.AbortRequested = true
	rec.AbortReason = reason
}

// settleWait ends a wait on tasks that have all ended, and applies failFast.
func (tx *Tx) settleWait(rec *TaskRecord) bool {
	w := rec.State.Wait
	if w == nil || len(w.On) == 0 {
		return false
	}
	done, failed := true, false
	for _, id := range w.On {
		on := tx.task(id)
		if on == nil && w.Policy == FailFast { // seen to end, and dropped from memory
			on, _ = tx.anyTask(id)
		}
		if on == nil || on.State.Status == TaskTerminal {
			failed = failed || on != nil && on.State.Outcome.Status != OutcomeCompleted
			continue
		}
		failed = failed || on.State.Status == TaskCompleting && on.State.Outcome.Status != OutcomeCompleted
		done = false
	}
	if done {
		next := tx.editTask(rec.ID)
		next.State = TaskState{Status: TaskRunning, Checkpoint: rec.State.Checkpoint}
		return true
	}
	changed := false
	if failed && w.Policy == FailFast {
		for _, id := range w.On {
			on := tx.task(id)
			if on != nil && on.State.Status != TaskTerminal && !on.AbortRequested {
				tx.markAbort(id, "another task of the group failed")
				changed = true
			}
		}
	}
	return changed
}

// end makes a staged task terminal, or completing while ordinary work below it
// lives.
func (tx *Tx) end(rec *TaskRecord, o Outcome) {
	if rec.Kind == generationKind && rec.State.Outcome == nil && (o.Status == OutcomeFaulted || o.Status == OutcomeOrphaned) {
		tx.breakOff(rec, &o)
	}
	if len(tx.below(rec.ID, tx.live())) > 0 {
		rec.State = TaskState{Status: TaskCompleting, Outcome: &o}
		return
	}
	at := tx.at
	rec.EndedAt = &at
	rec.Memos = nil
	rec.State = TaskState{Status: TaskTerminal, Outcome: &o}
	tx.liveCache = nil
	if rec.Kind == generationKind {
		tx.emit(rec.ConversationID, EventRunEnd, RunEvent{ConversationID: rec.ConversationID, TaskID: rec.ID, SubmissionID: firstInput(rec), Outcome: o.Status})
	}
}

// settleSubmissions settles inputs whose run has ended and places what waits in
// idle conversations.
func (tx *Tx) settleSubmissions() (bool, error) {
	open := tx.openSubs()
	changed := false
	for _, s := range open {
		if s.Status != SubmissionPlaced {
			continue
		}
		run := tx.task(s.TaskID)
		var o *Outcome
		switch {
		case run == nil:
			rec, err := tx.e.store.Task(tx.ctx, s.TaskID)
			if err != nil {
				return false, fmt.Errorf("run of submission %d: %w", s.ID, err)
			}
			o = rec.State.Outcome
		default:
			o = run.State.Outcome
		}
		if o == nil {
			continue
		}
		reason, detail := unansweredBy(o)
		tx.settleSub(tx.editSub(s.ID), SubmissionUnanswered, reason, detail)
		changed = true
	}
	for len(tx.settled) > 0 {
		id := tx.settled[0]
		tx.settled = tx.settled[1:]
		if hook := tx.e.opts.OnSettle; hook != nil {
			changed = true // it may have staged what something follows from
			err := tx.e.protect("Options.OnSettle", func() error { return hook(tx.ctx, tx, tx.subs[id].clone()) })
			if err != nil {
				tx.e.log.Error("settle hook failed", slog.Int64("submission", int64(id)), slog.Any("error", err))
			}
		}
	}
	busy := map[ConversationID]bool{}
	var idle []ConversationID
	for _, s := range tx.openSubs() {
		if _, known := busy[s.ConversationID]; known || s.Status != SubmissionQueued {
			continue
		}
		busy[s.ConversationID] = tx.busy(s.ConversationID)
		if !busy[s.ConversationID] {
			idle = append(idle, s.ConversationID)
		}
	}
	for _, id := range idle {
		if err := tx.placeFinal(id); err != nil {
			return false, err
		}
		changed = true
	}
	return changed, nil
}

// unansweredBy says why the inputs of a run that ended like this stay without
// an answer.
func unansweredBy(o *Outcome) (reason string, detail json.RawMessage) {
	switch o.Status {
	case OutcomeAborted:
		return ReasonAborted, nil
	case OutcomeOrphaned:
		return o.Reason, nil
	}
	if o.Error != nil {
		return ReasonFaulted, marshalRaw(map[string]string{"message": o.Error.Message})
	}
	return ReasonFaulted, nil
}

// settleSub ends a staged submission.
func (tx *Tx) settleSub(s *SubmissionRecord, status SubmissionStatus, reason string, detail json.RawMessage) {
	at := tx.at
	s.Status, s.Reason, s.Detail, s.SettledAt, s.Queued = status, reason, detail, &at, nil
	tx.settled = append(tx.settled, s.ID)
	tx.openCache = nil
	tx.emitSub(s)
}
