package memstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
)

func TestStore_CommitAndRead(t *testing.T) {
	t.Parallel()
	s := memstore.New()
	seq, err := s.Commit(t.Context(), &durable.Batch{
		Conversations: []durable.ConversationRecord{{ID: 1, TreeID: 1}},
		Entries:       []durable.Entry{{ID: 2, ConversationID: 1, Kind: "a"}, {ID: 3, ConversationID: 1, Kind: "b", Head: 2}},
		Tasks:         []durable.TaskRecord{{ID: 4, ConversationID: 1, TreeID: 1}},
		Submissions:   []durable.SubmissionRecord{{ID: 5, ConversationID: 1, RequestID: "r", Status: durable.SubmissionPlaced}},
		Documents:     []durable.DocumentWrite{{Record: durable.DocRecord{DocKey: durable.DocKey{Scope: durable.ScopeTask, Owner: 4, Kind: "d"}, Value: []byte("1")}}},
	})
	require.NoError(t, err)
	require.Equal(t, durable.Seq(1), seq)
	es, err := s.Entries(t.Context(), durable.EntryQuery{ConversationID: 1, From: 3})
	require.NoError(t, err)
	require.Len(t, es, 1)
	h, err := s.NewestHead(t.Context(), 1, 0)
	require.NoError(t, err)
	require.Equal(t, durable.EntryID(3), h.ID)
	ls, err := s.LiveTrees(t.Context(), 0, 1)
	require.NoError(t, err)
	require.Equal(t, []durable.ConversationID{1}, ls)
	os, err := s.OpenSubmissions(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, os, 1)
	_, err = s.Commit(t.Context(), &durable.Batch{Tasks: []durable.TaskRecord{{ID: 4, ConversationID: 1, TreeID: 1, State: durable.TaskState{Status: durable.TaskTerminal}}}})
	require.NoError(t, err)
	_, err = s.Document(t.Context(), durable.DocKey{Scope: durable.ScopeTask, Owner: 4, Kind: "d"})
	require.ErrorIs(t, err, durable.ErrNotFound)
}
