package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var claimTests = map[string]func(t *testing.T, h Harness){
	"is not found":                   testClaimMissing,
	"is unique in its scope":         testClaimUnique,
	"tells the winner":               testClaimConflict,
	"of a rejected batch stays free": testClaimFree,
}

func claim(scope, key string, value int64) durable.Batch {
	return durable.Batch{Claims: []durable.Claim{{Scope: scope, Key: key, Value: value}}}
}

func testClaimMissing(t *testing.T, h Harness) {
	_, err := h.Store.Claimed(t.Context(), "s", "k")
	require.ErrorIs(t, err, durable.ErrNotFound)
}

func testClaimUnique(t *testing.T, h Harness) {
	mustCommit(t, h.Store, claim("a", "k", 1))
	mustCommit(t, h.Store, claim("b", "k", 2))
	mustCommit(t, h.Store, claim("a", "K", 3))
	mustCommit(t, h.Store, claim("a", "", 4))
	mustCommit(t, h.Store, claim("ak", "", 5))
	for _, c := range []durable.Claim{{Scope: "a", Key: "k", Value: 1}, {Scope: "b", Key: "k", Value: 2}, {Scope: "a", Key: "K", Value: 3}, {Scope: "a", Key: "", Value: 4}, {Scope: "ak", Key: "", Value: 5}} {
		value, err := h.Store.Claimed(t.Context(), c.Scope, c.Key)
		require.NoError(t, err)
		require.Equal(t, c.Value, value)
	}
}

// E4.1: the batch that comes second gets the winner.
func testClaimConflict(t *testing.T, h Harness) {
	mustCommit(t, h.Store, claim("s", "k", 1))
	b := claim("s", "k", 2)
	_, err := h.Store.Commit(t.Context(), &b)
	require.ErrorIs(t, err, durable.ErrRejected)
	var conflict *durable.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Nil(t, conflict.Document)
	require.Equal(t, &durable.Claim{Scope: "s", Key: "k", Value: 1}, conflict.Claim)
}

func testClaimFree(t *testing.T, h Harness) {
	mustCommit(t, h.Store, claim("s", "k", 1))
	b := durable.Batch{Claims: []durable.Claim{{Scope: "s", Key: "free", Value: 2}, {Scope: "s", Key: "k", Value: 2}}}
	_, err := h.Store.Commit(t.Context(), &b)
	require.ErrorIs(t, err, durable.ErrRejected)
	mustCommit(t, h.Store, claim("s", "free", 3))
}
