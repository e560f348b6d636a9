package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var entryTests = map[string]func(t *testing.T, h Harness){
	"is not found":                 testEntryMissing,
	"pages within bounds":          testEntryPages,
	"finds the newest head":        testEntryHead,
	"keeps conversations apart":    testEntryApart,
	"may come with a smaller id":   testEntrySmaller,
	"need not have a conversation": testEntryAlone,
}

func testEntryMissing(t *testing.T, h Harness) {
	_, err := h.Store.Entry(t.Context(), 77)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = h.Store.NewestHead(t.Context(), 77, 0)
	require.ErrorIs(t, err, durable.ErrNotFound)
	entries, err := h.Store.Entries(t.Context(), durable.EntryQuery{ConversationID: 77})
	require.NoError(t, err)
	require.Empty(t, entries)
}

// transcript stores n entries of two conversations in turn, the second and
// every fifth with a head, and returns those of the first.
func transcript(t *testing.T, s durable.Store, n int) []durable.Entry {
	a, b := newTree(t, s), newTree(t, s)
	var out []durable.Entry
	for i := range n {
		id := ids(t, s, 2)
		e := durable.Entry{ID: durable.EntryID(id[0]), ConversationID: a, Kind: "k", Data: raw()}
		if i%5 == 1 {
			e.Head = e.ID
		}
		out = append(out, e)
		mustCommit(t, s, durable.Batch{Entries: []durable.Entry{e}})
		mustCommit(t, s, durable.Batch{Entries: []durable.Entry{{ID: durable.EntryID(id[1]), ConversationID: b, Kind: "k", Head: 1}}})
	}
	return out
}

func testEntryPages(t *testing.T, h Harness) {
	all := transcript(t, h.Store, 12)
	bounds := []durable.EntryID{0, 1, all[0].ID, all[3].ID, all[3].ID + 1, all[11].ID, all[11].ID + 5}
	for _, from := range bounds {
		for _, to := range bounds {
			for _, limit := range []int{0, 1, 5, 12, 100} {
				for _, descending := range []bool{false, true} {
					var want []durable.Entry
					for _, e := range all {
						if (from == 0 || e.ID >= from) && (to == 0 || e.ID <= to) {
							want = append(want, e)
						}
					}
					if descending {
						slices.Reverse(want)
					}
					if limit > 0 && len(want) > limit {
						want = want[:limit]
					}
					q := durable.EntryQuery{ConversationID: all[0].ConversationID, From: from, To: to, Limit: limit, Descending: descending}
					got, err := h.Store.Entries(t.Context(), q)
					require.NoError(t, err)
					same(t, want, got)
				}
			}
		}
	}
}

func testEntryHead(t *testing.T, h Harness) {
	all := transcript(t, h.Store, 12)
	conversation := all[0].ConversationID
	got, err := h.Store.NewestHead(t.Context(), conversation, 0)
	require.NoError(t, err)
	same(t, all[11], got)
	for i, e := range all {
		got, err := h.Store.NewestHead(t.Context(), conversation, e.ID)
		if i == 0 {
			require.ErrorIs(t, err, durable.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		same(t, all[(i-1)/5*5+1], got)
	}
}

func testEntryApart(t *testing.T, h Harness) {
	a, b := transcript(t, h.Store, 3), transcript(t, h.Store, 4)
	for _, want := range [][]durable.Entry{a, b} {
		got, err := h.Store.Entries(t.Context(), durable.EntryQuery{ConversationID: want[0].ConversationID})
		require.NoError(t, err)
		same(t, want, got)
	}
}

// Ids rise within a conversation, not over the store.
func testEntrySmaller(t *testing.T, h Harness) {
	a, b := newTree(t, h.Store), newTree(t, h.Store)
	id := ids(t, h.Store, 2)
	mustCommit(t, h.Store, durable.Batch{Entries: []durable.Entry{{ID: durable.EntryID(id[1]), ConversationID: a, Kind: "k"}}})
	mustCommit(t, h.Store, durable.Batch{Entries: []durable.Entry{{ID: durable.EntryID(id[0]), ConversationID: b, Kind: "k"}}})
	for _, id := range id {
		_, err := h.Store.Entry(t.Context(), durable.EntryID(id))
		require.NoError(t, err)
	}
}

// A store does not know what records mean.
func testEntryAlone(t *testing.T, h Harness) {
	e := sampleEntry(5, 4711)
	mustCommit(t, h.Store, durable.Batch{Entries: []durable.Entry{e}})
	got, err := h.Store.Entries(t.Context(), durable.EntryQuery{ConversationID: 4711})
	require.NoError(t, err)
	same(t, []durable.Entry{e}, got)
}
