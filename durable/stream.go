package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/wp-durable/wp-durable/durable/model"
)

// StreamType names a kind of [StreamEvent].
type StreamType string

// The events of a submission's stream. The comment names the fields that count.
const (
	StreamStatus       StreamType = "status"        // Submission
	StreamMessageStart StreamType = "message_start" // Message
	StreamText         StreamType = "text"          // Message, Delta
	StreamThinking     StreamType = "thinking"      // Message, Delta
	StreamToolCall     StreamType = "tool_call"     // Message, ToolCallID, Name, Arguments
	StreamToolOutput   StreamType = "tool_output"   // ToolCallID, Delta, Reset
	StreamToolResult   StreamType = "tool_result"   // ToolCallID, IsError, Content
	StreamMessageVoid  StreamType = "message_void"  // Message, Reason: forget it
	StreamMessageEnd   StreamType = "message_end"   // Message, EntryID, StopReason
	StreamDone         StreamType = "done"          // Submission; the last event
)

// StreamEvent is a step of the answer to a submission. Type decides which
// fields count.
type StreamEvent struct {
	Type       StreamType
	Submission *SubmissionRecord
	Message    int // counts from 1 within what the stream shows of the run
	Delta      string
	// Reset: Delta replaces the tool's output shown so far.
	Reset      bool
	ToolCallID string
	Name       string
	Arguments  json.RawMessage
	IsError    bool
	Content    []model.Block
	EntryID    EntryID
	StopReason model.StopReason
	Reason     string
}

// Stream returns the answer to the submission as it is written: its status,
// the messages of its run piece by piece, tool calls with their output, and at
// last done. Somebody who joins late gets the past as the same events. The text
// of the last message that is not void is the answer's text. The sequence ends
// with an error when ctx ends or the engine closes.
func (s *Submission) Stream(ctx context.Context) iter.Seq2[StreamEvent, error] {
	return func(yield func(StreamEvent, error) bool) {
		conv, err := s.e.Conversation(ctx, s.conversation)
		if err != nil {
			yield(StreamEvent{}, err)
			return
		}
		f, err := conv.follow(ctx)
		if err != nil {
			yield(StreamEvent{}, err)
			return
		}
		defer f.close()
		r := &streamReader{s: s, f: f, conv: conv, yield: yield, calls: map[string]bool{}}
		if err := r.read(ctx); err != nil && !errors.Is(err, errStopped) {
			yield(StreamEvent{}, err)
		}
	}
}

// errStopped: the reader of a stream has left its loop.
var errStopped = errors.New("reader stopped")

// streamReader turns the past and the events of a conversation into the stream
// of one submission.
type streamReader struct {
	s     *Submission
	f     *follower
	conv  *Conversation
	yield func(StreamEvent, error) bool

	status SubmissionStatus
	run    TaskID
	from   EntryID // the submission's entry
	seen   EntryID // the newest entry that was shown
	number int     // of the newest message
	open   bool    // that message has no end yet
	entry  *Entry  // of the message that is about to end
	calls  map[string]bool
}

func (r *streamReader) send(ev StreamEvent) error {
	if !r.yield(ev, nil) {
		return errStopped
	}
	return nil
}

// read shows the past, then follows, and begins again with the past, from what
// was shown, when it fell behind.
func (r *streamReader) read(ctx context.Context) error {
	for {
		n, done, err := r.past(ctx)
		if err != nil || done {
			return err
		}
		err = r.followFrom(ctx, n)
		if !errors.Is(err, errLost) {
			return err
		}
		if r.open {
			if err := r.void("some of it was missed"); err != nil {
				return err
			}
		}
	}
}

