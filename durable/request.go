package durable

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/wp-durable/wp-durable/durable/internal/line"
	"github.com/wp-durable/wp-durable/durable/model"
)

// partialGrace is how long the first piece of an answer may wait for more of
// it, so that an answer that comes at once costs no commit of its own.
const partialGrace = 5 * time.Millisecond

// request sends a prepared request, stores its answer piece by piece as it
// comes, and commits the outcome.
func (g *generation) request(ctx context.Context, p *prepared) error {
	stream := &answerStream{g: g, ctx: ctx}
	var resp *model.Response
	err := g.e.protect("model provider", func() (err error) {
		resp, err = p.provider.Stream(ctx, p.req, stream.emit)
		return err
	})
	rest := stream.finish()
	var msg *model.Message
	if resp != nil && resp.Message != nil {
		m := resp.Message.Clone()
		msg = &m
		msg.Role, msg.Provider, msg.Model = model.RoleAssistant, p.ref.Provider, p.ref.ModelID
		msg.Timestamp = stamp(g.e.clock.Now())
	}
	if err == nil && msg == nil {
		err = &model.Error{Class: model.ClassProtocol, Message: "the provider returned no message"}
	}
	if ctx.Err() != nil && (err != nil || msg.StopReason == model.StopAborted) {
		return g.interrupted(ctx, p, stream, rest, msg)
	}
	if err != nil {
		return g.failed(ctx, p, stream, rest, msg, modelError(err))
	}
	return g.answered(ctx, p, stream, rest, msg)
}

// modelError classifies a provider's failure. A panic is the provider's fault
// and not cured by repeating.
func modelError(err error) *model.Error {
	if _, ok := errors.AsType[*panicError](err); ok {
		return &model.Error{Class: model.ClassInvalidRequest, Message: err.Error(), Err: err}
	}
	return model.AsError(err)
}

// answerStream commits the pieces of a running answer: the first within
// partialGrace, then at most one commit each PartialInterval (E12.2).
type answerStream struct {
	g   *generation
	ctx context.Context

	mu      sync.Mutex
	pending []model.Delta
	timer   Timer
	last    time.Time // start of the last commit
	done    bool

	flushing line.Line // held during a commit
	started  bool      // a piece was committed; guarded by flushing, read after finish
}

// emit takes a piece from the provider.
func (s *answerStream) emit(d model.Delta) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return
	}
	s.pending = appendDelta(s.pending, d)
	if s.timer != nil {
		return
	}
	wait := partialGrace
	if !s.last.IsZero() {
		wait = max(wait, s.g.e.opts.PartialInterval-s.g.e.clock.Now().Sub(s.last))
	}
	s.timer = s.g.e.clock.AfterFunc(wait, s.flush)
}

// appendDelta adds d, merged with the last piece when it goes on with it.
func appendDelta(ds []model.Delta, d model.Delta) []model.Delta {
	if n := len(ds); n > 0 && continues(&ds[n-1], &d) {
		ds[n-1].Text += d.Text
		return ds
	}
	return append(ds, d)
}

func (s *answerStream) flush() {
	if !s.g.e.begin() {
		return
	}
	defer s.g.e.wg.Done()
	_ = s.flushing.Lock(context.Background())
	defer s.flushing.Unlock()
	s.mu.Lock()
	s.timer = nil
	if s.done || len(s.pending) == 0 {
		s.mu.Unlock()
		return
	}
	pieces := s.pending
	s.pending = nil
	s.last = s.g.e.clock.Now()
	s.mu.Unlock()
	if err := s.commit(pieces); err != nil {
		// What was not stored goes with the next commit.
		s.mu.Lock()
		for _, d := range s.pending {
			pieces = appendDelta(pieces, d)
		}
		s.pending = pieces
		s.mu.Unlock()
	}
}

