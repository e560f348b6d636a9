package storetest

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var documentTests = map[string]func(t *testing.T, h Harness){
	"is not found":                      testDocumentMissing,
	"counts its revisions":              testDocumentRevision,
	"is known by scope, owner and name": testDocumentKeys,
	"remembers its versions":            testDocumentHistory,
	"is deleted with its history":       testDocumentDelete,
	"is compared when global":           testDocumentCompare,
	"is not mistaken for a later one":   testDocumentABA,
	"is visited by kind":                testDocumentVisit,
}

func put(key durable.DocKey, value string) durable.DocumentWrite {
	return durable.DocumentWrite{Record: durable.DocRecord{DocKey: key, Version: 1, Value: []byte(value)}, Expect: -1}
}

func write(t *testing.T, s durable.Store, writes ...durable.DocumentWrite) {
	t.Helper()
	mustCommit(t, s, durable.Batch{Documents: writes})
}

func requireDocument(t *testing.T, s durable.Store, key durable.DocKey, revision int64, value string) {
	t.Helper()
	got, err := s.Document(t.Context(), key)
	require.NoError(t, err)
	same(t, durable.DocRecord{DocKey: key, Version: 1, Revision: revision, Value: []byte(value)}, got)
}

func testDocumentMissing(t *testing.T, h Harness) {
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "k"}
	_, err := h.Store.Document(t.Context(), key)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = h.Store.DocumentAsOf(t.Context(), key, 9)
	require.ErrorIs(t, err, durable.ErrNotFound)
	documents, err := h.Store.Documents(t.Context(), durable.ScopeConversation, 1)
	require.NoError(t, err)
	require.Empty(t, documents)
	// Deleting what is not there is nothing.
	write(t, h.Store, durable.DocumentWrite{Record: durable.DocRecord{DocKey: key}, Delete: true})
}

// The store counts, whatever revision is given.
func testDocumentRevision(t *testing.T, h Harness) {
	for _, scope := range []durable.Scope{durable.ScopeConversation, durable.ScopeTask, durable.ScopeGlobal} {
		key := durable.DocKey{Scope: scope, Owner: 1, Kind: "k"}
		for n := range 4 {
			w := put(key, fmt.Sprint(n))
			w.Record.Revision = 99
			if scope != durable.ScopeGlobal {
				w.Expect = 42 // ignored
			}
			write(t, h.Store, w)
			requireDocument(t, h.Store, key, int64(n+1), fmt.Sprint(n))
		}
	}
}

func testDocumentKeys(t *testing.T, h Harness) {
	var keys []durable.DocKey
	for _, scope := range []durable.Scope{durable.ScopeConversation, durable.ScopeGlobal, durable.ScopeTask} {
		for _, owner := range []int64{0, 1, 2} {
			for _, kind := range []string{"A", "a", "b", "ä"} {
				for _, key := range []string{"", "B", "a", "ab", "b"} {
					keys = append(keys, durable.DocKey{Scope: scope, Owner: owner, Kind: kind, Key: key})
				}
			}
		}
	}
	var all []durable.DocumentWrite
	for i, key := range keys {
		all = append(all, put(key, fmt.Sprint(i)))
	}
	write(t, h.Store, all...)
	for i, key := range keys {
		requireDocument(t, h.Store, key, 1, fmt.Sprint(i))
	}
	// Listed in the order of bytes, 20 of each owner.
	for n := 0; n < len(keys); n += 20 {
		got, err := h.Store.Documents(t.Context(), keys[n].Scope, keys[n].Owner)
		require.NoError(t, err)
		require.Len(t, got, 20)
		for i, d := range got {
			require.Equal(t, keys[n+i], d.DocKey)
		}
	}
}

// E5.4: each version is seen from the entry of its commit on.
func testDocumentHistory(t *testing.T, h Harness) {
	s := h.Store
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "k"}
	other := durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "k", Key: "other"}
	at := func(k durable.DocKey, e durable.EntryID, value string) durable.DocumentWrite {
		w := put(k, value)
		w.At = e
		return w
	}
	write(t, s, at(key, 10, `"a"`), at(other, 5, `"x"`))
	write(t, s, at(key, 20, `"b"`))
	write(t, s, at(key, 20, `"c"`)) // the last of one place counts
	write(t, s, put(key, `"d"`))    // keeps no history
	write(t, s, at(key, 30, `"e"`))
	requireDocument(t, s, key, 5, `"e"`)
	for _, want := range []struct {
		at       durable.EntryID
		revision int64
		value    string
	}{{9, 0, ""}, {10, 1, `"a"`}, {19, 1, `"a"`}, {20, 3, `"c"`}, {29, 3, `"c"`}, {30, 5, `"e"`}, {1 << 40, 5, `"e"`}} {
		got, err := s.DocumentAsOf(t.Context(), key, want.at)
		if want.revision == 0 {
			require.ErrorIs(t, err, durable.ErrNotFound)
			continue
		}
		require.NoError(t, err)
		same(t, durable.DocRecord{DocKey: key, Version: 1, Revision: want.revision, Value: []byte(want.value)}, got)
	}
	documents, err := s.Documents(t.Context(), durable.ScopeConversation, 1)
	require.NoError(t, err)
	require.Len(t, documents, 2, "history is not listed")
}