// past shows what is committed and was not shown, and returns the number of
// the event it stands behind.
func (r *streamReader) past(ctx context.Context) (n uint64, done bool, err error) {
	t := r.f.t
	if err := t.load(ctx); err != nil { // after an uncertain commit
		return 0, false, err
	}
	t.mu.RLock()
	n = r.f.h.position(func() uint64 { return r.s.e.events.Add(1) })
	c := t.convs[r.s.conversation]
	upTo := c.last
	var rec *SubmissionRecord
	if s := t.subs[r.s.id]; s != nil {
		v := s.clone()
		rec = &v
	}
	var partial *PartialMessage
	var tools []RunningTool
	if rec != nil && rec.TaskID != 0 {
		if out := c.outputs[rec.TaskID]; out != nil {
			partial = out.partial(rec.TaskID, rec.ID)
		}
		for _, task := range t.tasks {
			if rt, ok := runningTool(task, c.outputs[task.ID]); ok && task.Owner == rec.TaskID {
				tools = append(tools, rt)
			}
		}
	}
	t.mu.RUnlock()
	if rec == nil {
		stored, err := r.s.Record(ctx)
		if err != nil {
			return 0, false, err
		}
		rec = &stored
	}
	if err := r.showStatus(rec); err != nil {
		return 0, false, err
	}
	if rec.EntryID != 0 && rec.TaskID != 0 {
		if err := r.entries(ctx, upTo, rec.SettledAt != nil, rec.AnswerEntryID); err != nil {
			return 0, false, err
		}
	}
	rec.Queued, rec.ContentHash = nil, nil
	if rec.SettledAt != nil {
		return n, true, r.send(StreamEvent{Type: StreamDone, Submission: rec})
	}
	if partial != nil {
		if err := r.start(); err != nil {
			return 0, false, err
		}
		for i := range partial.Deltas {
			if err := r.delta(&partial.Deltas[i]); err != nil {
				return 0, false, err
			}
		}
	}
	for _, rt := range tools {
		if rt.Output != "" {
			if err := r.send(StreamEvent{Type: StreamToolOutput, ToolCallID: rt.ToolCallID, Delta: rt.Output, Reset: true}); err != nil {
				return 0, false, err
			}
		}
	}
	return n, false, nil
}

func (r *streamReader) showStatus(rec *SubmissionRecord) error {
	if rec.Status == r.status {
		return nil
	}
	r.status, r.run, r.from = rec.Status, rec.TaskID, rec.EntryID
	view := rec.clone()
	view.Queued, view.ContentHash = nil, nil
	return r.send(StreamEvent{Type: StreamStatus, Submission: &view})
}

// entries shows the stored messages of the run, up to an entry, that were not
// shown.
func (r *streamReader) entries(ctx context.Context, upTo EntryID, settled bool, answer EntryID) error {
	const page = 200
	from := max(r.from, r.seen) + 1
	for {
		entries, err := r.s.e.store.Entries(ctx, EntryQuery{ConversationID: r.s.conversation, From: from, To: upTo, Limit: page})
		if err != nil {
			return fmt.Errorf("entries of submission %d: %w", r.s.id, err)
		}
		for i := range entries {
			e := &entries[i]
			if e.Kind == KindAssistant && e.ByTaskID != r.run {
				return nil
			}
			r.seen = e.ID
			switch {
			case e.void():
				if err := r.voided(e); err != nil {
					return err
				}
			case e.Kind == KindAssistant:
				if err := r.message(e); err != nil {
					return err
				}
			case e.Kind == KindToolResult:
				if err := r.result(e); err != nil {
					return err
				}
			}
			if e.ID == answer && settled && len(e.Model[0].ToolCalls()) == 0 {
				return nil
			}
			if settled && e.Kind == KindUser && e.ID > answer && answer != 0 {
				return nil // of the next run; the results of the last calls were shown
			}
		}
		if len(entries) < page {
			return nil
		}
		from = entries[len(entries)-1].ID + 1
	}
}

// voided shows a message that was cut off and does not stand.
func (r *streamReader) voided(e *Entry) error {
	if len(e.Model) == 0 {
		return nil
	}
	if err := r.start(); err != nil {
		return err
	}
	if err := r.blocks(&e.Model[0]); err != nil {
		return err
	}
	return r.void("the attempt was cut off")
}

// message shows a stored message.
func (r *streamReader) message(e *Entry) error {
	if len(e.Model) == 0 {
		return nil
	}
	if err := r.start(); err != nil {
		return err
	}
	if err := r.blocks(&e.Model[0]); err != nil {
		return err
	}
	return r.end(e)
}

func (r *streamReader) blocks(m *model.Message) error {
	for i := range m.Content {
		b := &m.Content[i]
		d := model.Delta{Kind: model.DeltaText, Index: i, Text: b.Text}
		if b.Type == model.BlockThinking {
			d = model.Delta{Kind: model.DeltaThinking, Index: i, Text: b.Thinking}
		}
		if err := r.delta(&d); err != nil {
			return err
		}
	}
	return nil
}

