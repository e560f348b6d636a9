package durable

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
)

// Events returns what happens in the conversation, from behind the event with
// the id after, or else, when after is empty, unknown, of another engine or
// too long ago, from a snapshot on. The first event is then the snapshot. The
// sequence ends with an error when ctx ends or the engine closes. A reader that
// is slower than the conversation is given a snapshot instead of what it
// missed; it never slows a commit.
func (c *Conversation) Events(ctx context.Context, after string) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f, err := c.follow(ctx)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer f.close()
		n := c.e.eventNumber(after)
		for {
			events, err := f.next(ctx, n)
			if errors.Is(err, errLost) {
				snap, at, serr := c.snapshot(ctx, f.t)
				if serr != nil {
					yield(Event{}, serr)
					return
				}
				n = at
				events, err = []Event{{ID: c.e.eventID(at), Type: EventSnapshot, Data: *snap, n: at}}, nil
			}
			if err != nil {
				yield(Event{}, err)
				return
			}
			for _, ev := range events {
				n = ev.n
				ev.Data = ownData(ev.Data)
				if !yield(ev, nil) {
					return
				}
			}
		}
	}
}

// ownData copies what a payload shares with the engine.
func ownData(data any) any {
	switch d := data.(type) {
	case EntryEvent:
		d.Entry = d.Entry.clone()
		return d
	case ToolEvent:
		d.Arguments = slices.Clone(d.Arguments)
		if d.Result != nil {
			m := d.Result.Clone()
			d.Result = &m
		}
		return d
	case SubmissionEvent:
		s := d.Submission.clone()
		d.Submission = &s
		return d
	case DocEvent:
		d.Value = slices.Clone(d.Value)
		return d
	case MessageEvent:
		d.Delta = clonePtr(d.Delta)
		return d
	case RunEvent:
		d.SubmissionIDs = slices.Clone(d.SubmissionIDs)
		return d
	case InboxEvent:
		d.Queued = slices.Clone(d.Queued)
		return d
	case TaskFailedEvent:
		rec := TaskRecord{State: TaskState{Outcome: &d.Outcome}}
		c := rec.clone()
		d.Outcome = *c.State.Outcome
		return d
	}
	return data
}

func (e *Entry) clone() *Entry {
	c := *e
	c.Model = cloneMessages(e.Model)
	c.Data = slices.Clone(e.Data)
	c.Edits = cloneEdits(e.Edits)
	return &c
}

func (e *Engine) eventID(n uint64) string { return e.boot + "-" + strconv.FormatUint(n, 10) }

// follower is a reader of a conversation's events.
type follower struct {
	t       *tree
	h       *hub
	release func()
}

// errLost: the reader's place has left the ring.
var errLost = fmt.Errorf("events were missed")

// follow makes the conversation keep its events and counts a reader.
func (c *Conversation) follow(ctx context.Context) (*follower, error) {
	t, release, err := c.e.acquire(ctx, c.rec.ID)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	conv := t.convs[c.rec.ID]
	if conv.hub == nil {
		conv.hub = &hub{}
	}
	h := conv.hub
	t.mu.Unlock()
	h.join(1)
	return &follower{t, h, release}, nil
}

func (f *follower) close() {
	f.h.join(-1)
	f.release()
}

// next returns the events behind n, waiting for one, or errLost.
func (f *follower) next(ctx context.Context, n uint64) ([]Event, error) {
	for {
		events, wake, ok := f.h.after(n)
		switch {
		case !ok:
			return nil, errLost
		case len(events) > 0:
			return events, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-f.t.e.stopped:
			return nil, ErrClosed
		case <-f.t.e.failed:
			return nil, ErrStoreFailed
		}
	}
}

// snapshot returns the conversation at a moment, and the number of the event
// that it stands behind.
func (c *Conversation) snapshot(ctx context.Context, t *tree) (*Snapshot, uint64, error) {
	if err := t.load(ctx); err != nil { // after an uncertain commit
		return nil, 0, err
	}
	t.mu.RLock()
	conv := t.convs[c.rec.ID]
	at := conv.hub.position(func() uint64 { return c.e.events.Add(1) })
	upTo := max(conv.last, EntryID(conv.rec.ID))
	snap := &Snapshot{View: View{Conversation: conv.rec.clone(), Busy: t.busy(c.rec.ID), Docs: map[string]json.RawMessage{}}, RunningTools: []RunningTool{}}
	for _, id := range slices.Sorted(maps.Keys(t.subs)) {
		if s := t.subs[id]; s.ConversationID == c.rec.ID {
			view := s.clone()
			view.ContentHash = nil
			snap.View.Submissions = append(snap.View.Submissions, view)
		}
	}
	for _, rec := range t.tasks {
		if rec.ConversationID != c.rec.ID || rec.State.Status == TaskTerminal {
			continue
		}
		out := conv.outputs[rec.ID]
		if rec.Kind == generationKind && out != nil {
			snap.Partial = out.partial(rec.ID, firstInput(rec))
		}
		if rt, ok := runningTool(rec, out); ok {
			snap.RunningTools = append(snap.RunningTools, rt)
		}
	}
	known := map[string]*DocRecord{}
	for _, kind := range []string{agentDocKind, usageDocKind} {
		if rec, ok := t.docs[DocKey{Scope: ScopeConversation, Owner: int64(c.rec.ID), Kind: kind}]; ok {
			known[kind] = rec
		}
	}
	t.mu.RUnlock()
	slices.SortFunc(snap.RunningTools, func(a, b RunningTool) int { return cmp.Compare(a.TaskID, b.TaskID) })
	entries, err := c.e.activeEntries(ctx, c.rec, upTo)
	if err != nil {
		return nil, 0, err
	}
	snap.View.Entries = entries
	if len(known) < 2 {
		docs, err := c.e.store.Documents(ctx, ScopeConversation, int64(c.rec.ID))
		if err != nil {
			return nil, 0, fmt.Errorf("documents of conversation %d: %w", c.rec.ID, err)
		}
		for i := range docs {
			if _, ok := known[docs[i].Kind]; !ok && docs[i].Key == "" {
				known[docs[i].Kind] = &docs[i]
			}
		}
	}
	for _, kind := range []string{agentDocKind, usageDocKind} {
		if rec := known[kind]; rec != nil {
			snap.View.Docs[kind] = slices.Clone(rec.Value)
		}
	}
	return snap, at, nil
}

// firstInput returns the first submission of a generation.
func firstInput(rec *TaskRecord) SubmissionID {
	var in generationInput
	if json.Unmarshal(rec.Input, &in) != nil || len(in.Submissions) == 0 {
		return 0
	}
	return in.Submissions[0]
}
