package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/wp-durable/wp-durable/durable"
)

var concurrencyTests = map[string]func(t *testing.T, h Harness){
	"readers never see half a batch":         testHalfBatch,
	"a committed batch is read at once":      testReadAtOnce,
	"a claim has one winner":                 testOneWinner,
	"a global document loses no update":      testNoLostUpdate,
	"ids are given out once":                 testIDsOnce,
	"a rejected batch leaves others alone":   testRejectedAmongOthers,
	"cancelled commits are stored or not":    testCancelledCommits,
	"close waits for the commits under way":  testCloseUnderWay,
	"commit numbers are unique, and rising":  testSeqConcurrent,
	"readers of documents see one state too": testVisitOneState,
}

// pair is a batch whose records come in twos.
func pair(tree durable.ConversationID, id []int64, n int) durable.Batch {
	value := []byte(strconv.Itoa(n))
	doc := func(kind string) durable.DocumentWrite {
		return durable.DocumentWrite{Record: durable.DocRecord{
			DocKey: durable.DocKey{Scope: durable.ScopeConversation, Owner: int64(tree), Kind: "pair", Key: kind}, Value: value,
		}}
	}
	b := durable.Batch{Fence: durable.Fence{Tree: tree}, Documents: []durable.DocumentWrite{doc("a"), doc("b")}}
	for i := range 2 {
		b.Entries = append(b.Entries, durable.Entry{ID: durable.EntryID(id[i]), ConversationID: tree, Kind: "k"})
		b.Tasks = append(b.Tasks, durable.TaskRecord{ID: durable.TaskID(id[2+i]), ConversationID: tree, TreeID: tree, Input: value})
		b.Submissions = append(b.Submissions, durable.SubmissionRecord{ID: durable.SubmissionID(id[4+i]), ConversationID: tree, Status: durable.SubmissionQueued})
		b.Partials = append(b.Partials, durable.PartialWrite{TaskID: 1, Data: []byte("x")})
	}
	return b
}