func (r *streamReader) start() error {
	r.number++
	r.open = true
	return r.send(StreamEvent{Type: StreamMessageStart, Message: r.number})
}

func (r *streamReader) delta(d *model.Delta) error {
	if d.Text == "" {
		return nil
	}
	switch d.Kind {
	case model.DeltaText:
		return r.send(StreamEvent{Type: StreamText, Message: r.number, Delta: d.Text})
	case model.DeltaThinking:
		return r.send(StreamEvent{Type: StreamThinking, Message: r.number, Delta: d.Text})
	}
	return nil
}

func (r *streamReader) void(reason string) error {
	r.open = false
	return r.send(StreamEvent{Type: StreamMessageVoid, Message: r.number, Reason: reason})
}

// end shows the tool calls of a message and its end.
func (r *streamReader) end(e *Entry) error {
	r.open = false
	r.seen = max(r.seen, e.ID)
	m := &e.Model[0]
	for _, c := range m.ToolCalls() {
		r.calls[c.ID] = true
		if err := r.send(StreamEvent{Type: StreamToolCall, Message: r.number, ToolCallID: c.ID, Name: c.Name, Arguments: slices.Clone(c.Arguments)}); err != nil {
			return err
		}
	}
	return r.send(StreamEvent{Type: StreamMessageEnd, Message: r.number, EntryID: e.ID, StopReason: m.StopReason})
}

func (r *streamReader) result(e *Entry) error {
	for i := range e.Model {
		m := &e.Model[i]
		if m.Role != model.RoleToolResult || !r.calls[m.ToolCallID] {
			continue
		}
		if err := r.send(StreamEvent{Type: StreamToolResult, ToolCallID: m.ToolCallID, IsError: m.IsError, Content: m.Content}); err != nil {
			return err
		}
	}
	return nil
}

// followFrom shows events as they come, until the submission is settled.
func (r *streamReader) followFrom(ctx context.Context, n uint64) error {
	for {
		events, err := r.f.next(ctx, n)
		if err != nil {
			return err
		}
		for _, ev := range events {
			n = ev.n
			if err := r.event(ev); err != nil {
				return err
			}
		}
	}
}

func (r *streamReader) event(ev Event) error {
	switch d := ev.Data.(type) {
	case SubmissionEvent:
		if d.SubmissionID != r.s.id {
			return nil
		}
		if err := r.showStatus(d.Submission); err != nil || d.Submission.SettledAt == nil {
			return err
		}
		done := d.Submission.clone()
		if err := r.send(StreamEvent{Type: StreamDone, Submission: &done}); err != nil {
			return err
		}
		return errStopped
	case EntryEvent:
		r.noteEntry(d.Entry)
	case MessageEvent:
		if d.TaskID == r.run && r.run != 0 {
			return r.messageEvent(ev.Type, d)
		}
	case ToolEvent:
		if !r.calls[d.ToolCallID] {
			return nil
		}
		switch ev.Type {
		case EventToolUpdate:
			return r.send(StreamEvent{Type: StreamToolOutput, ToolCallID: d.ToolCallID, Delta: d.Delta, Reset: d.Reset})
		case EventToolEnd:
			r.seen = max(r.seen, d.EntryID)
			return r.send(StreamEvent{Type: StreamToolResult, ToolCallID: d.ToolCallID, IsError: d.Result.IsError, Content: d.Result.Clone().Content})
		}
	}
	return nil
}

func (r *streamReader) noteEntry(e *Entry) {
	if r.run == 0 {
		return
	}
	if e.Kind == KindAssistant && e.ByTaskID == r.run && len(e.Model) > 0 {
		r.entry = e
	}
}

func (r *streamReader) messageEvent(kind EventType, d MessageEvent) error {
	switch kind {
	case EventMessageStart:
		return r.start()
	case EventMessageUpdate:
		return r.delta(d.Delta)
	case EventMessageVoid:
		if r.open {
			return r.void(d.Reason)
		}
	case EventMessageEnd:
		if r.entry == nil {
			return nil
		}
		if !r.open {
			if err := r.start(); err != nil {
				return err
			}
		}
		return r.end(r.entry)
	}
	return nil
}
