package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/wp-durable/wp-durable/durable"
)

type submission struct {
	id           durable.SubmissionID
	conversation durable.ConversationID
	requestID    string
	open         bool // queued or placed
	json         []byte
}

type requestKey struct {
	conversation durable.ConversationID
	requestID    string
}

func encodeSubmission(r *durable.SubmissionRecord) (submission, error) {
	data, err := encode(r)
	if err != nil {
		return submission{}, fmt.Errorf("submission %d: %w", r.ID, err)
	}
	return submission{
		id: r.ID, conversation: r.ConversationID, requestID: r.RequestID,
		open: r.Status == durable.SubmissionQueued || r.Status == durable.SubmissionPlaced,
		json: data,
	}, nil
}

// checkRequests refuses a request id that another submission of the
// conversation has, or gets by the same batch.
func (s *Store) checkRequests(submissions []submission) error {
	fresh := map[requestKey]durable.SubmissionID{}
	for _, sub := range submissions {
		if sub.requestID == "" {
			continue
		}
		k := requestKey{sub.conversation, sub.requestID}
		for _, taken := range []map[requestKey]durable.SubmissionID{s.requests, fresh} {
			if id, ok := taken[k]; ok && id != sub.id {
				return fmt.Errorf("submission %d: request id %q is of submission %d: %w",
					sub.id, sub.requestID, id, durable.ErrRejected)
			}
		}
		fresh[k] = sub.id
	}
	return nil
}

func (s *Store) putSubmission(sub submission) {
	if old, ok := s.submissions[sub.id]; ok {
		delete(s.open[old.conversation], sub.id)
		delete(s.requests, requestKey{old.conversation, old.requestID})
	}
	s.submissions[sub.id] = sub
	open := s.open[sub.conversation]
	if sub.open && open == nil {
		open = map[durable.SubmissionID]bool{}
		s.open[sub.conversation] = open
	}
	if sub.open {
		open[sub.id] = true
	}
	if sub.requestID != "" {
		s.requests[requestKey{sub.conversation, sub.requestID}] = sub.id
	}
}

// Submission returns one submission.
func (s *Store) Submission(ctx context.Context, id durable.SubmissionID) (durable.SubmissionRecord, error) {
	var out durable.SubmissionRecord
	err := s.read(ctx, fmt.Sprintf("submission %d", id), func() error {
		sub, ok := s.submissions[id]
		if !ok {
			return durable.ErrNotFound
		}
		return decode(sub.json, &out)
	})
	return out, err
}

// SubmissionByRequest finds a conversation's submission by request id.
func (s *Store) SubmissionByRequest(ctx context.Context, conversation durable.ConversationID, requestID string) (durable.SubmissionRecord, error) {
	var out durable.SubmissionRecord
	err := s.read(ctx, fmt.Sprintf("submission %q of conversation %d", requestID, conversation), func() error {
		id, ok := s.requests[requestKey{conversation, requestID}]
		if !ok {
			return durable.ErrNotFound
		}
		return decode(s.submissions[id].json, &out)
	})
	return out, err
}

// OpenSubmissions returns those of a tree that are queued or placed, by id.
func (s *Store) OpenSubmissions(ctx context.Context, tree durable.ConversationID) ([]durable.SubmissionRecord, error) {
	var out []durable.SubmissionRecord
	err := s.read(ctx, fmt.Sprintf("open submissions of tree %d", tree), func() (err error) {
		var ids []durable.SubmissionID
		for _, conversation := range s.members[tree] {
			ids = slices.AppendSeq(ids, maps.Keys(s.open[conversation]))
		}
		slices.Sort(ids)
		var page [][]byte
		for _, id := range ids {
			page = append(page, s.submissions[id].json)
		}
		out, err = decodeAll[durable.SubmissionRecord](page)
		return err
	})
	return out, err
}