func testDocumentDelete(t *testing.T, h Harness) {
	s := h.Store
	for _, scope := range []durable.Scope{durable.ScopeConversation, durable.ScopeTask, durable.ScopeGlobal} {
		key := durable.DocKey{Scope: scope, Owner: 1, Kind: "k"}
		kept := durable.DocKey{Scope: scope, Owner: 1, Kind: "k", Key: "kept"}
		w, k := put(key, "1"), put(kept, "2")
		w.At, k.At = 5, 5
		write(t, s, w, k)
		write(t, s, durable.DocumentWrite{Record: durable.DocRecord{DocKey: key}, Delete: true, Expect: -1})
		_, err := s.Document(t.Context(), key)
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, err = s.DocumentAsOf(t.Context(), key, 9)
		require.ErrorIs(t, err, durable.ErrNotFound)
		requireDocument(t, s, kept, 1, "2")
		documents, err := s.Documents(t.Context(), scope, 1)
		require.NoError(t, err)
		require.Len(t, documents, 1)
		require.NoError(t, s.VisitDocuments(t.Context(), scope, "k", func(d durable.DocRecord) error {
			require.Equal(t, kept, d.DocKey)
			return nil
		}))
		write(t, s, put(key, "3"))
		got, err := s.Document(t.Context(), key)
		require.NoError(t, err)
		require.Equal(t, "3", string(got.Value))
		_, err = s.DocumentAsOf(t.Context(), key, 9)
		require.ErrorIs(t, err, durable.ErrNotFound)
	}
}

func conflictOf(t *testing.T, s durable.Store, w durable.DocumentWrite) *durable.DocRecord {
	t.Helper()
	_, err := s.Commit(t.Context(), &durable.Batch{Documents: []durable.DocumentWrite{w}})
	require.ErrorIs(t, err, durable.ErrRejected)
	var conflict *durable.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Nil(t, conflict.Claim)
	require.NotNil(t, conflict.Document)
	return conflict.Document
}

// E4.1: a global document is written only over the revision that was read.
func testDocumentCompare(t *testing.T, h Harness) {
	s := h.Store
	key := durable.DocKey{Scope: durable.ScopeGlobal, Kind: "k"}
	expect := func(revision int64, value string) durable.DocumentWrite {
		w := put(key, value)
		w.Expect = revision
		return w
	}
	same(t, &durable.DocRecord{DocKey: key}, conflictOf(t, s, expect(1, "0")))
	write(t, s, expect(0, "1"))
	first := &durable.DocRecord{DocKey: key, Version: 1, Revision: 1, Value: []byte("1")}
	same(t, first, conflictOf(t, s, expect(0, "2")))
	same(t, first, conflictOf(t, s, expect(2, "2")))
	write(t, s, expect(1, "2"))
	write(t, s, expect(-1, "3"))
	requireDocument(t, s, key, 3, "3")

	remove := expect(2, "")
	remove.Delete = true
	require.Equal(t, int64(3), conflictOf(t, s, remove).Revision)
	remove.Expect = 3
	write(t, s, remove)
	_, err := s.Document(t.Context(), key)
	require.ErrorIs(t, err, durable.ErrNotFound)
	same(t, &durable.DocRecord{DocKey: key}, conflictOf(t, s, expect(3, "4")))
	write(t, s, expect(0, "4"))
}

// Who read a document that was deleted and made anew does not overwrite it.
func testDocumentABA(t *testing.T, h Harness) {
	s := h.Store
	key := durable.DocKey{Scope: durable.ScopeGlobal, Kind: "k"}
	seen := map[int64]bool{}
	for range 3 {
		w := put(key, "1")
		w.Expect = 0
		write(t, s, w)
		got, err := s.Document(t.Context(), key)
		require.NoError(t, err)
		require.False(t, seen[got.Revision], "revision %d comes again", got.Revision)
		seen[got.Revision] = true
		for range 2 { // deleting it twice is deleting it once
			write(t, s, durable.DocumentWrite{Record: durable.DocRecord{DocKey: key}, Delete: true, Expect: -1})
		}
	}
}

func testDocumentVisit(t *testing.T, h Harness) {
	s := h.Store
	want := map[durable.DocKey]string{}
	var all []durable.DocumentWrite
	for owner := range int64(50) {
		for _, kind := range []string{"visited", "other"} {
			for _, scope := range []durable.Scope{durable.ScopeConversation, durable.ScopeTask} {
				key := durable.DocKey{Scope: scope, Owner: owner, Kind: kind}
				w := put(key, fmt.Sprint(owner))
				w.At = 7
				all = append(all, w)
				if kind == "visited" && scope == durable.ScopeConversation {
					want[key] = fmt.Sprint(owner)
				}
			}
		}
	}
	write(t, s, all...)
	got := map[durable.DocKey]string{}
	require.NoError(t, s.VisitDocuments(t.Context(), durable.ScopeConversation, "visited", func(d durable.DocRecord) error {
		got[d.DocKey] = string(d.Value)
		// visit may read, and write.
		if len(got) == 1 {
			write(t, s, put(durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "new"}, "1"))
		}
		_, err := s.Document(t.Context(), d.DocKey)
		return err
	}))
	require.Equal(t, want, got)

	stop := errors.New("stop")
	n := 0
	err := s.VisitDocuments(t.Context(), durable.ScopeConversation, "visited", func(durable.DocRecord) error {
		n++
		return stop
	})
	require.Equal(t, stop, err, "the visitor's error is returned as it is")
	require.Equal(t, 1, n)
}