func (s *answerStream) commit(pieces []model.Delta) error {
	err := s.g.commit(s.ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		s.stage(tx, pieces)
		tx.partials = append(tx.partials, PartialWrite{TaskID: s.g.run.ID(), Data: marshalRaw(pieces)})
		if s.started {
			return generationStep{}, nil
		}
		return s.g.run.Next(phaseRequest, s.g.opened()), nil
	})
	if err == nil {
		s.started = true
		s.g.state = s.g.opened()
	}
	return err
}

// stage publishes pieces with the commit.
func (s *answerStream) stage(tx *Tx, pieces []model.Delta) {
	id := s.g.conv.rec.ID
	if !s.started {
		s.g.openTurn(tx)
		tx.emit(id, EventMessageStart, s.g.messageEvent(nil))
	}
	for i := range pieces {
		tx.emit(id, EventMessageUpdate, s.g.messageEvent(func(m *MessageEvent) { d := pieces[i]; m.Delta = &d }))
	}
}

// finish ends the stream and returns the pieces that are not committed.
func (s *answerStream) finish() []model.Delta {
	s.mu.Lock()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	_ = s.flushing.Lock(context.Background()) // waits for a commit under way
	defer s.flushing.Unlock()
	return s.pending
}

// interrupted keeps what had come when the request was cancelled, by an abort
// or by the engine's end; the abort handler or recovery goes on from it.
func (g *generation) interrupted(ctx context.Context, p *prepared, stream *answerStream, rest []model.Delta, msg *model.Message) error {
	if len(rest) == 0 && (msg == nil || msg.Usage.IsZero()) {
		return context.Cause(ctx)
	}
	err := g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		if len(rest) > 0 {
			stream.stage(tx, rest)
			tx.partials = append(tx.partials, PartialWrite{TaskID: g.run.ID(), Data: marshalRaw(rest)})
		}
		if msg != nil {
			if err := tx.countModel(g.conv.rec.ID, p.ref, msg.Usage); err != nil {
				return generationStep{}, err
			}
		}
		return g.run.Next(phaseRequest, g.opened()), nil
	})
	return errors.Join(context.Cause(ctx), err)
}

// failed commits a failed attempt: a repetition that is due later, or the end
// of the run.
func (g *generation) failed(ctx context.Context, p *prepared, stream *answerStream, rest []model.Delta, msg *model.Message, failure *model.Error) error {
	delay, retry := g.retryDelay(failure)
	again := failure.Class == model.ClassThinkingMismatch && !g.state.DropThinking
	return g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		id := g.conv.rec.ID
		if msg != nil {
			if err := tx.countModel(id, p.ref, msg.Usage); err != nil {
				return generationStep{}, err
			}
		}
		if stream.started {
			g.dropPartial(tx)
			if retry || again {
				tx.emit(id, EventMessageVoid, g.messageEvent(func(m *MessageEvent) { m.Reason = string(failure.Class) }))
			}
		}
		if retry || again {
			g.openTurn(tx)
		}
		next := g.opened()
		switch {
		case again:
			next.DropThinking = true
			return g.run.Next(phasePrepare, next), nil
		case retry:
			next.Attempt++
			tx.emit(id, EventAutoRetryStart, RetryEvent{
				ConversationID: id, TaskID: g.run.ID(), SubmissionID: g.sub, Attempt: next.Attempt, MaxAttempts: g.e.opts.Retry.Max,
				DelayMS: delay.Milliseconds(), Class: failure.Class, Message: failure.Message,
			})
			return g.run.Wait(phaseRetry, next, WaitOptions{Deadline: g.e.deadlineIn(delay)}), nil
		}
		return g.endFailed(tx, stream, rest, msg, failure)
	})
}

