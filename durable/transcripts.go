package durable

import (
	"context"

	"github.com/wp-durable/wp-durable/durable/internal/transcript"
)

// begin makes the memory of a tree that is about to be created.
func (t *tree) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.highest = int64(t.id)
	t.convs = map[ConversationID]*conversation{}
	t.tasks = map[TaskID]*TaskRecord{}
	t.subs = map[SubmissionID]*SubmissionRecord{}
	t.open = nil
	t.docs = map[DocKey]*DocRecord{}
	t.runs = map[TaskID]*taskHandle{}
	t.timers = map[TaskID]Timer{}
	t.blocked = map[TaskID]blockedTask{}
	t.loaded = true
}

// withTranscript calls fn, under mu, with a conversation whose transcript is in
// memory, reading it from the store when it is not. fn must be quick.
func (t *tree) withTranscript(ctx context.Context, id ConversationID, fn func(c *conversation)) error {
	t.mu.Lock()
	c := t.convs[id]
	if t.loaded && c != nil && c.transcript != nil {
		fn(c)
		t.mu.Unlock()
		return nil
	}
	t.mu.Unlock()
	// Under the line nothing is appended while the entries are read.
	switch held := ctx.Value(lineKey); {
	case held == nil:
		leave, err := t.e.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
		if err := t.line.Lock(ctx); err != nil {
			return err
		}
		defer t.line.Unlock()
		if !t.isLoaded() {
			if err := t.updateHeld(withEngine(ctx), 0, func(context.Context, *Tx) error { return nil }); err != nil {
				return err
			}
		}
	case held != t:
		return ErrNestedUpdate
	}
	c = t.convs[id]
	if c.transcript == nil {
		entries, err := t.e.activeEntries(ctx, c.rec, 0)
		if err != nil {
			return err
		}
		tr := transcript.New()
		for i := range entries {
			tr.Append(transcriptItem(&entries[i]))
		}
		t.mu.Lock()
		c.transcript = tr
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fn(c)
	return nil
}
