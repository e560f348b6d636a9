package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var conversationTests = map[string]func(t *testing.T, h Harness){
	"is not found":                  testConversationMissing,
	"lists a tree by id":            testConversationTree,
	"pages by creation time and id": testConversationPages,
	"pages those of one parent":     testConversationParent,
	"needs a limit":                 testConversationLimit,
	"orders times of any age":       testConversationTimes,
}

func testConversationMissing(t *testing.T, h Harness) {
	_, err := h.Store.Conversation(t.Context(), 77)
	require.ErrorIs(t, err, durable.ErrNotFound)
	tree, err := h.Store.TreeConversations(t.Context(), 77)
	require.NoError(t, err)
	require.Empty(t, tree)
}

func testConversationTree(t *testing.T, h Harness) {
	s := h.Store
	tree, other := newTree(t, s), newTree(t, s)
	var want []durable.ConversationRecord
	root, err := s.Conversation(t.Context(), tree)
	require.NoError(t, err)
	want = append(want, root)
	for _, id := range ids(t, s, 5) {
		c := sampleConversation(durable.ConversationID(id), tree)
		c.CreatedAt = epoch.Add(-time.Duration(id)) // not the order of ids
		want = append(want, c)
		mustCommit(t, s, durable.Batch{Conversations: []durable.ConversationRecord{c}})
	}
	got, err := s.TreeConversations(t.Context(), tree)
	require.NoError(t, err)
	same(t, want, got)
	got, err = s.TreeConversations(t.Context(), other)
	require.NoError(t, err)
	require.Len(t, got, 1)
}

// pages reads all pages of size limit and requires that they are want.
func pages(t *testing.T, s durable.Store, q durable.ConversationQuery, want []durable.ConversationRecord) {
	t.Helper()
	if q.Descending {
		want = slices.Clone(want)
		slices.Reverse(want)
	}
	var got []durable.ConversationRecord
	for {
		page, err := s.Conversations(t.Context(), q)
		require.NoError(t, err)
		require.LessOrEqual(t, len(page), q.Limit)
		got = append(got, page...)
		if len(page) < q.Limit {
			break
		}
		last := page[len(page)-1]
		q.After = durable.Cursor{CreatedAt: last.CreatedAt, ID: int64(last.ID)}
	}
	same(t, want, got)
}

// paged stores conversations, two of each time, and returns them in the order
// of times and ids, which is not that of the ids.
func paged(t *testing.T, s durable.Store, owner *durable.Owner) []durable.ConversationRecord {
	var out []durable.ConversationRecord
	for i, id := range ids(t, s, 11) {
		c := durable.ConversationRecord{
			ID: durable.ConversationID(id), TreeID: durable.ConversationID(id), Owner: owner,
			CreatedAt: epoch.Add(time.Duration(-i / 2)),
		}
		if owner != nil {
			c.TreeID = owner.ConversationID
		}
		out = append(out, c)
		mustCommit(t, s, durable.Batch{Conversations: []durable.ConversationRecord{c}})
	}
	slices.SortFunc(out, func(a, b durable.ConversationRecord) int {
		if n := a.CreatedAt.Compare(b.CreatedAt); n != 0 {
			return n
		}
		return int(a.ID - b.ID)
	})
	return out
}

func testConversationPages(t *testing.T, h Harness) {
	all := paged(t, h.Store, nil)
	for _, limit := range []int{1, 2, 3, 11, 100} {
		for _, descending := range []bool{false, true} {
			pages(t, h.Store, durable.ConversationQuery{Limit: limit, Descending: descending}, all)
		}
	}
}

func testConversationParent(t *testing.T, h Harness) {
	a, b := newTree(t, h.Store), newTree(t, h.Store)
	ofA := paged(t, h.Store, &durable.Owner{ConversationID: a, TaskID: 1})
	ofB := paged(t, h.Store, &durable.Owner{ConversationID: b, TaskID: 1})
	for _, limit := range []int{1, 4, 100} {
		for _, descending := range []bool{false, true} {
			pages(t, h.Store, durable.ConversationQuery{Parent: a, Limit: limit, Descending: descending}, ofA)
			pages(t, h.Store, durable.ConversationQuery{Parent: b, Limit: limit, Descending: descending}, ofB)
		}
	}
	pages(t, h.Store, durable.ConversationQuery{Parent: 99999, Limit: 1}, nil)
}

func testConversationLimit(t *testing.T, h Harness) {
	_, err := h.Store.Conversations(t.Context(), durable.ConversationQuery{})
	require.ErrorIs(t, err, durable.ErrInvalid)
	_, err = h.Store.LiveTrees(t.Context(), 0, 0)
	require.ErrorIs(t, err, durable.ErrInvalid)
}

func testConversationTimes(t *testing.T, h Harness) {
	var want []durable.ConversationRecord
	for i, at := range []time.Time{
		{}, time.Date(1969, 1, 1, 0, 0, 0, 1, time.UTC), epoch, epoch.Add(1), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		id := durable.ConversationID(1000 - i)
		want = append(want, durable.ConversationRecord{ID: id, TreeID: id, CreatedAt: at})
	}
	for _, c := range want {
		mustCommit(t, h.Store, durable.Batch{Conversations: []durable.ConversationRecord{c}})
	}
	pages(t, h.Store, durable.ConversationQuery{Limit: 2}, want)
	pages(t, h.Store, durable.ConversationQuery{Limit: 2, Descending: true}, want)
}