func testHalfBatch(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	tree := newTree(t, s)
	done := make(chan struct{})
	var readers errgroup.Group
	even := func(what string, n int, err error) error {
		if err == nil && n%2 != 0 {
			err = fmt.Errorf("%d %s", n, what)
		}
		return err
	}
	for range 3 {
		readers.Go(func() error {
			for {
				entries, err := s.Entries(ctx, durable.EntryQuery{ConversationID: tree})
				if err := even("entries", len(entries), err); err != nil {
					return err
				}
				tasks, err := s.Tasks(ctx, durable.TaskQuery{TreeID: tree, Live: true})
				if err := even("tasks", len(tasks), err); err != nil {
					return err
				}
				open, err := s.OpenSubmissions(ctx, tree)
				if err := even("submissions", len(open), err); err != nil {
					return err
				}
				partial, err := s.Partial(ctx, 1)
				if err := even("deltas", len(partial), err); err != nil {
					return err
				}
				documents, err := s.Documents(ctx, durable.ScopeConversation, int64(tree))
				if err != nil {
					return err
				}
				if len(documents) == 2 && string(documents[0].Value) != string(documents[1].Value) {
					return fmt.Errorf("documents %s and %s", documents[0].Value, documents[1].Value)
				}
				select {
				case <-done:
					return nil
				default:
				}
			}
		})
	}
	id := ids(t, s, 60*6)
	var writers errgroup.Group
	for w := range 3 {
		writers.Go(func() error {
			for n := range 20 {
				i := w*20 + n
				b := pair(tree, id[i*6:], i)
				if _, err := s.Commit(ctx, &b); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, writers.Wait())
	close(done)
	require.NoError(t, readers.Wait())
}

// VisitDocuments reads many documents; all are of one state.
func testVisitOneState(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	const n = 300
	all := func(value int) durable.Batch {
		var b durable.Batch
		for owner := range int64(n) {
			b.Documents = append(b.Documents, put(durable.DocKey{Scope: durable.ScopeConversation, Owner: owner, Kind: "k"}, strconv.Itoa(value)))
		}
		return b
	}
	mustCommit(t, s, all(0))
	var writer errgroup.Group
	started := make(chan struct{})
	var once sync.Once
	writer.Go(func() error {
		<-started
		for value := 1; value < 10; value++ {
			b := all(value)
			if _, err := s.Commit(ctx, &b); err != nil {
				return err
			}
		}
		return nil
	})
	for range 5 {
		values := map[string]int{}
		require.NoError(t, s.VisitDocuments(ctx, durable.ScopeConversation, "k", func(d durable.DocRecord) error {
			values[string(d.Value)]++
			once.Do(func() { close(started) })
			return nil
		}))
		require.Len(t, values, 1)
	}
	require.NoError(t, writer.Wait())
}

func testReadAtOnce(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	tree := newTree(t, s)
	id := ids(t, s, 160)
	var g errgroup.Group
	for w := range 8 {
		g.Go(func() error {
			for n := range 20 {
				e := durable.EntryID(id[w*20+n])
				if _, err := s.Commit(ctx, &durable.Batch{Entries: []durable.Entry{{ID: e, ConversationID: tree, Kind: "k"}}}); err != nil {
					return err
				}
				if _, err := s.Entry(ctx, e); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

func testOneWinner(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	const rounds, racers = 10, 8
	for round := range rounds {
		key := strconv.Itoa(round)
		wins := make(chan int64, racers)
		var g errgroup.Group
		for r := range int64(racers) {
			g.Go(func() error {
				b := claim("race", key, r)
				_, err := s.Commit(ctx, &b)
				var conflict *durable.ConflictError
				switch {
				case err == nil:
					wins <- r
				case !errors.As(err, &conflict):
					return err
				default:
					// The winner of a conflict is stored already.
					value, err := s.Claimed(ctx, "race", key)
					if err != nil || value != conflict.Claim.Value {
						return fmt.Errorf("winner %d, stored %d: %w", conflict.Claim.Value, value, err)
					}
				}
				return nil
			})
		}
		require.NoError(t, g.Wait())
		require.Len(t, wins, 1)
		value, err := s.Claimed(ctx, "race", key)
		require.NoError(t, err)
		require.Equal(t, value, <-wins)
	}
}

func testNoLostUpdate(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	key := durable.DocKey{Scope: durable.ScopeGlobal, Kind: "counter"}
	const workers, increments = 6, 15
	var g errgroup.Group
	for range workers {
		g.Go(func() error {
			for range increments {
				read := durable.DocRecord{DocKey: key, Value: []byte("0")}
				for {
					n, err := strconv.Atoi(string(read.Value))
					if err != nil {
						return err
					}
					w := put(key, strconv.Itoa(n+1))
					w.Expect = read.Revision
					_, err = s.Commit(ctx, &durable.Batch{Documents: []durable.DocumentWrite{w}})
					var conflict *durable.ConflictError
					if err == nil {
						break
					} else if !errors.As(err, &conflict) {
						return err
					}
					read = *conflict.Document
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	requireDocument(t, s, key, workers*increments, strconv.Itoa(workers*increments))
}

func testIDsOnce(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	var mu sync.Mutex
	seen := map[int64]bool{}
	var g errgroup.Group
	for w := range 8 {
		g.Go(func() error {
			for range 20 {
				first, err := s.AllocateIDs(ctx, w+1)
				if err != nil {
					return err
				}
				mu.Lock()
				for id := first; id < first+int64(w+1); id++ {
					if seen[id] {
						err = fmt.Errorf("id %d twice", id)
					}
					seen[id] = true
				}
				mu.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

func testRejectedAmongOthers(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	tree := newTree(t, s)
	taken := ids(t, s, 1)[0]
	mustCommit(t, s, durable.Batch{Entries: []durable.Entry{{ID: durable.EntryID(taken), ConversationID: tree, Kind: "k"}}})
	id := ids(t, s, 200*6)
	var g errgroup.Group
	for w := range 20 {
		g.Go(func() error {
			for n := range 10 {
				i := w*10 + n
				b := pair(tree, id[i*6:], i)
				bad := i%3 == 0
				if bad {
					b.Entries[1].ID = durable.EntryID(taken)
				}
				_, err := s.Commit(ctx, &b)
				if bad != errors.Is(err, durable.ErrRejected) || !bad && err != nil {
					return fmt.Errorf("batch %d: %w", i, err)
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for i := range 200 {
		for j := range 2 {
			_, err := s.Task(ctx, durable.TaskID(id[i*6+2+j]))
			if i%3 == 0 {
				require.ErrorIs(t, err, durable.ErrNotFound)
			} else {
				require.NoError(t, err)
			}
		}
	}
}
