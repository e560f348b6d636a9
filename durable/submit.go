package durable

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/wp-durable/wp-durable/durable/model"
)

// SubmitParams are what is handed to a conversation.
type SubmitParams struct {
	// RequestID admits the submission exactly once in this conversation, for
	// ever: the same id again returns the first submission. Empty: none.
	RequestID string
	// Type is SubmissionInput by default.
	Type SubmissionType
	// Content is an input's: text and images.
	Content []model.Block
	// Entry is a write's.
	Entry *EntrySpec
	// WhenBusy says what an input does while a run goes on.
	WhenBusy WhenBusy
	// OutputTokens bounds each answer of the input's run; 0 is the agent's
	// limit.
	OutputTokens int
	// HostData is the host's own JSON, kept with the submission.
	HostData json.RawMessage
}

// Submit hands an input or a write to the conversation. When it returns, the
// submission is durable: it will be settled whatever crashes. known reports
// that the request id was admitted before. In an idle conversation an input is
// placed at once and its run starts, and a write is done; otherwise it waits
// in the inbox.
//
// Errors: [ErrInvalid], [ErrBusy], [ErrRequestIDConflict], [ErrClosed].
func (c *Conversation) Submit(ctx context.Context, p *SubmitParams) (sub *Submission, known bool, err error) {
	params := *p
	params.HostData = bytes.Clone(p.HostData)
	if err := params.normalise(); err != nil {
		return nil, false, fmt.Errorf("submit: %w", err)
	}
	rec, known, err := c.submit(ctx, &params)
	if err != nil {
		return nil, false, fmt.Errorf("submit to conversation %d: %w", c.rec.ID, err)
	}
	return &Submission{e: c.e, id: rec.ID, conversation: c.rec.ID}, known, nil
}

// Send is Submit of an input with one text.
func (c *Conversation) Send(ctx context.Context, text string) (*Submission, error) {
	s, _, err := c.Submit(ctx, &SubmitParams{Content: []model.Block{model.Text(text)}})
	return s, err
}

func (p *SubmitParams) normalise() error {
	if p.Type == "" {
		p.Type = SubmissionInput
	}
	if p.WhenBusy == "" {
		p.WhenBusy = FollowUp
	}
	if len(p.RequestID) > 256 {
		return fmt.Errorf("requestId is longer than 256 bytes: %w", ErrInvalid)
	}
	if len(p.HostData) > 0 && !json.Valid(p.HostData) {
		return fmt.Errorf("hostData is not JSON: %w", ErrInvalid)
	}
	if p.OutputTokens < 0 {
		return fmt.Errorf("outputTokens %d is negative: %w", p.OutputTokens, ErrInvalid)
	}
	switch p.WhenBusy {
	case FollowUp, Steer, Reject:
	default:
		return fmt.Errorf("whenBusy %q is unknown: %w", p.WhenBusy, ErrInvalid)
	}
	switch p.Type {
	case SubmissionInput:
		return p.normaliseInput()
	case SubmissionWrite:
		if p.Entry == nil || len(p.Content) > 0 {
			return fmt.Errorf("a write has an entry and no content: %w", ErrInvalid)
		}
		p.Entry = cloneSpec(p.Entry)
		return validateEntry(p.Entry)
	}
	return fmt.Errorf("type %q is unknown: %w", p.Type, ErrInvalid)
}

func (p *SubmitParams) normaliseInput() error {
	if p.Entry != nil {
		return fmt.Errorf("an input has content and no entry: %w", ErrInvalid)
	}
	said := false
	content := (&model.Message{Content: p.Content}).Clone().Content
	for i := range content {
		b := &content[i]
		switch b.Type {
		case model.BlockText:
			*b = model.Block{Type: b.Type, Text: b.Text}
			said = said || len(bytes.TrimSpace([]byte(b.Text))) > 0
		case model.BlockImage:
			*b = model.Block{Type: b.Type, MimeType: b.MimeType, Data: b.Data}
			said = true
		default:
			return fmt.Errorf("content[%d]: a block of type %q cannot be submitted: %w", i, b.Type, ErrInvalid)
		}
		if err := validateBlock(b); err != nil {
			return fmt.Errorf("content[%d]: %w", i, err)
		}
	}
	if !said {
		return fmt.Errorf("content is empty: %w", ErrInvalid)
	}
	p.Content = content
	return nil
}

// hash is the content hash of a submission (E8.5): over type and content, not
// over how it meets a busy conversation, its limits or its host's data.
func (p *SubmitParams) hash() []byte {
	var content any = p.Content
	if p.Type == SubmissionWrite {
		content = p.Entry
	}
	canonical := canonicalJSON(marshalRaw(struct {
		Type    SubmissionType `json:"type"`
		Content any            `json:"content"`
	}{p.Type, content}))
	sum := sha256.Sum256(canonical)
	return sum[:]
}

// canonicalJSON sorts the keys of objects and keeps numbers as written.
func canonicalJSON(raw json.RawMessage) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return raw
	}
	return marshalRaw(v)
}

