package durable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

type ctxKey int

const (
	lineKey   ctxKey = iota // the tree on whose line a callback runs
	engineKey               // calls of the engine itself, which go on while it closes
)

func withEngine(ctx context.Context) context.Context { return context.WithValue(ctx, engineKey, true) }

func inEngine(ctx context.Context) bool { return ctx.Value(engineKey) != nil }

// Update runs fn under the line of the conversation's tree and stores what it
// staged as one commit. When Update returns nil the commit is durable and
// observers have been handed it. When fn returns an error or panics nothing is
// stored. Until the callback has returned nil, cancelling ctx gives up; after
// that the commit is made.
//
// fn may be called again when a commit lost against another one or when a
// store was reached again after its connection was lost, so it must not have
// effects outside tx. Its context marks the line: an Update with it, on any
// tree, fails with [ErrNestedUpdate]. fn must not wait for other commits.
func (e *Engine) Update(ctx context.Context, id ConversationID, fn func(ctx context.Context, tx *Tx) error) error {
	if ctx.Value(lineKey) != nil {
		return ErrNestedUpdate
	}
	t, release, err := e.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer release()
	return t.update(ctx, 0, fn)
}

// errUnreachable: the store could not be asked.
var errUnreachable = errors.New("store is unreachable")

// maxReruns bounds how often a callback is run again after it lost.
const maxReruns = 100

// update is Update on a tree in memory, on behalf of a task when by is not 0.
func (t *tree) update(ctx context.Context, by TaskID, fn func(ctx context.Context, tx *Tx) error) error {
	if ctx.Value(lineKey) != nil {
		return ErrNestedUpdate
	}
	leave, err := t.e.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := t.line.Lock(ctx); err != nil {
		return err
	}
	defer t.line.Unlock()
	return t.updateHeld(ctx, by, fn)
}

// updateHeld is update for a caller that holds the line.
func (t *tree) updateHeld(ctx context.Context, by TaskID, fn func(ctx context.Context, tx *Tx) error) error {
	for run := 0; ; run++ {
		if err := t.ready(ctx); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		again, err := t.updateOnce(ctx, by, fn)
		if !again || run == maxReruns {
			return err
		}
		if _, lost := errors.AsType[*ConflictError](err); !lost && !t.e.backoff(ctx, run) {
			return err
		}
	}
}

// ready brings the tree into memory, after it has learned what became of a
// batch that nobody knew of. The caller holds the line.
func (t *tree) ready(ctx context.Context) error {
	e := t.e
	if e.hasFailed() {
		return ErrStoreFailed
	}
	if u := t.unresolved; u != nil {
		applied, err := e.applied(context.WithoutCancel(ctx), u)
		if err != nil {
			e.note(err)
			return fmt.Errorf("%w: %w", errUnreachable, err)
		}
		t.unresolved = nil
		t.newborn = t.newborn && !applied
	}
	if t.isLoaded() {
		return nil
	}
	if t.newborn {
		t.begin()
		return nil
	}
	err := t.read(context.WithoutCancel(ctx))
	if err != nil && !errors.Is(err, ErrNotFound) {
		e.note(err)
		return fmt.Errorf("%w: %w", errUnreachable, err)
	}
	return err
}

// updateOnce runs the callback and commits; again says that it should be run
// anew. The caller holds the line.
func (t *tree) updateOnce(ctx context.Context, by TaskID, fn func(ctx context.Context, tx *Tx) error) (again bool, err error) {
	e := t.e
	inner := context.WithValue(ctx, lineKey, t)
	tx := &Tx{e: e, t: t, ctx: inner, by: by, at: stamp(e.clock.Now())}
	defer func() { tx.done = true }()
	var batch *Batch
	err = e.protect("update", func() (err error) {
		if err = fn(inner, tx); err != nil {
			return err
		}
		tx.ctx = context.WithoutCancel(inner) // from here on the commit is made
		if err = tx.settle(); err != nil {
			return err
		}
		batch, err = tx.batch()
		return err
	})
	if err != nil {
		return false, err
	}
	if batch == nil {
		if t.fresh {
			t.adopt(tx)
		}
		return false, nil
	}
	return t.commit(ctx, tx, batch)
}

// commit stores a batch and adopts it; again says that the callback should be
// run anew. The caller holds the line.
func (t *tree) commit(ctx context.Context, tx *Tx, batch *Batch) (again bool, err error) {
	e := t.e
	_, err = e.store.Commit(context.WithoutCancel(ctx), batch)
	if err == nil {
		t.adopt(tx)
		return false, nil
	}
	e.note(err)
	if conflict, ok := errors.AsType[*ConflictError](err); ok {
		return conflict.Document != nil, err
	}
	if errors.Is(err, ErrRejected) || e.hasFailed() {
		return false, err
	}
	return t.resolve(ctx, &uncertain{batch: batch, pieces: t.pieces(batch)}, err)
}

// uncertain is a batch of which nobody knows whether it is stored.
type uncertain struct {
	batch  *Batch
	pieces int // of running output that its first partial follows
}

