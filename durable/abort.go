package durable

import (
	"cmp"
	"context"
	"fmt"
)

// AbortParams say what [Conversation.Abort] ends.
type AbortParams struct {
	// Background aborts background work too, also that of conversations below.
	Background bool
	// Reason is kept with the tasks; default "aborted".
	Reason string
}

// AbortResult is what an abort did.
type AbortResult struct {
	// Withdrawn are the queued inputs that it took back.
	Withdrawn []SubmissionID
	// Busy reports whether work still ended when the call returned.
	Busy bool
}

// Abort ends the live work of the conversation: in one commit it marks its
// tasks and takes back the inputs that wait, then it returns when the marked
// work has ended, or with ctx's error beside the result when ctx ends first:
// the abort itself is durable then and goes on. Inputs that come after the mark
// start a run of their own. An idle conversation is left as it is.
func (c *Conversation) Abort(ctx context.Context, p *AbortParams) (*AbortResult, error) {
	if p == nil {
		p = &AbortParams{}
	}
	t, release, err := c.e.acquire(ctx, c.rec.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	var res AbortResult
	var marked []TaskID
	err = t.update(ctx, 0, func(_ context.Context, tx *Tx) error {
		res, marked = AbortResult{}, nil
		for _, rec := range tx.live() {
			switch {
			case rec.Background && p.Background:
				if !tx.within(rec, c.rec.ID) {
					continue
				}
			case rec.Background, rec.ConversationID != c.rec.ID, rec.Owner != 0:
				continue // owned work follows its owner
			}
			marked = append(marked, rec.ID)
			if !rec.AbortRequested {
				tx.markAbort(rec.ID, cmp.Or(p.Reason, "aborted"))
			}
		}
		if len(marked) == 0 {
			return nil
		}
		for _, s := range tx.queue(c.rec.ID) {
			if s.Type == SubmissionInput {
				res.Withdrawn = append(res.Withdrawn, s.ID)
				if err := tx.withdraw(s.ID, ReasonAborted); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("abort conversation %d: %w", c.rec.ID, err)
	}
	err = t.await(ctx, func() bool {
		for _, id := range marked {
			if rec := t.tasks[id]; rec != nil && rec.State.Status != TaskTerminal {
				return false
			}
		}
		return true
	})
	if err != nil {
		res.Busy = true
		return &res, fmt.Errorf("abort conversation %d: %w", c.rec.ID, err)
	}
	return &res, nil
}

// within reports whether a task belongs to a conversation or to one below it,
// whether or not the task in between has ended.
func (tx *Tx) within(rec *TaskRecord, id ConversationID) bool {
	at := rec.ConversationID
	for at != id {
		c := tx.conversation(at)
		if c == nil || c.Owner == nil {
			return false
		}
		at = c.Owner.ConversationID
	}
	return true
}

// AbortTask ends one task and the ordinary work below it, and returns once it
// has ended, or with ctx's error when that ends first; the mark is durable then.
func (e *Engine) AbortTask(ctx context.Context, id TaskID, reason string) error {
	rec, err := e.Task(ctx, id)
	if err != nil {
		return err
	}
	t, release, err := e.acquire(ctx, rec.ConversationID)
	if err != nil {
		return err
	}
	defer release()
	if err := t.update(ctx, 0, func(_ context.Context, tx *Tx) error { return tx.Abort(id, cmp.Or(reason, "aborted")) }); err != nil {
		return fmt.Errorf("abort task %d: %w", id, err)
	}
	return t.await(ctx, func() bool {
		rec := t.tasks[id]
		return rec == nil || rec.State.Status == TaskTerminal
	})
}
