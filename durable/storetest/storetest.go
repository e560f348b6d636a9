// Package storetest is the meaning of [durable.Store] as tests. Whoever writes
// a store calls [Run] from a test of it. [Faulty] makes a store that fails on
// demand, for the tests of what uses a store.
//
// It imports package durable and test libraries, and no store.
package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

// Harness is an empty store to test.
type Harness struct {
	// Store is closed by whoever made the harness, when the test has ended.
	Store durable.Store
	// Reopen closes the store and opens one with the same content. It is nil
	// for a store whose content ends with it.
	Reopen func(t *testing.T) durable.Store
}

// Run runs the conformance suite. It calls newHarness once for each test; the
// tests run in parallel.
func Run(t *testing.T, newHarness func(t *testing.T) Harness) {
	for _, group := range []struct {
		name  string
		tests map[string]func(t *testing.T, h Harness)
	}{
		{"Commit", commitTests},
		{"Conversation", conversationTests},
		{"Claim", claimTests},
		{"Entry", entryTests},
		{"Task", taskTests},
		{"Partial", partialTests},
		{"Submission", submissionTests},
		{"Document", documentTests},
		{"Value", valueTests},
		{"Concurrency", concurrencyTests},
		{"Lifetime", lifetimeTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			t.Parallel()
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, newHarness(t))
				})
			}
		})
	}
	t.Run("Random", func(t *testing.T) {
		t.Parallel()
		testRandom(t, newHarness)
	})
}

// ids hands out ids of a store.
func ids(t *testing.T, s durable.Store, n int) []int64 {
	t.Helper()
	first, err := s.AllocateIDs(t.Context(), n)
	require.NoError(t, err)
	out := make([]int64, n)
	for i := range out {
		out[i] = first + int64(i)
	}
	return out
}

// mustCommit commits a batch that must be accepted.
func mustCommit(t *testing.T, s durable.Store, b durable.Batch) durable.Seq {
	t.Helper()
	seq, err := s.Commit(t.Context(), &b)
	require.NoError(t, err)
	return seq
}

// newTree stores a conversation without owner and returns its id.
func newTree(t *testing.T, s durable.Store) durable.ConversationID {
	t.Helper()
	id := durable.ConversationID(ids(t, s, 1)[0])
	mustCommit(t, s, durable.Batch{Fence: durable.Fence{Tree: id}, Conversations: []durable.ConversationRecord{{
		ID: id, TreeID: id, CreatedAt: epoch,
	}}})
	return id
}

// same compares what was stored with what came back. A store need not tell an
// empty list from none.
func same(t *testing.T, want, got any) {
	t.Helper()
	require.Empty(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
}
