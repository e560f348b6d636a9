package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var submissionTests = map[string]func(t *testing.T, h Harness){
	"is not found":                        testSubmissionMissing,
	"is replaced by id":                   testSubmissionReplace,
	"is found by request id":              testSubmissionRequest,
	"keeps its request id for ever":       testSubmissionForEver,
	"is open until settled, tree by tree": testSubmissionOpen,
}

func testSubmissionMissing(t *testing.T, h Harness) {
	_, err := h.Store.Submission(t.Context(), 77)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = h.Store.SubmissionByRequest(t.Context(), 77, "r")
	require.ErrorIs(t, err, durable.ErrNotFound)
	open, err := h.Store.OpenSubmissions(t.Context(), 77)
	require.NoError(t, err)
	require.Empty(t, open)
}

var submissionStatuses = []durable.SubmissionStatus{
	durable.SubmissionQueued, durable.SubmissionPlaced, durable.SubmissionDone, durable.SubmissionUnanswered,
}

func testSubmissionReplace(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	sub := sampleSubmission(durable.SubmissionID(ids(t, s, 1)[0]), tree)
	for _, from := range submissionStatuses {
		for _, to := range submissionStatuses {
			for _, status := range []durable.SubmissionStatus{from, to} {
				sub.Status = status
				sub.OutputTokens++
				mustCommit(t, s, durable.Batch{Submissions: []durable.SubmissionRecord{sub}})
				got, err := s.Submission(t.Context(), sub.ID)
				require.NoError(t, err)
				same(t, sub, got)
				got, err = s.SubmissionByRequest(t.Context(), tree, sub.RequestID)
				require.NoError(t, err)
				same(t, sub, got)
				open, err := s.OpenSubmissions(t.Context(), tree)
				require.NoError(t, err)
				if status == durable.SubmissionQueued || status == durable.SubmissionPlaced {
					same(t, []durable.SubmissionRecord{sub}, open)
				} else {
					require.Empty(t, open)
				}
			}
		}
	}
}

func testSubmissionRequest(t *testing.T, h Harness) {
	s := h.Store
	a, b := newTree(t, s), newTree(t, s)
	id := ids(t, s, 5)
	add := func(id int64, conversation durable.ConversationID, request string) error {
		_, err := s.Commit(t.Context(), &durable.Batch{Submissions: []durable.SubmissionRecord{{
			ID: durable.SubmissionID(id), ConversationID: conversation, RequestID: request, Status: durable.SubmissionQueued,
		}}})
		return err
	}
	require.NoError(t, add(id[0], a, "r"))
	require.NoError(t, add(id[1], b, "r")) // another conversation's
	require.NoError(t, add(id[2], a, "R"))
	require.NoError(t, add(id[3], a, "")) // without one, as often as wanted
	require.NoError(t, add(id[4], a, ""))
	require.ErrorIs(t, add(ids(t, s, 1)[0], a, "r"), durable.ErrRejected)
	for _, want := range []struct {
		conversation durable.ConversationID
		request      string
		id           int64
	}{{a, "r", id[0]}, {b, "r", id[1]}, {a, "R", id[2]}} {
		got, err := s.SubmissionByRequest(t.Context(), want.conversation, want.request)
		require.NoError(t, err)
		require.Equal(t, durable.SubmissionID(want.id), got.ID)
	}
	_, err := s.SubmissionByRequest(t.Context(), a, "")
	require.ErrorIs(t, err, durable.ErrNotFound)
}

// E2.5: also a settled submission keeps its request id.
func testSubmissionForEver(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	id := ids(t, s, 2)
	sub := sampleSubmission(durable.SubmissionID(id[0]), tree)
	sub.Status = durable.SubmissionDone
	mustCommit(t, s, durable.Batch{Submissions: []durable.SubmissionRecord{sub}})
	again := sampleSubmission(durable.SubmissionID(id[1]), tree)
	again.RequestID = sub.RequestID
	_, err := s.Commit(t.Context(), &durable.Batch{Submissions: []durable.SubmissionRecord{again}})
	require.ErrorIs(t, err, durable.ErrRejected)
	got, err := s.SubmissionByRequest(t.Context(), tree, sub.RequestID)
	require.NoError(t, err)
	same(t, sub, got)
}

func testSubmissionOpen(t *testing.T, h Harness) {
	s := h.Store
	tree, other := newTree(t, s), newTree(t, s)
	below := durable.ConversationID(ids(t, s, 1)[0])
	mustCommit(t, s, durable.Batch{Conversations: []durable.ConversationRecord{{ID: below, TreeID: tree, CreatedAt: epoch}}})
	var want []durable.SubmissionRecord
	for i, id := range ids(t, s, 24) {
		sub := durable.SubmissionRecord{
			ID: durable.SubmissionID(id), ConversationID: []durable.ConversationID{tree, below, other}[i%3],
			Status: submissionStatuses[i%len(submissionStatuses)], CreatedAt: epoch, ContentHash: []byte{1},
		}
		mustCommit(t, s, durable.Batch{Submissions: []durable.SubmissionRecord{sub}})
		if sub.ConversationID != other && i%len(submissionStatuses) < 2 {
			want = append(want, sub)
		}
	}
	got, err := s.OpenSubmissions(t.Context(), tree)
	require.NoError(t, err)
	same(t, want, got)
}
