package durable

import (
	"context"
	"errors"
	"fmt"
)

// reach is a store as the engine asks it. When it cannot answer, the error says
// so with errUnreachable: that is nobody's fault but the store's, so that
// whoever asked for a task waits and asks again, and the task is not blamed
// (E4.3).
type reach struct{ Store }

// answered marks the error of a call that had no answer. One that the caller
// has caused, and one that ends the store, are told as they are.
func answered[T any](v T, err error) (T, error) {
	switch {
	case err == nil, errors.Is(err, ErrNotFound), errors.Is(err, ErrInvalid),
		errors.Is(err, ErrStoreFailed), errors.Is(err, ErrStoreClosed),
		errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return v, err
	}
	return v, fmt.Errorf("%w: %w", errUnreachable, err)
}

func (s reach) AllocateIDs(ctx context.Context, n int) (int64, error) {
	return answered(s.Store.AllocateIDs(ctx, n))
}

func (s reach) Conversation(ctx context.Context, id ConversationID) (ConversationRecord, error) {
	return answered(s.Store.Conversation(ctx, id))
}

func (s reach) TreeConversations(ctx context.Context, tree ConversationID) ([]ConversationRecord, error) {
	return answered(s.Store.TreeConversations(ctx, tree))
}

func (s reach) Conversations(ctx context.Context, q ConversationQuery) ([]ConversationRecord, error) {
	return answered(s.Store.Conversations(ctx, q))
}

func (s reach) Claimed(ctx context.Context, scope, key string) (int64, error) {
	return answered(s.Store.Claimed(ctx, scope, key))
}

func (s reach) Entry(ctx context.Context, id EntryID) (Entry, error) {
	return answered(s.Store.Entry(ctx, id))
}

func (s reach) Entries(ctx context.Context, q EntryQuery) ([]Entry, error) {
	return answered(s.Store.Entries(ctx, q))
}

func (s reach) NewestHead(ctx context.Context, id ConversationID, upTo EntryID) (Entry, error) {
	return answered(s.Store.NewestHead(ctx, id, upTo))
}

func (s reach) Task(ctx context.Context, id TaskID) (TaskRecord, error) {
	return answered(s.Store.Task(ctx, id))
}

func (s reach) Tasks(ctx context.Context, q TaskQuery) ([]TaskRecord, error) {
	return answered(s.Store.Tasks(ctx, q))
}

func (s reach) LiveTrees(ctx context.Context, after ConversationID, limit int) ([]ConversationID, error) {
	return answered(s.Store.LiveTrees(ctx, after, limit))
}

func (s reach) Partial(ctx context.Context, id TaskID) ([][]byte, error) {
	return answered(s.Store.Partial(ctx, id))
}

func (s reach) Submission(ctx context.Context, id SubmissionID) (SubmissionRecord, error) {
	return answered(s.Store.Submission(ctx, id))
}

func (s reach) SubmissionByRequest(ctx context.Context, conversation ConversationID, requestID string) (SubmissionRecord, error) {
	return answered(s.Store.SubmissionByRequest(ctx, conversation, requestID))
}

func (s reach) OpenSubmissions(ctx context.Context, tree ConversationID) ([]SubmissionRecord, error) {
	return answered(s.Store.OpenSubmissions(ctx, tree))
}

func (s reach) Document(ctx context.Context, key DocKey) (DocRecord, error) {
	return answered(s.Store.Document(ctx, key))
}

func (s reach) Documents(ctx context.Context, scope Scope, owner int64) ([]DocRecord, error) {
	return answered(s.Store.Documents(ctx, scope, owner))
}

func (s reach) DocumentAsOf(ctx context.Context, key DocKey, at EntryID) (DocRecord, error) {
	return answered(s.Store.DocumentAsOf(ctx, key, at))
}
