package durable

import (
	"encoding/json"
	"fmt"

	"github.com/wp-durable/wp-durable/durable/model"
)

// queue returns the queued submissions of a conversation, by id: its inbox.
func (tx *Tx) queue(id ConversationID) []*SubmissionRecord {
	var out []*SubmissionRecord
	for _, s := range tx.openSubs() {
		if s.ConversationID == id && s.Status == SubmissionQueued {
			out = append(out, s)
		}
	}
	return out
}

// placeFinal places what waits at the end of a run: all writes, then all
// steers if there are any, else one follow-up, or all of them by setting. The
// inputs placed start the next run (E8.2).
func (tx *Tx) placeFinal(id ConversationID) error {
	var inputs []*SubmissionRecord
	steers := false
	for _, s := range tx.queue(id) {
		if s.Type == SubmissionWrite {
			if err := tx.placeWrite(s); err != nil {
				return err
			}
			continue
		}
		inputs = append(inputs, s)
		steers = steers || s.Queued.WhenBusy == Steer
	}
	var next []*SubmissionRecord
	for _, s := range inputs {
		switch {
		case steers && s.Queued.WhenBusy != Steer:
		case !steers && !tx.e.opts.AllFollowUps && len(next) == 1:
		default:
			next = append(next, s)
		}
	}
	if c := tx.conversation(id); c != nil && c.Owner != nil {
		if owner := tx.task(c.Owner.TaskID); owner != nil && ending(owner) {
			// No run can start below a task that ends (E7.1).
			for _, s := range inputs {
				if err := tx.withdraw(s.ID, ReasonAborted); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if len(next) == 0 {
		return nil
	}
	return tx.startRun(id, next)
}

// placeAfterTools places what waits after a tool round: all writes, then all
// steers, which join the run. It reports whether a reset was among them.
func (tx *Tx) placeAfterTools(id ConversationID, run TaskID) (placed, reset bool, err error) {
	queue := tx.queue(id)
	for _, s := range queue {
		if s.Type != SubmissionWrite {
			continue
		}
		reset = reset || s.Queued.Entry.Kind == KindReset
		if err := tx.placeWrite(s); err != nil {
			return false, false, err
		}
		placed = true
	}
	if reset {
		return true, true, nil
	}
	for _, s := range queue {
		if s.Type == SubmissionInput && s.Queued.WhenBusy == Steer {
			if err := tx.placeInput(s, run); err != nil {
				return false, false, err
			}
			placed = true
		}
	}
	return placed, false, nil
}

// startRun places inputs and starts the generation that answers them.
func (tx *Tx) startRun(id ConversationID, inputs []*SubmissionRecord) error {
	in := generationInput{}
	for _, s := range inputs {
		in.Submissions = append(in.Submissions, s.ID)
		if in.OutputTokens == 0 {
			in.OutputTokens = s.OutputTokens
		}
	}
	run, err := tx.startTask(generationTask.taskDef(), marshalRaw(in), TaskOptions{Conversation: id})
	if err != nil {
		return err
	}
	tx.emit(id, EventRunStart, RunEvent{ConversationID: id, TaskID: run, SubmissionID: inputs[0].ID, SubmissionIDs: in.Submissions})
	for _, s := range inputs {
		if err := tx.placeInput(s, run); err != nil {
			return err
		}
	}
	return nil
}

// placeInput writes the entry of an input that joins a run.
func (tx *Tx) placeInput(s *SubmissionRecord, run TaskID) error {
	s = tx.editSub(s.ID)
	entry, err := tx.appendEntry(s.ConversationID, EntrySpec{
		Kind:  KindUser,
		Model: []model.Message{{Role: model.RoleUser, Content: s.Queued.Content, Timestamp: tx.at}},
	})
	if err != nil {
		return err
	}
	tx.entries[len(tx.entries)-1].ByTaskID = 0 // the submitter wrote it, whoever placed it
	s.Status, s.EntryID, s.TaskID, s.Queued = SubmissionPlaced, entry, run, nil
	tx.emitSub(s)
	return nil
}

// placeWrite writes the entry of a write and ends the submission.
func (tx *Tx) placeWrite(s *SubmissionRecord) error {
	s = tx.editSub(s.ID)
	spec := *s.Queued.Entry
	stale, err := tx.stale(s.ConversationID, spec.Head)
	if err != nil {
		return err
	}
	if stale {
		tx.settleSub(s, SubmissionUnanswered, ReasonStale, nil)
		return nil
	}
	entry, err := tx.appendEntry(s.ConversationID, spec)
	if err != nil {
		return err
	}
	tx.entries[len(tx.entries)-1].ByTaskID = 0
	s.EntryID = entry
	tx.settleSub(s, SubmissionDone, "", nil)
	return nil
}

// stale reports whether a head lies before the active range of the
// conversation, where the model no longer looks (E8.3).
func (tx *Tx) stale(id ConversationID, head EntryID) (bool, error) {
	if head <= 0 {
		return false, nil
	}
	for i := len(tx.entries) - 1; i >= 0; i-- {
		if e := &tx.entries[i]; e.ConversationID == id && e.Head != 0 {
			return head < e.Head, nil
		}
	}
	newest, err := tx.e.newestHead(tx.ctx, tx.t, id)
	if err != nil {
		return false, err
	}
	return newest != nil && head < newest.Head, nil
}

// resetEntry is the write that begins a new context, with a first user message
// when text is not empty.
func resetEntry(text string) EntrySpec {
	spec := EntrySpec{Kind: KindReset, Head: headSelf}
	if text != "" {
		spec.Model = []model.Message{{Role: model.RoleUser, Content: []model.Block{model.Text(text)}}}
	}
	return spec
}

// withdraw ends a queued submission.
func (tx *Tx) withdraw(id SubmissionID, reason string) error {
	s := tx.sub(id)
	if s == nil {
		return fmt.Errorf("submission %d: %w", id, ErrSettled)
	}
	if s.Status != SubmissionQueued {
		return fmt.Errorf("submission %d: %w", id, ErrAlreadyPlaced)
	}
	tx.settleSub(tx.editSub(id), SubmissionUnanswered, reason, nil)
	return nil
}

// errorDetail is the detail of a submission that a model error left without an
// answer.
func errorDetail(err *model.Error) json.RawMessage {
	return marshalRaw(struct {
		Class   model.Class `json:"class"`
		Message string      `json:"message"`
	}{err.Class, err.Message})
}
