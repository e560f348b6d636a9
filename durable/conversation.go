package durable

import (
	"context"
	"errors"
	"fmt"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Conversation is a handle on a stored conversation. It holds no state of its
// own; its methods may be called concurrently.
type Conversation struct {
	e   *Engine
	rec ConversationRecord
}

// ConversationParams say how a conversation begins.
type ConversationParams struct {
	// Agent sets what differs from the host's defaults.
	Agent *AgentChange
	// Claim, when not nil, takes a key that must be unique over the store; its
	// Value becomes the conversation's id. When it is taken, NewConversation
	// fails with a [*ConflictError] that holds the winner.
	Claim *Claim
	// Init, when not nil, may write more in the commit that creates the
	// conversation.
	Init func(ctx context.Context, tx *Tx, id ConversationID) error
}

// NewConversation creates a conversation that nothing owns, the root of a new
// tree.
func (e *Engine) NewConversation(ctx context.Context, p *ConversationParams) (*Conversation, error) {
	if p == nil {
		p = &ConversationParams{}
	}
	if e.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if ctx.Value(lineKey) != nil {
		return nil, ErrNestedUpdate
	}
	n, err := e.ids.take(ctx)
	if err != nil {
		return nil, fmt.Errorf("new conversation: %w", err)
	}
	id := ConversationID(n)
	t := e.pin(id)
	defer e.unpin(t)
	t.mu.Lock()
	t.newborn = true
	t.mu.Unlock()
	var rec ConversationRecord
	err = t.update(ctx, 0, func(ctx context.Context, tx *Tx) error {
		rec = ConversationRecord{ID: id, TreeID: id, CreatedAt: tx.at}
		tx.convs = append(tx.convs, &rec)
		if p.Claim != nil {
			tx.claims = append(tx.claims, Claim{Scope: p.Claim.Scope, Key: p.Claim.Key, Value: n})
		}
		if p.Agent != nil {
			a, err := agentDoc.Edit(tx, n)
			if err != nil {
				return err
			}
			*a = p.Agent.Apply(*a)
			if err := a.validate(); err != nil {
				return err
			}
		}
		if p.Init != nil {
			return p.Init(ctx, tx, id)
		}
		return nil
	})
	if err != nil {
		if !errors.Is(err, errUnreachable) {
			t.forget()
		}
		return nil, fmt.Errorf("new conversation: %w", err)
	}
	return &Conversation{e: e, rec: rec}, nil
}

// Conversation returns a stored conversation, or [ErrNotFound].
func (e *Engine) Conversation(ctx context.Context, id ConversationID) (*Conversation, error) {
	if rec, ok := e.cached(id); ok {
		return &Conversation{e: e, rec: rec}, nil
	}
	rec, err := e.store.Conversation(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("conversation %d: %w", id, err)
	}
	return &Conversation{e: e, rec: rec}, nil
}

// cached returns the record of a conversation in memory.
func (e *Engine) cached(id ConversationID) (ConversationRecord, bool) {
	e.mu.Lock()
	t := e.trees[e.treeOf[id]]
	e.mu.Unlock()
	if t == nil {
		return ConversationRecord{}, false
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	if c := t.convs[id]; c != nil {
		return c.rec, true
	}
	return ConversationRecord{}, false
}

// Conversations returns a page of all conversations.
func (e *Engine) Conversations(ctx context.Context, q ConversationQuery) ([]ConversationRecord, error) {
	list, err := e.store.Conversations(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list conversations: %w", err)
	}
	return list, nil
}

// ID returns the conversation's id.
func (c *Conversation) ID() ConversationID { return c.rec.ID }

// Record returns the stored conversation.
func (c *Conversation) Record() ConversationRecord {
	return c.rec.clone()
}

func (r *ConversationRecord) clone() ConversationRecord {
	rec := *r
	rec.ForkOf, rec.Owner = clonePtr(r.ForkOf), clonePtr(r.Owner)
	return rec
}

// Engine returns the engine of the handle.
func (c *Conversation) Engine() *Engine { return c.e }

// Update is [Engine.Update] on the conversation's tree.
func (c *Conversation) Update(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return c.e.Update(ctx, c.rec.ID, fn)
}

// Busy reports whether live work goes on in the conversation that is not in
// the background.
func (c *Conversation) Busy(ctx context.Context) (bool, error) {
	t, release, err := c.e.acquire(ctx, c.rec.ID)
	if err != nil {
		return false, err
	}
	defer release()
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.busy(c.rec.ID), nil
}

// WaitIdle returns when the conversation is not busy.
func (c *Conversation) WaitIdle(ctx context.Context) error {
	t, release, err := c.e.acquire(ctx, c.rec.ID)
	if err != nil {
		return err
	}
	defer release()
	return t.await(ctx, func() bool { return !t.busy(c.rec.ID) })
}

// Inbox returns the queued submissions, in the order in which they came.
func (c *Conversation) Inbox(ctx context.Context) ([]SubmissionRecord, error) {
	t, release, err := c.e.acquire(ctx, c.rec.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []SubmissionRecord
	for _, id := range t.queued(c.rec.ID) {
		out = append(out, t.subs[id].clone())
	}
	return out, nil
}

// Entries returns a page of the conversation's history by id, with the part a
// fork inherited.
func (c *Conversation) Entries(ctx context.Context, q EntryQuery) ([]Entry, error) {
	segments, err := c.e.segments(ctx, c.rec)
	if err != nil {
		return nil, err
	}
	if !q.Descending {
		for i, j := 0, len(segments)-1; i < j; i, j = i+1, j-1 {
			segments[i], segments[j] = segments[j], segments[i]
		}
	}
	var out []Entry
	for _, s := range segments {
		sq := q
		sq.ConversationID = s.id
		if s.upTo != 0 && (sq.To == 0 || sq.To > s.upTo) {
			sq.To = s.upTo
		}
		if q.Limit > 0 {
			sq.Limit = q.Limit - len(out)
		}
		page, err := c.e.store.Entries(ctx, sq)
		if err != nil {
			return nil, fmt.Errorf("entries of conversation %d: %w", c.rec.ID, err)
		}
		out = append(out, page...)
		if q.Limit > 0 && len(out) >= q.Limit {
			break
		}
	}
	return out, nil
}

// Head returns the newest entry, 0 when there is none.
func (c *Conversation) Head(ctx context.Context) (EntryID, error) {
	newest, err := c.Entries(ctx, EntryQuery{Limit: 1, Descending: true})
	if err != nil || len(newest) == 0 {
		return 0, err
	}
	return newest[0].ID, nil
}

// segment is a stretch of history: the entries of a conversation up to one.
type segment struct {
	id   ConversationID
	upTo EntryID // 0: all
}

// segments returns where a conversation's history is stored, newest first.
func (e *Engine) segments(ctx context.Context, rec ConversationRecord) ([]segment, error) {
	out := []segment{{id: rec.ID}}
	for rec.ForkOf != nil {
		from := *rec.ForkOf
		out = append(out, segment{from.ConversationID, from.At})
		var ok bool
		if rec, ok = e.cached(from.ConversationID); ok {
			continue
		}
		var err error
		if rec, err = e.store.Conversation(ctx, from.ConversationID); err != nil {
			return nil, fmt.Errorf("history of conversation %d: %w", out[0].id, err)
		}
	}
	return out, nil
}

// newestHead returns the entry that begins the active range, nil when it is the
// whole history.
func (e *Engine) newestHead(ctx context.Context, t *tree, id ConversationID) (*Entry, error) {
	c := t.convs[id]
	if c == nil {
		return nil, nil
	}
	segments, err := e.segments(ctx, c.rec)
	if err != nil {
		return nil, err
	}
	for _, s := range segments {
		head, err := e.store.NewestHead(ctx, s.id, s.upTo)
		if errors.Is(err, ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("head of conversation %d: %w", id, err)
		}
		return &head, nil
	}
	return nil, nil
}

// activeEntries reads the entries the model may see: the head, if there is
// one, and all from its Head on, up to an entry (0: all). rec is the
// conversation.
func (e *Engine) activeEntries(ctx context.Context, rec ConversationRecord, upTo EntryID) ([]Entry, error) {
	segments, err := e.segments(ctx, rec)
	if err != nil {
		return nil, err
	}
	if upTo != 0 {
		segments[0].upTo = upTo
	}
	var from EntryID
	for _, s := range segments {
		head, err := e.store.NewestHead(ctx, s.id, s.upTo)
		if err == nil {
			from = min(head.Head, head.ID)
			break
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, fmt.Errorf("head of conversation %d: %w", rec.ID, err)
		}
	}
	var out []Entry
	for i := len(segments) - 1; i >= 0; i-- {
		s := segments[i]
		page, err := e.store.Entries(ctx, EntryQuery{ConversationID: s.id, From: from, To: s.upTo})
		if err != nil {
			return nil, fmt.Errorf("entries of conversation %d: %w", rec.ID, err)
		}
		out = append(out, page...)
	}
	return out, nil
}

// Context returns what the model would see now: the messages of the next
// request before they are fitted to a model. They are the caller's.
func (c *Conversation) Context(ctx context.Context) ([]model.Message, error) {
	t, release, err := c.e.acquire(ctx, c.rec.ID)
	if err != nil {
		return nil, err
	}
	defer release()
	var out []model.Message
	err = t.withTranscript(ctx, c.rec.ID, func(c *conversation) { out = cloneMessages(c.transcript.Messages()) })
	return out, err
}
