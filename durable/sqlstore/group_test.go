package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

func TestMain(m *testing.M) {
	runChild()
	goleak.VerifyTestMain(m)
}

func openStore(t *testing.T, opts *sqlite.Options) (*sqlstore.Store, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	return openAt(t, path, opts), path
}

func openAt(t *testing.T, path string, opts *sqlite.Options) *sqlstore.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// claim is a small batch: the key can be taken once.
func claim(key string, value int64) *durable.Batch {
	return &durable.Batch{Claims: []durable.Claim{{Scope: "s", Key: key, Value: value}}}
}

func stored(t *testing.T, s durable.Store, key string) bool {
	t.Helper()
	_, err := s.Claimed(t.Context(), "s", key)
	if err != nil {
		require.ErrorIs(t, err, durable.ErrNotFound)
	}
	return err == nil
}

// group commits the batches so that the writer takes them in one group, in
// this order, and returns their errors. fault, when not nil, is asked about the
// writer's steps from then on. meanwhile, when not nil, is called when all wait.
func group(t *testing.T, s *sqlstore.Store, batches []*durable.Batch, fault func(step string) error, meanwhile func()) []error {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	first := true
	require.NoError(t, s.SetFault(func(step string) error {
		switch {
		case !first && fault != nil:
			return fault(step)
		case first && step == sqlstore.StepCommit:
			first = false
			close(entered)
			<-leave
		}
		return nil
	}))
	var g errgroup.Group
	g.Go(func() error { // keeps the writer busy
		_, err := s.Commit(t.Context(), &durable.Batch{})
		return err
	})
	<-entered
	errs := make([]error, len(batches))
	for i, b := range batches {
		g.Go(func() error {
			_, errs[i] = s.Commit(context.Background(), b)
			return nil
		})
		for s.Queued() < i+1 {
			runtime.Gosched()
		}
	}
	if meanwhile != nil {
		meanwhile()
	}
	close(leave)
	require.NoError(t, g.Wait())
	return errs
}

// E4.4: what waits is committed together, with one flush to the disk.
func TestGroup_OneCommit(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	var batches []*durable.Batch
	for i := range 20 {
		batches = append(batches, claim(strconv.Itoa(i), 1))
	}
	before := s.Stats()
	for _, err := range group(t, s, batches, nil, nil) {
		require.NoError(t, err)
	}
	after := s.Stats()
	require.Equal(t, uint64(3), after.Commits-before.Commits, "the hook, the batch that kept the writer busy, the group")
	require.Equal(t, uint64(21), after.Batches-before.Batches)
	require.Equal(t, uint64(0), after.Rejected)
	for i := range 20 {
		require.True(t, stored(t, s, strconv.Itoa(i)))
	}
}

// E4.1: within a group the second claim of a key loses, with all of its batch,
// and the others are stored with the same flush.
func TestGroup_Conflict(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	loser := claim("k", 2)
	loser.Claims = append([]durable.Claim{{Scope: "s", Key: "loser", Value: 2}}, loser.Claims...)
	before := s.Stats()
	errs := group(t, s, []*durable.Batch{claim("a", 1), claim("k", 1), loser, claim("b", 1)}, nil, nil)
	require.NoError(t, errs[0])
	require.NoError(t, errs[1])
	require.NoError(t, errs[3])
	var conflict *durable.ConflictError
	require.ErrorAs(t, errs[2], &conflict)
	require.Equal(t, int64(1), conflict.Claim.Value)
	require.False(t, stored(t, s, "loser"))
	require.Equal(t, uint64(3), s.Stats().Commits-before.Commits)
	require.Equal(t, uint64(1), s.Stats().Rejected-before.Rejected)
}

// E4.4: a batch that fails in the group is tried again alone, and only what
// fails alone is rejected.
func TestGroup_Failure(t *testing.T) {
	t.Parallel()
	// The steps are a, b, then a, b, c with savepoints, then b alone.
	for name, fails := range map[string][]int{"once": {2}, "twice": {2, 4}, "always": {2, 4, 6}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := openStore(t, nil)
			n := 0
			errs := group(t, s, []*durable.Batch{claim("a", 1), claim("b", 1), claim("c", 1)}, func(step string) error {
				if step != sqlstore.StepWrite {
					return nil
				}
				if n++; slices.Contains(fails, n) {
					return sqlstore.FaultError(19)
				}
				return nil
			}, nil)
			steps := n
			require.NoError(t, s.SetFault(nil))
			require.NoError(t, errs[0])
			require.NoError(t, errs[2])
			if len(fails) < 3 {
				require.NoError(t, errs[1])
			} else {
				require.ErrorIs(t, errs[1], durable.ErrRejected)
				require.NotErrorIs(t, errs[1], durable.ErrStoreFull)
			}
			require.Equal(t, min(6, 4+len(fails)), steps)
			require.Equal(t, len(fails) < 3, stored(t, s, "b"))
			require.True(t, stored(t, s, "a"))
			require.True(t, stored(t, s, "c"))
		})
	}
}

