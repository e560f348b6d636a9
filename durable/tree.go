package durable

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/wp-durable/wp-durable/durable/internal/line"
	"github.com/wp-durable/wp-durable/durable/internal/transcript"
)

// tree is one tree in memory: its conversations, its live tasks, its open
// submissions and a cache of its documents, as they are stored. Only the
// holder of the line changes it, in adopt and load; mu lets others read.
type tree struct {
	e    *Engine
	id   ConversationID
	line line.Line

	mu sync.RWMutex
	// loaded is false before the first read and after an uncertain commit.
	loaded bool
	// fresh: just read, what the store leaves open is not derived yet.
	fresh bool
	// recovered holds the tasks that another process may have begun and that
	// have not run in this one.
	recovered map[TaskID]bool
	// newborn: its first commit is not stored, so that there is nothing to read.
	newborn bool
	// unresolved is a batch of which nobody knows whether it is stored, and
	// shown the running output there was before it.
	unresolved *uncertain

	epoch   int64
	highest int64 // the greatest id seen in the tree
	convs   map[ConversationID]*conversation
	tasks   map[TaskID]*TaskRecord             // live, and ended ones whose owner may still look at them
	subs    map[SubmissionID]*SubmissionRecord // queued or placed
	open    []SubmissionID                     // the same, in order
	docs    map[DocKey]*DocRecord              // nil: known to be absent
	runs    map[TaskID]*taskHandle
	timers  map[TaskID]Timer
	blocked map[TaskID]blockedTask
	changed chan struct{} // closed and renewed at every commit, nil when nobody waits

	// Guarded by Engine.mu.
	refs     int
	lastUsed time.Time
}

// conversation is a conversation in memory. Guarded by its tree's mu.
type conversation struct {
	rec ConversationRecord
	// transcript is nil until a request or a view needs it.
	transcript *transcript.Context
	// fitter keeps what requests send of it.
	fitter  transcript.Fitter
	last    EntryID // newest own entry, 0 for none
	hub     *hub    // nil until somebody watches
	outputs map[TaskID]*liveOutput
	// requests holds the request ids seen; when complete, all there are.
	requests         map[string]SubmissionID
	requestsComplete bool
}

// acquire returns the tree of a conversation, loaded, and keeps it in memory
// until release is called.
func (e *Engine) acquire(ctx context.Context, id ConversationID) (t *tree, release func(), err error) {
	if e.ctx.Err() != nil && !inEngine(ctx) {
		return nil, nil, ErrClosed
	}
	if e.hasFailed() {
		return nil, nil, ErrStoreFailed
	}
	e.mu.Lock()
	treeID, known := e.treeOf[id]
	e.mu.Unlock()
	if !known {
		rec, err := e.store.Conversation(ctx, id)
		if err != nil {
			return nil, nil, fmt.Errorf("conversation %d: %w", id, err)
		}
		treeID = rec.TreeID
	}
	t = e.pin(treeID)
	if err := t.load(ctx); err != nil {
		e.unpin(t)
		return nil, nil, err
	}
	return t, func() { e.unpin(t) }, nil
}

// pin returns the tree, in memory but perhaps not loaded, and counts the use.
func (e *Engine) pin(id ConversationID) *tree {
	e.mu.Lock()
	defer e.mu.Unlock()
	t := e.trees[id]
	if t == nil {
		t = &tree{e: e, id: id}
		e.trees[id] = t
	}
	t.refs++
	return t
}

func (e *Engine) unpin(t *tree) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.refs--
	if t.refs == 0 {
		t.lastUsed = e.clock.Now()
		e.armEviction()
	}
}

// armEviction sees to it that idle trees leave memory after their retention.
// The caller holds e.mu.
func (e *Engine) armEviction() {
	if e.evictTimer != nil || e.ctx.Err() != nil {
		return
	}
	e.evictTimer = e.clock.AfterFunc(e.opts.Retention, e.evict)
}

func (e *Engine) evict() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.evictTimer = nil
	now := e.clock.Now()
	for id, t := range e.trees {
		if t.refs > 0 || now.Sub(t.lastUsed) < e.opts.Retention || !t.idle() {
			continue
		}
		for c := range t.convs {
			delete(e.treeOf, c)
		}
		delete(e.trees, id)
	}
	if len(e.trees) > 0 {
		e.armEviction()
	}
}

// idle reports whether nothing would be lost or delayed by dropping the tree
// from memory.
func (t *tree) idle() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.runs) > 0 || len(t.subs) > 0 || t.changed != nil {
		return false
	}
	for _, rec := range t.tasks {
		if rec.State.Status != TaskTerminal {
			return false
		}
	}
	for _, c := range t.convs {
		if c.hub != nil && c.hub.watched() {
			return false
		}
	}
	return true
}

// load brings the tree into memory unless it is there: reads it, derives what
// a crash may have left open (E7.3), and starts its tasks.
func (t *tree) load(ctx context.Context) error {
	if t.isLoaded() {
		return nil
	}
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
	if t.isLoaded() {
		return nil
	}
	return t.updateHeld(withEngine(context.WithoutCancel(ctx)), 0, func(context.Context, *Tx) error { return nil })
}

func (t *tree) isLoaded() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.loaded
}