func (c *Conversation) submit(ctx context.Context, p *SubmitParams) (rec SubmissionRecord, known bool, err error) {
	t, release, err := c.e.acquire(ctx, c.rec.ID)
	if err != nil {
		return rec, false, err
	}
	defer release()
	hash := p.hash()
	err = t.update(ctx, 0, func(_ context.Context, tx *Tx) error {
		rec, known, err = tx.submit(c.rec.ID, p, hash)
		return err
	})
	return rec, known, err
}

// Submit is [Conversation.Submit] as a part of a commit, in any conversation
// of the tree, also one that the commit creates.
func (tx *Tx) Submit(id ConversationID, p *SubmitParams) (sub SubmissionID, known bool, err error) {
	if err := tx.check(); err != nil {
		return 0, false, err
	}
	params := *p
	params.HostData = bytes.Clone(p.HostData)
	if err := params.normalise(); err != nil {
		return 0, false, fmt.Errorf("submit: %w", err)
	}
	rec, known, err := tx.submit(id, &params, params.hash())
	if err != nil {
		return 0, false, fmt.Errorf("submit to conversation %d: %w", id, err)
	}
	return rec.ID, known, nil
}

func (tx *Tx) submit(id ConversationID, p *SubmitParams, hash []byte) (rec SubmissionRecord, known bool, err error) {
	if tx.conversation(id) == nil {
		return rec, false, fmt.Errorf("conversation %d: %w", id, ErrNotFound)
	}
	if p.RequestID != "" {
		before, err := tx.byRequest(id, p.RequestID)
		if err != nil {
			return rec, false, err
		}
		if before != nil {
			if before.Type != p.Type || !bytes.Equal(before.ContentHash, hash) {
				return rec, false, fmt.Errorf("request id %q: %w", p.RequestID, ErrRequestIDConflict)
			}
			return *before, true, nil
		}
	}
	s, err := tx.admit(id, p, hash)
	if err != nil {
		return rec, false, err
	}
	return *s, false, nil
}

// byRequest returns the submission of a request id, nil when there is none.
func (tx *Tx) byRequest(id ConversationID, requestID string) (*SubmissionRecord, error) {
	for _, s := range tx.subs {
		if s.ConversationID == id && s.RequestID == requestID {
			return s, nil
		}
	}
	conv := tx.t.convs[id]
	if conv == nil {
		return nil, nil // made in this commit
	}
	sid, seen := conv.requests[requestID]
	if seen {
		if s := tx.t.subs[sid]; s != nil {
			return s, nil
		}
		s, err := tx.e.store.Submission(tx.ctx, sid)
		return &s, err
	}
	if conv.requestsComplete {
		return nil, nil
	}
	s, err := tx.e.store.SubmissionByRequest(tx.ctx, id, requestID)
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	return &s, err
}

// admit stages a new submission, placed at once when the conversation is idle
// and nothing waits before it.
func (tx *Tx) admit(id ConversationID, p *SubmitParams, hash []byte) (*SubmissionRecord, error) {
	if p.Type == SubmissionWrite && p.Entry.Head != headSelf && int64(p.Entry.Head) > tx.t.highest && !tx.staged(p.Entry.Head) {
		return nil, fmt.Errorf("entry: head %d is not an entry: %w", p.Entry.Head, ErrInvalid)
	}
	idle := !tx.busy(id) && len(tx.queue(id)) == 0
	if !idle && p.Type == SubmissionInput && p.WhenBusy == Reject {
		return nil, ErrBusy
	}
	n, err := tx.id()
	if err != nil {
		return nil, err
	}
	s := &SubmissionRecord{
		ID: SubmissionID(n), ConversationID: id, RequestID: p.RequestID, Type: p.Type, Status: SubmissionQueued,
		OutputTokens: p.OutputTokens, ContentHash: hash, HostData: p.HostData, CreatedAt: tx.at,
		Queued: &QueuedItem{Entry: p.Entry},
	}
	if p.Type == SubmissionInput {
		s.Queued.WhenBusy, s.Queued.Content = p.WhenBusy, p.Content
	}
	tx.putSub(s)
	switch {
	case !idle:
		tx.emitSub(s)
		return s, nil
	case p.Type == SubmissionWrite:
		return s, tx.placeWrite(s)
	}
	return s, tx.startRun(id, []*SubmissionRecord{s})
}

// Reset begins a new context: what was said before stays in the history, and
// the model no longer sees it. handoff, when not empty, is the first user
// message of the new context. While the conversation is busy the reset waits
// for the next tool round's end, and ends the run there.
func (c *Conversation) Reset(ctx context.Context, handoff string) (*Submission, error) {
	spec := resetEntry(handoff)
	rec, _, err := c.submit(ctx, &SubmitParams{Type: SubmissionWrite, WhenBusy: FollowUp, Entry: &spec})
	if err != nil {
		return nil, fmt.Errorf("reset conversation %d: %w", c.rec.ID, err)
	}
	return &Submission{e: c.e, id: rec.ID, conversation: c.rec.ID}, nil
}