// E4.4: SQLite ends the whole transaction on some errors. Then nothing of the
// group counts, and each batch is tried alone: an earlier batch is not lost, a
// later one not stored outside of a transaction.
func TestGroup_TransactionOver(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	n := 0
	errs := group(t, s, []*durable.Batch{claim("a", 1), claim("b", 1), claim("c", 1)}, func(step string) error {
		if step == sqlstore.StepWrite {
			if n++; n == 2 || n == 4 {
				return errors.Join(sqlstore.FaultError(9), s.Exec("ROLLBACK"))
			}
		}
		return nil
	}, nil)
	require.Equal(t, 7, n, "two in the group, two with savepoints, then three alone")
	require.NoError(t, s.SetFault(nil))
	for i, err := range errs {
		require.NoError(t, err, i)
	}
	for _, key := range []string{"a", "b", "c"} {
		require.True(t, stored(t, s, key))
	}
}

// E4.4: a failed commit concerns every batch of the group. When it says that
// nothing was applied, each is tried alone.
func TestGroup_CommitFails(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	n := 0
	errs := group(t, s, []*durable.Batch{claim("a", 1), claim("b", 1), claim("a", 2)}, func(step string) error {
		if step == sqlstore.StepCommit {
			if n++; n == 1 || n == 3 { // the group, then b alone
				return sqlstore.FaultError(13)
			}
		}
		return nil
	}, nil)
	require.NoError(t, s.SetFault(nil))
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], durable.ErrStoreFull)
	require.ErrorIs(t, errs[1], durable.ErrRejected)
	var conflict *durable.ConflictError
	require.ErrorAs(t, errs[2], &conflict)
	require.True(t, stored(t, s, "a"))
	require.False(t, stored(t, s, "b"))
	mustCommit(t, s, claim("b", 1))
}

func mustCommit(t *testing.T, s durable.Store, b *durable.Batch) {
	t.Helper()
	_, err := s.Commit(t.Context(), b)
	require.NoError(t, err)
}

// Commit gives up waiting when its context ends, while the batch is not being
// written; then the batch is surely not stored.
func TestCommit_CancelledInQueue(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	group(t, s, []*durable.Batch{claim("a", 1)}, nil, func() {
		go func() {
			_, err := s.Commit(ctx, claim("b", 1))
			answer <- err
		}()
		for s.Queued() < 2 {
			runtime.Gosched()
		}
		cancel()
		err := <-answer // before the writer goes on
		require.ErrorIs(t, err, durable.ErrRejected)
		require.ErrorIs(t, err, context.Canceled)
	})
	require.True(t, stored(t, s, "a"))
	require.False(t, stored(t, s, "b"))
}

func TestCommit_CancelledBeforeQueue(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	var batches []*durable.Batch
	for range sqlstore.QueueLength {
		batches = append(batches, &durable.Batch{})
	}
	for _, err := range group(t, s, batches, nil, func() {
		ctx, cancel := context.WithCancel(t.Context())
		answer := make(chan error, 1)
		go func() {
			_, err := s.Commit(ctx, claim("b", 1))
			answer <- err
		}()
		select {
		case err := <-answer:
			t.Errorf("the queue is full, and Commit did not wait: %v", err)
		default:
		}
		cancel()
		err := <-answer
		require.ErrorIs(t, err, durable.ErrRejected)
		require.ErrorIs(t, err, context.Canceled)
	}) {
		require.NoError(t, err)
	}
	require.False(t, stored(t, s, "b"))
	// More than a group takes at a time, and more bytes.
	large := make([]*durable.Batch, 5)
	for i := range large {
		large[i] = &durable.Batch{Partials: []durable.PartialWrite{{TaskID: 1, Data: make([]byte, 3<<20)}}}
	}
	before := s.Stats()
	for _, err := range group(t, s, large, nil, nil) {
		require.NoError(t, err)
	}
	require.Equal(t, uint64(4), s.Stats().Commits-before.Commits, "the hook, the one before, and two groups")
}

// The store is not stopped by one caller that leaves: what it wrote is written.
func TestCommit_CancelledWhileWritten(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, s.SetFault(func(step string) error {
		if step == sqlstore.StepCommit {
			cancel()
		}
		return nil
	}))
	_, err := s.Commit(ctx, claim("a", 1))
	require.NoError(t, err)
	require.True(t, stored(t, s, "a"))
	require.NoError(t, s.SetFault(nil))
}

func TestStats(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	before := s.Stats()
	mustCommit(t, s, &durable.Batch{Claims: []durable.Claim{{Scope: "s", Key: "a"}, {Scope: "s", Key: "b"}}})
	_, err := s.Commit(t.Context(), claim("a", 1))
	require.ErrorIs(t, err, durable.ErrRejected)
	_, err = s.AllocateIDs(t.Context(), 1)
	require.NoError(t, err)
	after := s.Stats()
	require.Equal(t, sqlstore.Stats{Commits: 2, Groups: 3, Batches: 1, Rows: 3, Rejected: 1}, sqlstore.Stats{
		Commits: after.Commits - before.Commits, Groups: after.Groups - before.Groups, Batches: after.Batches - before.Batches,
		Rows: after.Rows - before.Rows, Rejected: after.Rejected - before.Rejected,
	})
	require.Equal(t, fmt.Sprint(after), fmt.Sprint(s.Stats()), "reading counts nothing")
}
