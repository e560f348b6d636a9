package sqlstore

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type submissionRow struct {
	id, conversation int64
	requestID        any // []byte, or nil for none
	open             bool
	record           string
}

func encodeSubmission(s *durable.SubmissionRecord) (*submissionRow, error) {
	record, err := encode(s)
	if err != nil {
		return nil, fmt.Errorf("submission %d: %w", s.ID, err)
	}
	r := &submissionRow{
		id: int64(s.ID), conversation: int64(s.ConversationID),
		open:   s.Status == durable.SubmissionQueued || s.Status == durable.SubmissionPlaced,
		record: record,
	}
	if s.RequestID != "" {
		r.requestID = []byte(s.RequestID)
	}
	return r, nil
}

func (r *submissionRow) write(t *tx) error {
	statement := putSettledSubmission
	if r.open {
		statement = putOpenSubmission
	}
	n, err := t.exec(statement, r.id, r.conversation, r.requestID, r.record)
	if err == nil && n == 0 {
		_, err = t.exec(replaceSubmission, r.conversation, r.requestID, flag(r.open), r.record, r.id)
	}
	if err != nil {
		return fmt.Errorf("submission %d: %w", r.id, err)
	}
	return nil
}

// Submission returns one submission.
func (s *Store) Submission(ctx context.Context, id durable.SubmissionID) (out durable.SubmissionRecord, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = one[durable.SubmissionRecord](ctx, db.NewSelect().Table("submissions").Where("id = ?", int64(id)))
		return err
	})
	return out, wrap(err, "submission %d", id)
}

// SubmissionByRequest finds a conversation's submission by request id.
func (s *Store) SubmissionByRequest(ctx context.Context, conversation durable.ConversationID, requestID string) (out durable.SubmissionRecord, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = one[durable.SubmissionRecord](ctx, db.NewSelect().Table("submissions").
			Where("conversation_id = ?", int64(conversation)).Where("request_id = ?", []byte(requestID)))
		return err
	})
	return out, wrap(err, "submission %q of conversation %d", requestID, conversation)
}

// OpenSubmissions returns those of a tree that are queued or placed, by id.
func (s *Store) OpenSubmissions(ctx context.Context, tree durable.ConversationID) (out []durable.SubmissionRecord, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = list[durable.SubmissionRecord](ctx, db.NewSelect().Table("submissions").
			Where("conversation_id IN (SELECT c.id FROM conversations AS c WHERE c.tree_id = ?)", int64(tree)).
			Where("open = 1").Order("id"))
		return err
	})
	return out, wrap(err, "open submissions of tree %d", tree)
}