// read fills the memory of the tree from the store. The caller holds the line.
func (t *tree) read(ctx context.Context) error {
	store := t.e.store
	convs, err := store.TreeConversations(ctx, t.id)
	if err != nil {
		return fmt.Errorf("load tree %d: %w", t.id, err)
	}
	if len(convs) == 0 {
		return fmt.Errorf("conversation %d: %w", t.id, ErrNotFound)
	}
	tasks, err := store.Tasks(ctx, TaskQuery{TreeID: t.id, Live: true})
	if err != nil {
		return fmt.Errorf("load tree %d: %w", t.id, err)
	}
	subs, err := store.OpenSubmissions(ctx, t.id)
	if err != nil {
		return fmt.Errorf("load tree %d: %w", t.id, err)
	}
	highest := int64(0)
	last := map[ConversationID]EntryID{}
	for _, c := range convs {
		highest = max(highest, int64(c.ID))
		newest, err := store.Entries(ctx, EntryQuery{ConversationID: c.ID, Limit: 1, Descending: true})
		if err != nil {
			return fmt.Errorf("load tree %d: %w", t.id, err)
		}
		for _, e := range newest {
			last[c.ID] = e.ID
			highest = max(highest, int64(e.ID))
		}
	}
	partials := map[TaskID][][]byte{}
	for _, rec := range tasks {
		highest = max(highest, int64(rec.ID))
		if rec.State.Status == TaskPending {
			continue
		}
		if partials[rec.ID], err = store.Partial(ctx, rec.ID); err != nil {
			return fmt.Errorf("load tree %d: %w", t.id, err)
		}
	}
	for _, s := range subs {
		highest = max(highest, int64(s.ID))
	}

	t.mu.Lock()
	old := t.convs
	t.highest = highest
	t.convs = map[ConversationID]*conversation{}
	t.tasks = map[TaskID]*TaskRecord{}
	t.subs = map[SubmissionID]*SubmissionRecord{}
	t.open = nil
	t.docs = map[DocKey]*DocRecord{}
	t.fresh = true
	for id, timer := range t.timers {
		timer.Stop()
		delete(t.timers, id)
	}
	first := t.runs == nil
	if first {
		t.recovered = map[TaskID]bool{}
		t.runs = map[TaskID]*taskHandle{}
		t.timers = map[TaskID]Timer{}
		t.blocked = map[TaskID]blockedTask{}
	}
	for _, rec := range convs {
		c := newConversation(rec)
		c.last = last[rec.ID]
		if o := old[rec.ID]; o != nil && o.hub != nil {
			c.hub = o.hub
			c.hub.reset() // what was shown may not stand: watchers take a snapshot
		}
		t.convs[rec.ID] = c
	}
	for i := range tasks {
		rec := &tasks[i]
		t.tasks[rec.ID] = rec
		if s := rec.State.Status; first && (s == TaskPending || s == TaskRunning) {
			t.recovered[rec.ID] = true
		}
		if c := t.convs[rec.ConversationID]; c != nil && len(partials[rec.ID]) > 0 {
			c.outputs[rec.ID] = newLiveOutput(rec, partials[rec.ID])
		}
		if h := t.runs[rec.ID]; h != nil && rec.AbortRequested && !h.aborting {
			h.cancel(ErrAborted) // the commit that marked it was not adopted
		}
	}
	for i := range subs {
		t.subs[subs[i].ID] = &subs[i]
		t.open = append(t.open, subs[i].ID)
	}
	t.loaded = true
	t.mu.Unlock()

	t.e.mu.Lock()
	for _, rec := range convs {
		t.e.treeOf[rec.ID] = t.id
	}
	t.e.mu.Unlock()
	return nil
}

func newConversation(rec ConversationRecord) *conversation {
	return &conversation{rec: rec, requests: map[string]SubmissionID{}, outputs: map[TaskID]*liveOutput{}}
}

// forget makes the next use read the tree from the store.
func (t *tree) forget() {
	t.mu.Lock()
	t.loaded = false
	t.mu.Unlock()
}

// ensure waits until the tree is in memory; false when the engine closes or
// the store has failed.
func (t *tree) ensure() bool {
	for attempt := 0; ; attempt++ {
		if t.e.dead() {
			return false
		}
		if t.isLoaded() || t.load(withEngine(t.e.ctx)) == nil {
			return true
		}
		if !t.e.backoff(t.e.ctx, attempt) {
			return false
		}
	}
}

// reload brings the tree back after its memory was dropped, whoever uses it
// next: its tasks must go on. The caller holds a pin, and so does reload: a
// tree that is not read yet must not be taken for an idle one.
func (t *tree) reload() {
	if !t.e.begin() {
		return
	}
	t.e.mu.Lock()
	t.refs++
	t.e.mu.Unlock()
	go func() {
		defer t.e.wg.Done()
		defer t.e.unpin(t)
		t.ensure()
	}()
}

// holds reports whether the handle is the one that runs its task.
func (t *tree) holds(h *taskHandle) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.runs[h.id] == h
}

// await calls cond, under the read lock, until it is true, at every commit of
// the tree, or until ctx ends.
func (t *tree) await(ctx context.Context, cond func() bool) error {
	if ctx.Value(lineKey) != nil {
		return ErrNestedUpdate
	}
	for {
		t.mu.Lock()
		if cond() {
			t.mu.Unlock()
			return nil
		}
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.e.stopped:
			return ErrClosed
		case <-t.e.failed:
			return ErrStoreFailed
		}
	}
}

// task returns the committed record, or nil. The caller holds mu or the line.
func (t *tree) task(id TaskID) *TaskRecord { return t.tasks[id] }

// busy reports whether a conversation has live work in the foreground. The
// caller holds mu.
func (t *tree) busy(id ConversationID) bool {
	for _, rec := range t.tasks {
		if rec.ConversationID == id && rec.State.Status != TaskTerminal && foreground(rec, t.task) {
			return true
		}
	}
	return false
}
