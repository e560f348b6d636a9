package durable

import (
	"context"
	"errors"
	"fmt"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Submission is a handle on a stored submission. It holds no state of its own;
// its methods may be called concurrently.
type Submission struct {
	e            *Engine
	id           SubmissionID
	conversation ConversationID
}

// Submission returns a stored submission, or [ErrNotFound].
func (e *Engine) Submission(ctx context.Context, id SubmissionID) (*Submission, error) {
	rec, err := e.store.Submission(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("submission %d: %w", id, err)
	}
	return &Submission{e: e, id: id, conversation: rec.ConversationID}, nil
}

// ID returns the submission's id.
func (s *Submission) ID() SubmissionID { return s.id }

// ConversationID returns the conversation it was handed to.
func (s *Submission) ConversationID() ConversationID { return s.conversation }

// Record returns the submission as it is stored now.
func (s *Submission) Record(ctx context.Context) (SubmissionRecord, error) {
	rec, err := s.e.store.Submission(ctx, s.id)
	if err != nil {
		return rec, fmt.Errorf("submission %d: %w", s.id, err)
	}
	return rec, nil
}

// Wait returns the submission once it is settled. When ctx ends or the engine
// closes first, it returns the error beside the submission as it is then.
func (s *Submission) Wait(ctx context.Context) (SubmissionRecord, error) {
	if _, ok := s.e.cached(s.conversation); !ok {
		// An ended one needs no tree in memory.
		if rec, err := s.Record(ctx); err != nil || rec.SettledAt != nil {
			return rec, err
		}
	}
	t, release, err := s.e.acquire(ctx, s.conversation)
	if err != nil {
		return SubmissionRecord{}, err
	}
	defer release()
	waitErr := t.await(ctx, func() bool { return t.loaded && t.subs[s.id] == nil })
	rec, err := s.Record(context.WithoutCancel(ctx))
	if err != nil {
		return rec, err
	}
	if rec.SettledAt != nil {
		return rec, nil
	}
	return rec, waitErr
}

// Withdraw takes a queued submission back: it ends unanswered, aborted. One
// that is in the transcript already is [ErrAlreadyPlaced], one that has ended
// [ErrSettled]; both come with the submission as it is.
func (s *Submission) Withdraw(ctx context.Context) (SubmissionRecord, error) {
	err := s.e.Update(ctx, s.conversation, func(_ context.Context, tx *Tx) error {
		return tx.withdraw(s.id, ReasonAborted)
	})
	if err != nil && !errors.Is(err, ErrAlreadyPlaced) && !errors.Is(err, ErrSettled) {
		return SubmissionRecord{}, fmt.Errorf("withdraw: %w", err)
	}
	rec, rerr := s.Record(ctx)
	return rec, errors.Join(err, rerr)
}

// Answer returns the message that answered the submission, nil when there is
// none, or none yet: it does not wait, see [Submission.Wait].
func (s *Submission) Answer(ctx context.Context) (*model.Message, error) {
	rec, err := s.Record(ctx)
	if err != nil || rec.AnswerEntryID == 0 {
		return nil, err
	}
	entry, err := s.e.store.Entry(ctx, rec.AnswerEntryID)
	if err != nil {
		return nil, fmt.Errorf("answer of submission %d: %w", s.id, err)
	}
	for i := range entry.Model {
		if entry.Model[i].Role == model.RoleAssistant {
			return &entry.Model[i], nil
		}
	}
	return nil, nil
}