// pieces counts the stored running output that a batch's first partial follows.
func (t *tree) pieces(b *Batch) int {
	if len(b.Partials) == 0 || b.Partials[0].Reset {
		return 0
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if rec := t.tasks[b.Partials[0].TaskID]; rec != nil {
		if out := t.convs[rec.ConversationID].outputs[rec.ID]; out != nil {
			return out.pieces
		}
	}
	return 0
}

// resolve drops the memory of the tree and asks the store which state holds,
// until it answers (E4.3). A caller whose ctx ends first leaves the question to
// the next user of the tree.
func (t *tree) resolve(ctx context.Context, u *uncertain, cause error) (again bool, err error) {
	e := t.e
	e.log.Warn("commit outcome uncertain", slog.Int64("tree", int64(t.id)), slog.Any("error", cause))
	t.forget()
	defer func() {
		if !t.isLoaded() && !again {
			t.reload()
		}
	}()
	for attempt := 0; ; attempt++ {
		applied, rerr := e.applied(context.WithoutCancel(ctx), u)
		switch {
		case rerr == nil && !applied:
			return true, fmt.Errorf("commit of tree %d: %w: %w", t.id, ErrRejected, cause)
		case rerr == nil:
			t.newborn = false
			t.derive(ctx)
			return false, nil
		}
		e.note(rerr)
		if e.hasFailed() || !e.backoff(ctx, attempt) {
			t.unresolved = u
			return false, fmt.Errorf("commit of tree %d: %w, outcome unknown: %w: %w", t.id, errUnreachable, cause, rerr)
		}
	}
}

// derive reads the tree after a batch turned out to be stored. When that fails,
// the next user of the tree does it.
func (t *tree) derive(ctx context.Context) {
	err := t.read(context.WithoutCancel(ctx))
	if err == nil {
		_, err = t.updateOnce(context.WithoutCancel(ctx), 0, func(context.Context, *Tx) error { return nil })
	}
	if err != nil {
		t.e.log.Warn("read tree after uncertain commit", slog.Int64("tree", int64(t.id)), slog.Any("error", err))
		t.forget()
	}
}

// applied asks the store whether a batch is stored. One record decides, since
// a batch is stored whole or not at all.
func (e *Engine) applied(ctx context.Context, u *uncertain) (bool, error) {
	b := u.batch
	found := func(err error) (bool, error) {
		if errors.Is(err, ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	switch {
	case len(b.Entries) > 0:
		_, err := e.store.Entry(ctx, b.Entries[0].ID)
		return found(err)
	case len(b.Conversations) > 0:
		_, err := e.store.Conversation(ctx, b.Conversations[0].ID)
		return found(err)
	case len(b.Tasks) > 0:
		rec, err := e.store.Task(ctx, b.Tasks[0].ID)
		if err != nil {
			return found(err)
		}
		return sameJSON(rec, b.Tasks[0]), nil
	case len(b.Submissions) > 0:
		rec, err := e.store.Submission(ctx, b.Submissions[0].ID)
		if err != nil {
			return found(err)
		}
		return sameJSON(rec, b.Submissions[0]), nil
	case len(b.Documents) > 0:
		w := b.Documents[0]
		rec, err := e.store.Document(ctx, w.Record.DocKey)
		if errors.Is(err, ErrNotFound) {
			return w.Delete, nil
		}
		return err == nil && rec.Revision == w.Record.Revision && string(rec.Value) == string(w.Record.Value), err
	case len(b.Partials) > 0:
		w := b.Partials[0]
		parts, err := e.store.Partial(ctx, w.TaskID)
		if len(w.Data) == 0 {
			return err == nil && len(parts) == 0, err
		}
		return err == nil && len(parts) > u.pieces && string(parts[u.pieces]) == string(w.Data), err
	case len(b.Claims) > 0:
		v, err := e.store.Claimed(ctx, b.Claims[0].Scope, b.Claims[0].Key)
		if err != nil {
			return found(err)
		}
		return v == b.Claims[0].Value, nil
	}
	return false, nil
}

func sameJSON(a, b any) bool {
	x, err1 := encode(a)
	y, err2 := encode(b)
	return err1 == nil && err2 == nil && string(x) == string(y)
}

// protect runs code that is not the engine's and turns a panic into an error
// (E2.10).
func (e *Engine) protect(what string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e.log.Error("panic recovered", slog.String("in", what), slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
			err = &panicError{what: what, value: p}
		}
	}()
	return fn()
}

// panicError is a recovered panic.
type panicError struct {
	what  string
	value any
}

func (p *panicError) Error() string { return fmt.Sprintf("panic in %s: %v", p.what, p.value) }

// backoff waits before a failed commit is tried again, doubling from 250 ms to
// 30 s, and reports whether it should be.
func (e *Engine) backoff(ctx context.Context, attempt int) bool {
	d := min(250*time.Millisecond<<min(attempt, 7), 30*time.Second)
	fired := make(chan struct{})
	timer := e.clock.AfterFunc(d, func() { close(fired) })
	defer timer.Stop()
	select {
	case <-fired:
		return true
	case <-ctx.Done():
		return false
	case <-e.ctx.Done():
		return false
	}
}
