package durable

import (
	"log/slog"
	"maps"
	"slices"

	"github.com/wp-durable/wp-durable/durable/internal/transcript"
)

// adopt makes a stored commit the state of the tree in memory, hands it to
// observers and starts the tasks that became runnable. The caller holds the
// line.
func (t *tree) adopt(tx *Tx) {
	e := t.e
	if len(tx.convs) > 0 {
		e.mu.Lock()
		for _, c := range tx.convs {
			e.treeOf[c.ID] = t.id
		}
		e.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rec := range tx.convs {
		c := newConversation(*rec)
		c.requestsComplete = true
		c.transcript = transcript.New()
		t.convs[rec.ID] = c
		t.highest = max(t.highest, int64(rec.ID))
	}
	for i := range tx.entries {
		entry := &tx.entries[i]
		t.highest = max(t.highest, int64(entry.ID))
		c := t.convs[entry.ConversationID]
		c.last = entry.ID
		if c.transcript != nil {
			c.transcript.Append(transcriptItem(entry))
		}
	}
	for _, w := range tx.partials {
		t.adoptPartial(w)
	}
	for _, ev := range tx.events {
		if ev.entry > 0 {
			entry := &tx.entries[ev.entry-1]
			ev.data = EntryEvent{ConversationID: entry.ConversationID, Entry: entry}
		}
		t.convs[ev.conversation].publish(e, ev.kind, ev.data)
	}
	for _, key := range tx.docOrder {
		t.adoptDoc(key, tx.docs[key])
	}
	for _, id := range slices.Sorted(maps.Keys(tx.tasks)) {
		t.adoptTask(tx.tasks[id])
	}
	t.adoptSubs(tx)
	if len(tx.tasks) > 0 || t.fresh {
		t.prune(tx.by)
		t.schedule()
	}
	t.fresh = false
	t.newborn = false
	t.wakeWaiters()
}

// knownRequests bounds how many request ids a conversation keeps in memory.
const knownRequests = 4096

func (t *tree) adoptSubs(tx *Tx) {
	var inboxes []ConversationID
	for _, id := range slices.Sorted(maps.Keys(tx.subs)) {
		s := tx.subs[id]
		t.highest = max(t.highest, int64(id))
		c := t.convs[s.ConversationID]
		before := t.subs[id]
		i, open := slices.BinarySearch(t.open, id)
		switch {
		case s.SettledAt == nil && !open:
			t.open = slices.Insert(t.open, i, id)
		case s.SettledAt != nil && open:
			t.open = slices.Delete(t.open, i, i+1)
		}
		if s.SettledAt == nil {
			t.subs[id] = s
		} else {
			delete(t.subs, id)
		}
		if s.RequestID != "" {
			if len(c.requests) >= knownRequests {
				clear(c.requests)
				c.requestsComplete = false
			}
			c.requests[s.RequestID] = id
		}
		if c.hub != nil && (s.Status == SubmissionQueued || before != nil && before.Status == SubmissionQueued) && !slices.Contains(inboxes, s.ConversationID) {
			inboxes = append(inboxes, s.ConversationID)
		}
	}
	for _, id := range inboxes {
		t.convs[id].publish(t.e, EventInboxUpdate, InboxEvent{ConversationID: id, Queued: t.queued(id)})
	}
}

// queued lists the inbox of a conversation. The caller holds mu.
func (t *tree) queued(id ConversationID) []SubmissionID {
	out := []SubmissionID{}
	for _, sid := range t.open {
		if s := t.subs[sid]; s.ConversationID == id && s.Status == SubmissionQueued {
			out = append(out, sid)
		}
	}
	return out
}

func (t *tree) adoptTask(rec *TaskRecord) {
	t.highest = max(t.highest, int64(rec.ID))
	t.tasks[rec.ID] = rec
	if h := t.runs[rec.ID]; h != nil && rec.AbortRequested && !h.aborting {
		h.cancel(ErrAborted)
	}
	if timer := t.timers[rec.ID]; timer != nil {
		timer.Stop()
		delete(t.timers, rec.ID)
	}
	if rec.State.Status == TaskTerminal {
		c := t.convs[rec.ConversationID]
		o := rec.State.Outcome
		delete(c.outputs, rec.ID)
		delete(t.blocked, rec.ID)
		for key := range t.docs {
			if key.Scope == ScopeTask && key.Owner == int64(rec.ID) {
				delete(t.docs, key)
			}
		}
		if o.Status == OutcomeFaulted || o.Status == OutcomeOrphaned {
			t.e.log.Error("task ended", slog.Int64("task", int64(rec.ID)), slog.String("kind", rec.Kind),
				slog.String("outcome", string(o.Status)), slog.Any("error", o.Error), slog.String("reason", o.Reason))
			c.publish(t.e, EventTaskFailed, TaskFailedEvent{ConversationID: rec.ConversationID, TaskID: rec.ID, Kind: rec.Kind, Outcome: *o})
		}
	}
}

// prune drops ended tasks whose owner has ended, or has committed since and so
// has seen how they ended. The caller holds mu.
func (t *tree) prune(by TaskID) {
	for id, rec := range t.tasks {
		if rec.State.Status != TaskTerminal {
			continue
		}
		owner := t.tasks[rec.Owner]
		switch {
		case rec.Owner == 0, owner == nil, owner.State.Status == TaskTerminal:
		case rec.Owner == by && (owner.State.Wait == nil || !slices.Contains(owner.State.Wait.On, id)):
		default:
			continue
		}
		delete(t.tasks, id)
	}
}

func (t *tree) adoptPartial(w PartialWrite) {
	rec := t.tasks[w.TaskID]
	if rec == nil {
		return
	}
	c := t.convs[rec.ConversationID]
	if w.Reset && len(w.Data) == 0 {
		delete(c.outputs, w.TaskID)
		return
	}
	if w.Reset || c.outputs[w.TaskID] == nil {
		c.outputs[w.TaskID] = newLiveOutput(rec, nil)
	}
	c.outputs[w.TaskID].add(w.Data)
}

func (t *tree) adoptDoc(key DocKey, ed *docEdit) {
	if ed.written == nil || key.Scope == ScopeGlobal {
		return
	}
	if ed.written.Delete {
		t.docs[key] = nil
		return
	}
	t.docs[key] = &ed.written.Record
	if key.Scope != ScopeConversation {
		return
	}
	c := t.convs[ConversationID(key.Owner)]
	if c == nil {
		return
	}
	switch key.Kind {
	case agentDocKind:
		c.publish(t.e, EventAgentChanged, DocEvent{ConversationID: c.rec.ID, Value: ed.written.Record.Value})
	case usageDocKind:
		c.publish(t.e, EventUsageChanged, DocEvent{ConversationID: c.rec.ID, Value: ed.written.Record.Value})
	}
}

func transcriptItem(e *Entry) transcript.Item {
	it := transcript.Item{ID: int64(e.ID), Messages: e.Model, Head: int64(e.Head)}
	for _, ed := range e.Edits {
		it.Edits = append(it.Edits, transcript.Edit{Target: int64(ed.Target), Omit: ed.Action == EditOmit, Messages: ed.Messages})
	}
	return it
}