// endFailed ends the run with an error entry.
func (g *generation) endFailed(tx *Tx, stream *answerStream, rest []model.Delta, msg *model.Message, failure *model.Error) (generationStep, error) {
	id := g.conv.rec.ID
	if g.state.Attempt > 0 {
		tx.emit(id, EventAutoRetryEnd, RetryEvent{
			ConversationID: id, TaskID: g.run.ID(), SubmissionID: g.sub, Attempt: g.state.Attempt, MaxAttempts: g.e.opts.Retry.Max,
			Class: failure.Class, Message: failure.Message,
		})
	}
	entry := model.Message{Role: model.RoleAssistant, Timestamp: tx.at}
	if msg != nil {
		entry = *msg
	} else {
		// What was shown stands, also when the provider does not repeat it.
		shown := rest
		if out := tx.t.convs[id].outputs[g.run.ID()]; out != nil {
			shown = append(slices.Clone(out.deltas), rest...)
		}
		entry.Content = assemble(shown).Content
	}
	if entry.Provider == "" {
		if agent, _, err := g.e.agentOf(tx.ctx, g.t, id); err == nil && agent.Model != nil {
			entry.Provider, entry.Model = agent.Model.Provider, agent.Model.ModelID
		}
	}
	entry.StopReason, entry.ErrorMessage = model.StopError, failure.Error()
	validText(&entry)
	stream.stage(tx, rest)
	eid, err := tx.appendEntry(id, EntrySpec{Kind: KindAssistant, Model: []model.Message{entry}})
	if err != nil {
		return generationStep{}, err
	}
	tx.emit(id, EventMessageEnd, g.messageEvent(func(m *MessageEvent) { m.EntryID, m.StopReason = eid, model.StopError }))
	g.closeTurn(tx)
	g.settleRun(tx, func(s *SubmissionRecord) {
		tx.settleSub(s, SubmissionUnanswered, ReasonModelError, errorDetail(failure))
	})
	return g.run.Fail(failure, map[string]string{"class": string(failure.Class)}), nil
}

// answered commits an answer: the end of the run, or its tool calls.
func (g *generation) answered(ctx context.Context, p *prepared, stream *answerStream, rest []model.Delta, msg *model.Message) error {
	switch msg.StopReason {
	case model.StopEnd, model.StopLength, model.StopToolUse:
	default:
		err := &model.Error{Class: model.ClassProtocol, NoRetry: true, Message: fmt.Sprintf("the provider ended with the unknown stop reason %q", msg.StopReason)}
		return g.failed(ctx, p, stream, rest, msg, err)
	}
	rewritten := g.afterResponse(ctx, p, msg)
	nameCalls(msg, g.run.ID(), g.state.Turn)
	validText(msg)
	calls := msg.ToolCalls()
	if len(calls) > 0 && msg.StopReason == model.StopEnd {
		msg.StopReason = model.StopToolUse
	}
	var more []model.Block
	if len(calls) == 0 {
		more = g.yield(ctx, p, msg)
	}
	return g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		id := g.conv.rec.ID
		if rewritten {
			stream.replace(tx, msg)
		} else {
			stream.stage(tx, rest)
		}
		entry, err := tx.appendEntry(id, EntrySpec{Kind: KindAssistant, Model: []model.Message{*msg}})
		if err != nil {
			return generationStep{}, err
		}
		if err := tx.countModel(id, p.ref, msg.Usage); err != nil {
			return generationStep{}, err
		}
		g.dropPartial(tx)
		tx.emit(id, EventMessageEnd, g.messageEvent(func(m *MessageEvent) { m.EntryID, m.StopReason = entry, msg.StopReason }))
		if g.state.Attempt > 0 {
			tx.emit(id, EventAutoRetryEnd, RetryEvent{
				ConversationID: id, TaskID: g.run.ID(), SubmissionID: g.sub, Attempt: g.state.Attempt, MaxAttempts: g.e.opts.Retry.Max, Success: true,
			})
		}
		next := g.opened()
		next.Turn, next.Attempt, next.Answer, next.Tools = g.state.Turn+1, 0, entry, nil
		if len(calls) > 0 {
			return g.startRound(tx, p, next, msg, calls)
		}
		g.closeTurn(tx)
		next.Open = 0
		if len(more) > 0 {
			_, err := tx.appendEntry(id, EntrySpec{Kind: KindUser, Model: []model.Message{{Role: model.RoleUser, Content: more}}})
			return g.run.Next(phasePrepare, next), err
		}
		return g.done(tx, next, msg.StopReason), nil
	})
}

