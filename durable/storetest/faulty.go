package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/wp-durable/wp-durable/durable"
)

// ErrInjected is in every error that a [FaultyStore] makes up.
var ErrInjected = errors.New("injected fault")

// Fault is a way in which a commit fails.
type Fault int

const (
	// Rejected: the batch is not stored, and the caller is told so.
	Rejected Fault = iota + 1
	// Full: the same, with durable.ErrStoreFull.
	Full
	// Lost: the batch is not stored, and the caller cannot know.
	Lost
	// Applied: the batch is stored, and the caller cannot know.
	Applied
	// Failed: the batch is not stored; from then on every commit fails with
	// durable.ErrStoreFailed.
	Failed
)

// FaultyStore is a store whose commits fail on demand. Its fields are set
// before the store is used; its methods may be called concurrently.
type FaultyStore struct {
	durable.Store

	// Before, when not nil, is called in the goroutine of Commit before the nth
	// batch, counted from 1, reaches the store. It may change nothing of the
	// batch. It may end the process: a crash with the batch lost.
	Before func(n int, batch *durable.Batch)
	// After, when not nil, is called when the store has answered, before Commit
	// returns. It may end the process: a crash with the batch stored and its
	// caller not told.
	After func(n int, batch *durable.Batch, err error)

	mu     sync.Mutex
	n      int           // commits so far
	faults map[int]Fault // by commit
	failed bool
}

// Faulty returns a store that does all through s, and fails as it is told.
func Faulty(s durable.Store) *FaultyStore {
	return &FaultyStore{Store: s, faults: map[int]Fault{}}
}

// FailCommit lets the nth commit from now fail; 1 is the next.
func (f *FaultyStore) FailCommit(n int, fault Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults[f.n+n] = fault
}

// Commits returns how many commits were begun.
func (f *FaultyStore) Commits() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}

// Commit stores the batch, or fails as was asked.
func (f *FaultyStore) Commit(ctx context.Context, batch *durable.Batch) (durable.Seq, error) {
	f.mu.Lock()
	f.n++
	n := f.n
	fault := f.faults[n]
	delete(f.faults, n)
	if fault == Failed {
		f.failed = true
	}
	if f.failed {
		fault = Failed
	}
	f.mu.Unlock()

	if f.Before != nil {
		f.Before(n, batch)
	}
	seq, err := f.commit(ctx, batch, fault)
	if err != nil && fault != 0 {
		seq, err = 0, fmt.Errorf("commit %d: %w", n, err)
	}
	if f.After != nil {
		f.After(n, batch, err)
	}
	return seq, err
}

func (f *FaultyStore) commit(ctx context.Context, batch *durable.Batch, fault Fault) (durable.Seq, error) {
	switch fault {
	case Rejected:
		return 0, fmt.Errorf("%w: %w", durable.ErrRejected, ErrInjected)
	case Full:
		return 0, fmt.Errorf("%w: %w", durable.ErrStoreFull, ErrInjected)
	case Lost:
		return 0, ErrInjected
	case Failed:
		return 0, fmt.Errorf("%w: %w", durable.ErrStoreFailed, ErrInjected)
	case Applied:
		if _, err := f.Store.Commit(ctx, batch); err != nil {
			return 0, err
		}
		return 0, ErrInjected
	}
	return f.Store.Commit(ctx, batch)
}
