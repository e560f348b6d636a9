package durable

import (
	"context"
	"fmt"
	"sync"
)

// idBlock is how many ids are reserved in the store at a time.
const idBlock = 8192

// allocator hands out ids from blocks that the store has reserved durably, so
// that no id is used twice whatever crashes.
type allocator struct {
	store Committer
	mu    sync.Mutex
	next  int64
	end   int64 // first id that is not ours
}

// take returns one new id. It does I/O only when a block is used up.
func (a *allocator) take(ctx context.Context) (int64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.next == a.end {
		first, err := a.store.AllocateIDs(context.WithoutCancel(ctx), idBlock)
		if err != nil {
			return 0, fmt.Errorf("allocate ids: %w", err)
		}
		a.next, a.end = first, first+idBlock
	}
	id := a.next
	a.next++
	return id, nil
}

// above gives up the current block and returns an id higher than floor: a tree
// that was taken over may hold ids of a later block than ours (E3).
func (a *allocator) above(ctx context.Context, floor int64) (int64, error) {
	a.mu.Lock()
	a.next = a.end
	a.mu.Unlock()
	for {
		id, err := a.take(ctx)
		if err != nil || id > floor {
			return id, err
		}
		a.mu.Lock()
		a.next = a.end
		a.mu.Unlock()
	}
}