// afterResponse calls the AfterResponse hooks and reports whether one of them
// changed what was shown of the answer.
func (g *generation) afterResponse(ctx context.Context, p *prepared, msg *model.Message) bool {
	var before model.Message
	called := false
	for _, h := range p.hooks {
		if h.AfterResponse == nil {
			continue
		}
		if !called {
			before, called = msg.Clone(), true
		}
		g.hook("AfterResponse", func() error { return h.AfterResponse(ctx, p.rc, msg) })
	}
	return called && !sameJSON(before.Content, msg.Content)
}

// replace declares what was shown void and shows the message as it is stored.
func (s *answerStream) replace(tx *Tx, msg *model.Message) {
	id := s.g.conv.rec.ID
	if s.started {
		tx.emit(id, EventMessageVoid, s.g.messageEvent(func(m *MessageEvent) { m.Reason = "the answer was changed" }))
	}
	s.g.openTurn(tx)
	tx.emit(id, EventMessageStart, s.g.messageEvent(nil))
	for i := range msg.Content {
		b := &msg.Content[i]
		d := model.Delta{Index: i}
		switch b.Type {
		case model.BlockText:
			d.Kind, d.Text = model.DeltaText, b.Text
		case model.BlockThinking:
			d.Kind, d.Text = model.DeltaThinking, b.Thinking
		case model.BlockToolCall:
			d.Kind, d.Text, d.ToolCallID, d.ToolName = model.DeltaToolCall, string(b.Arguments), b.ID, b.Name
		default:
			continue
		}
		tx.emit(id, EventMessageUpdate, s.g.messageEvent(func(m *MessageEvent) { m.Delta = &d }))
	}
}

// done ends the run with an answer.
func (g *generation) done(tx *Tx, s generationState, stop model.StopReason) generationStep {
	g.settleRun(tx, func(sub *SubmissionRecord) {
		sub.AnswerEntryID, sub.StopReason = s.Answer, stop
		tx.settleSub(sub, SubmissionDone, "", nil)
	})
	return g.run.Complete(generationResult{Answer: s.Answer, Turns: s.Turn})
}

// yield asks the OnYield hooks whether the run goes on with another user
// message; the first that gives one wins.
func (g *generation) yield(ctx context.Context, p *prepared, msg *model.Message) (more []model.Block) {
	for _, h := range p.hooks {
		if h.OnYield == nil {
			continue
		}
		g.hook("OnYield", func() (err error) {
			more, err = h.OnYield(ctx, p.rc, msg)
			if err == nil {
				for i := range more {
					if err = validateBlock(&more[i]); err != nil {
						break
					}
				}
			}
			if err != nil {
				more = nil
			}
			return err
		})
		if len(more) > 0 {
			return more
		}
	}
	return nil
}

// nameCalls gives calls an id where the provider gave none, or one that another
// call of the message has.
func nameCalls(msg *model.Message, run TaskID, turn int) {
	seen := map[string]bool{}
	for i := range msg.Content {
		b := &msg.Content[i]
		if b.Type != model.BlockToolCall {
			continue
		}
		if b.ID == "" || seen[b.ID] {
			b.ID = cmp.Or(b.ID, "call") + fmt.Sprintf("_%d_%d_%d", run, turn, i)
		}
		seen[b.ID] = true
	}
}

// validText replaces what is not UTF-8 in a message that came from outside, so
// that memory and store hold the same.
func validText(m *model.Message) {
	for i := range m.Content {
		b := &m.Content[i]
		for _, s := range []*string{&b.Text, &b.Thinking, &b.Signature, &b.ID, &b.Name, &b.RawArguments, &b.Raw} {
			*s = strings.ToValidUTF8(*s, "\uFFFD")
		}
	}
	m.ErrorMessage = strings.ToValidUTF8(m.ErrorMessage, "\uFFFD")
}

// messageSize is about how much text content holds.
func messageSize(content []model.Block) int {
	n := 0
	for i := range content {
		b := &content[i]
		n += len(b.Text) + len(b.Thinking) + len(b.Data) + len(b.Arguments)
	}
	return n
}
