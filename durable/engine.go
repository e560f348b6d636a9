package durable

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Engine is one open store plus the machinery that runs agents on it. Make it
// with [Open]; all its methods may be called concurrently.
type Engine struct {
	store reach
	opts  Options
	clock Clock
	log   *slog.Logger
	ids   *allocator

	// ctx is the parent of all task code; it ends, with cause ErrClosed, when
	// the engine begins to close.
	ctx    context.Context
	cancel context.CancelCauseFunc
	// stopped is closed when the engine begins to close.
	stopped chan struct{}
	// failed is closed when the store has failed.
	failed   chan struct{}
	failOnce sync.Once
	wg       sync.WaitGroup // goroutines that begin() counted

	unwatch func() // the registry

	boot   string        // tells the event ids of this engine from those of others
	events atomic.Uint64 // the last event's number
	slots  chan struct{} // one for each model request under way, nil for no bound

	life    sync.Mutex // guards closing and the count of wg
	closing bool

	mu         sync.Mutex // taken before a tree's mu, never after
	trees      map[ConversationID]*tree
	treeOf     map[ConversationID]ConversationID // of conversations in memory
	evictTimer Timer
}

// Open makes an engine on a store and lets every task that is not finished go
// on where it stands. The store stays the caller's: close it after the engine.
// Nobody else may write to it meanwhile.
func Open(ctx context.Context, store Store, opts *Options) (*Engine, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	var boot [8]byte
	_, _ = rand.Read(boot[:]) // never fails
	e := &Engine{
		store: reach{store}, opts: o, clock: o.Clock, log: o.Logger, ids: &allocator{store: reach{store}},
		stopped: make(chan struct{}), failed: make(chan struct{}), boot: hex.EncodeToString(boot[:]),
		trees: map[ConversationID]*tree{}, treeOf: map[ConversationID]ConversationID{},
	}
	if o.ConcurrentRuns > 0 {
		e.slots = make(chan struct{}, o.ConcurrentRuns)
	}
	e.ctx, e.cancel = context.WithCancelCause(context.Background())
	e.unwatch = o.Registry.watch(e.reconsider)
	if err := e.resume(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open engine: %w", err), e.Close(context.WithoutCancel(ctx)))
	}
	return e, nil
}

// resume loads every tree that has live tasks, which starts them.
func (e *Engine) resume(ctx context.Context) error {
	const page, loaders = 1000, 4
	var after ConversationID
	for {
		ids, err := e.store.LiveTrees(ctx, after, page)
		if err != nil {
			return fmt.Errorf("find live trees: %w", err)
		}
		if len(ids) == 0 {
			return nil
		}
		after = ids[len(ids)-1]
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(loaders)
		for _, id := range ids {
			g.Go(func() error {
				t := e.pin(id)
				defer e.unpin(t)
				return t.load(gctx)
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
}

// Close stops the engine: tasks' contexts end with cause [ErrClosed], their
// checkpoints stay, so that the next engine on the store goes on with them.
// Close returns when all their code and the commits under way have returned, or
// with ctx's error when that ends first. Calls after the first wait in the same
// way. It must not be called by a task's code or within a commit.
func (e *Engine) Close(ctx context.Context) error {
	e.life.Lock()
	first := !e.closing
	e.closing = true
	e.life.Unlock()
	if first {
		e.unwatch()
		// Code that watches Closing finds its context ended, so that its
		// return is not taken for a phase without progress.
		e.cancel(ErrClosed)
		close(e.stopped)
		e.stopTimers()
	}
	done := make(chan struct{})
	go func() {
		e.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close engine: %w", context.Cause(ctx))
	}
}

func (e *Engine) stopTimers() {
	for _, t := range e.loadedTrees() {
		t.mu.Lock()
		for id, timer := range t.timers {
			timer.Stop()
			delete(t.timers, id)
		}
		t.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.evictTimer != nil {
		e.evictTimer.Stop()
	}
}

// loadedTrees returns the trees in memory.
func (e *Engine) loadedTrees() []*tree {
	e.mu.Lock()
	defer e.mu.Unlock()
	trees := make([]*tree, 0, len(e.trees))
	for _, t := range e.trees {
		trees = append(trees, t)
	}
	return trees
}

// Closing returns a channel that is closed when the engine begins to close.
func (e *Engine) Closing() <-chan struct{} { return e.stopped }

// Failed returns a channel that is closed when the store has failed: no more
// commits are possible, and the process should end so that recovery reads from
// disk (E4.3). Waits end with [ErrStoreFailed] then.
func (e *Engine) Failed() <-chan struct{} { return e.failed }

// note looks at the error of a store call and remembers a failed store.
func (e *Engine) note(err error) {
	if errors.Is(err, ErrStoreFailed) || errors.Is(err, ErrStoreClosed) {
		e.failOnce.Do(func() {
			e.log.Error("store failed", slog.Any("error", err))
			close(e.failed)
		})
	}
}

func (e *Engine) hasFailed() bool {
	select {
	case <-e.failed:
		return true
	default:
		return false
	}
}

// dead reports whether this engine commits no more.
func (e *Engine) dead() bool { return e.ctx.Err() != nil || e.hasFailed() }

// begin counts a goroutine that Close waits for; false when the engine closes.
func (e *Engine) begin() bool {
	e.life.Lock()
	defer e.life.Unlock()
	if e.closing {
		return false
	}
	e.wg.Add(1)
	return true
}

// enter counts a call from outside that may commit among the work that Close
// waits for, so that nothing of this engine is written once Close has returned;
// [ErrClosed] when the engine closes.
func (e *Engine) enter(ctx context.Context) (leave func(), err error) {
	switch {
	case inEngine(ctx):
		return func() {}, nil // of a task, which is counted
	case !e.begin():
		return nil, ErrClosed
	}
	return e.wg.Done, nil
}

// reconsider looks again at blocked tasks after the registry has changed.
func (e *Engine) reconsider() {
	if e.ctx.Err() != nil {
		return
	}
	for _, t := range e.loadedTrees() {
		t.mu.Lock()
		if len(t.blocked) > 0 {
			t.schedule()
		}
		t.mu.Unlock()
	}
}

// Registry returns the registry the engine was opened with.
func (e *Engine) Registry() *Registry { return e.opts.Registry }

// Store returns the store the engine was opened with.
func (e *Engine) Store() Store { return e.store.Store }
