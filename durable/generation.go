package durable

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
)

// The generation task makes one run: it asks the model, has the tools called
// that the answer calls, and asks again, until an answer calls none.
//
//	prepare ──► request ──► tools ──► (next turn: request)
//	   ▲           │
//	   └── retry ◄─┘
//
// A request is sent from prepare, retry or tools without a commit of its own
// when there is nothing to store: sending it again after a crash is what would
// happen anyway. The first commit of a running answer moves the task to
// request, where recovery knows that a part of an answer was shown.
const generationKind = "pi.generation"

// The phases of a generation.
const (
	phasePrepare = "prepare"
	phaseRequest = "request"
	phaseRetry   = "retry"
	phaseTools   = "tools"
)

type generationInput struct {
	Submissions  []SubmissionID `json:"submissions"`
	OutputTokens int            `json:"outputTokens,omitempty"`
}

// generationState is the checkpoint: what the next turn must know.
type generationState struct {
	Turn int `json:"turn,omitempty"` // answers so far
	// Attempt counts the failed attempts of the request that is due.
	Attempt int `json:"attempt,omitempty"`
	// DropThinking: the provider rejected a thinking signature.
	DropThinking bool `json:"dropThinking,omitempty"`
	// Answer is the newest assistant entry, Tools are the calls it made.
	Answer EntryID  `json:"answer,omitempty"`
	Tools  []TaskID `json:"tools,omitempty"`
	// Open is the number of the turn whose start was shown and whose end was
	// not, 0 for none.
	Open int `json:"open,omitempty"`
	// Failing is a hash of the last round when all of it failed, Failures how
	// often it came in a row.
	Failing  string `json:"failing,omitempty"`
	Failures int    `json:"failures,omitempty"`
}

type generationResult struct {
	Answer EntryID `json:"answer,omitempty"`
	Turns  int     `json:"turns"`
}

type (
	generationRun  = TaskRun[generationInput, generationState, generationResult]
	generationStep = Step[generationState, generationResult]
)

var (
	generationTask *Task[generationInput, generationState, generationResult]
	toolTask       *Task[toolInput, toolState, toolOutcome]
	builtinTasks   map[string]*taskDef
)

// The declarations refer to code that refers to them.
func init() {
	generationTask = NewTask(TaskSpec[generationInput, generationState, generationResult]{
		Name: generationKind, Start: phasePrepare,
		Phases: map[string]func(context.Context, *generationRun) error{
			phasePrepare: func(ctx context.Context, run *generationRun) error { return newGeneration(run).turn(ctx) },
			phaseRetry:   func(ctx context.Context, run *generationRun) error { return newGeneration(run).turn(ctx) },
			phaseRequest: func(ctx context.Context, run *generationRun) error { return newGeneration(run).recover(ctx) },
			phaseTools:   func(ctx context.Context, run *generationRun) error { return newGeneration(run).afterTools(ctx) },
		},
		Abort: func(ctx context.Context, run *generationRun) error { return newGeneration(run).abort(ctx) },
	})
	toolTask = NewTask(TaskSpec[toolInput, toolState, toolOutcome]{
		Name: toolKind, Start: phaseCall,
		Phases: map[string]func(context.Context, *toolRun) error{
			phaseCall:    func(ctx context.Context, run *toolRun) error { return newToolCall(run).call(ctx) },
			phaseExecute: func(ctx context.Context, run *toolRun) error { return newToolCall(run).recover(ctx) },
		},
		Abort: func(ctx context.Context, run *toolRun) error { return newToolCall(run).abort(ctx) },
	})
	builtinTasks = map[string]*taskDef{generationKind: generationTask.def, toolKind: toolTask.def}
}

// generation is a call of the generation task's code.
type generation struct {
	run   *generationRun
	e     *Engine
	t     *tree
	conv  *Conversation
	state generationState
	sub   SubmissionID // the first input of the run, for events
}

func newGeneration(run *generationRun) *generation {
	g := &generation{run: run, e: run.r.e, t: run.r.t, conv: run.Conversation(), state: run.Checkpoint()}
	if in := run.Input(); len(in.Submissions) > 0 {
		g.sub = in.Submissions[0]
	}
	return g
}

func (g *generation) commit(ctx context.Context, fn func(ctx context.Context, tx *Tx) (generationStep, error)) error {
	return g.run.Commit(ctx, fn)
}

// prepared is a request that is ready to be sent.
type prepared struct {
	provider model.Provider
	ref      model.Ref
	rc       *RequestContext
	hooks    []Hooks
	req      *model.Request
}

// turn prepares a request, sends it and commits what came of it.
func (g *generation) turn(ctx context.Context) error {
	release, ok := g.slot(ctx)
	if !ok {
		return context.Cause(ctx)
	}
	defer release()
	p, err := g.prepare(ctx)
	if err != nil || p == nil {
		return err
	}
	return g.request(ctx, p)
}

// slot waits for a place among the requests under way.
func (g *generation) slot(ctx context.Context) (release func(), ok bool) {
	if g.e.slots == nil {
		return func() {}, true
	}
	select {
	case g.e.slots <- struct{}{}:
		return func() { <-g.e.slots }, true
	case <-ctx.Done():
		return nil, false
	}
}

// prepare resolves the agent, renders the prompt, commits the system entry that
// is due, and makes the request; nil when the run ended without one.
func (g *generation) prepare(ctx context.Context) (*prepared, error) {
	agent, sel, err := g.e.agentOf(ctx, g.t, g.conv.rec.ID)
	if err != nil {
		return nil, err
	}
	provider, info, err := g.e.resolveModel(agent)
	if err != nil {
		return nil, g.endWithout(ctx, ReasonNoModel, err)
	}
	p := &prepared{provider: provider, ref: *agent.Model, hooks: sel.Hooks, rc: g.e.requestContext(g.conv, agent, info, sel.Tools)}

	var shown model.System
	var hasBaseline bool
	err = g.t.withTranscript(ctx, g.conv.rec.ID, func(c *conversation) {
		shown, hasBaseline = c.transcript.System(), c.transcript.HasBaseline()
	})
	if err != nil {
		return nil, err
	}
	want := g.e.render(ctx, p.rc, sel.Sections, shown)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	change := systemChange(shown, hasBaseline, want)
	session, err := readDoc(ctx, g.t, providerDoc, int64(g.conv.rec.ID))
	if err != nil {
		return nil, err
	}
	if change != nil || session.SessionID == "" {
		if session, err = g.commitSystem(ctx, change); err != nil {
			return nil, err
		}
	}
	var messages []model.Message
	err = g.t.withTranscript(ctx, g.conv.rec.ID, func(c *conversation) {
		messages = c.fitter.Fit(c.transcript.Messages(), p.ref, info.Images)
	})
	if err != nil {
		return nil, err
	}
	limit := agent.OutputTokens
	if n := g.run.Input().OutputTokens; n > 0 {
		limit = n
	}
	if info.MaxOutput > 0 {
		limit = min(limit, info.MaxOutput)
	}
	p.req = &model.Request{
		Model: info, Messages: messages,
		ThinkingLevel: info.ClampThinking(agent.ThinkingLevel), MaxOutputTokens: limit,
		SessionID: session.SessionID, DropThinking: g.state.DropThinking,
	}
	for _, h := range p.hooks {
		if h.BeforeRequest == nil {
			continue
		}
		// The hook may change what it is given, and what a failing one changed
		// does not count.
		changed := *p.req
		changed.Messages = cloneMessages(p.req.Messages)
		g.hook("BeforeRequest", func() error {
			err := h.BeforeRequest(ctx, p.rc, &changed)
			if err == nil {
				p.req = &changed
			}
			return err
		})
	}
	return p, nil
}

// commitSystem stores a change of the system prompt, and the conversation's
// session id with its first request.
func (g *generation) commitSystem(ctx context.Context, change *model.Message) (session providerState, err error) {
	err = g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		p, err := providerDoc.Edit(tx, int64(g.conv.rec.ID))
		if err != nil {
			return generationStep{}, err
		}
		if p.SessionID == "" {
			p.SessionID = newSessionID(tx.at)
		}
		session = *p
		if change != nil {
			_, err = tx.appendEntry(g.conv.rec.ID, EntrySpec{Kind: KindSystem, Model: []model.Message{*change}})
		}
		return generationStep{}, err
	})
	return session, err
}

// hook runs one hook; a failing one is reported and skipped (E9.3).
func (g *generation) hook(name string, fn func() error) {
	if err := g.e.protect("hook "+name, fn); err != nil {
		g.e.log.Warn("hook failed", slog.String("hook", name), slog.Int64("conversation", int64(g.conv.rec.ID)), slog.Any("error", err))
	}
}

// settleRun settles the inputs of the run in its last commit.
func (g *generation) settleRun(tx *Tx, settle func(s *SubmissionRecord)) {
	for _, s := range tx.openSubs() {
		if s.Status == SubmissionPlaced && s.TaskID == g.run.ID() {
			settle(tx.editSub(s.ID))
		}
	}
}

// endWithout ends the run without an answer.
func (g *generation) endWithout(ctx context.Context, reason string, cause error) error {
	return g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		g.endTurn(tx)
		g.settleRun(tx, func(s *SubmissionRecord) {
			tx.settleSub(s, SubmissionUnanswered, reason, marshalRaw(map[string]string{"message": cause.Error()}))
		})
		return g.run.Fail(cause, map[string]string{"reason": reason}), nil
	})
}

// retryDelay says how long to wait before a failed request is sent again, ok
// false that it is not.
func (g *generation) retryDelay(failure *model.Error) (d time.Duration, ok bool) {
	p := g.e.opts.Retry
	if !failure.Retryable() || p.Max < 0 || g.state.Attempt >= p.Max || failure.RetryAfter > p.Cap {
		return 0, false
	}
	d = p.Base
	for range g.state.Attempt {
		d = min(d*2, p.Cap)
	}
	return max(min(d, p.Cap), failure.RetryAfter), true
}

// recover turns the part of an answer that a process left when it died into an
// aborted entry, which no request sends, and prepares the request again.
func (g *generation) recover(ctx context.Context) error {
	err := g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		partial := g.partial(tx)
		if partial != nil {
			if _, err := tx.appendEntry(g.conv.rec.ID, EntrySpec{Kind: KindAssistant, Model: []model.Message{*partial}, Data: voidData}); err != nil {
				return generationStep{}, err
			}
		}
		g.dropPartial(tx)
		tx.emit(g.conv.rec.ID, EventMessageVoid, g.messageEvent(func(m *MessageEvent) { m.Reason = "the answer was cut off by a restart" }))
		return g.run.Next(phasePrepare, g.state), nil
	})
	return err
}

// voidData, as the data of a pi.assistant entry, says that the message was cut
// off and does not stand: its run went on with another one.
var voidData = json.RawMessage(`{"void":true}`)

// void reports whether a message of a run does not stand.
func (e *Entry) void() bool {
	var d struct {
		Void bool `json:"void"`
	}
	return e.Kind == KindAssistant && len(e.Data) > 0 && json.Unmarshal(e.Data, &d) == nil && d.Void
}

// partial is what was shown of a running answer, as an aborted message; nil
// when nothing was.
func (g *generation) partial(tx *Tx) *model.Message {
	out := tx.t.convs[g.conv.rec.ID].outputs[g.run.ID()]
	if out == nil || len(out.deltas) == 0 {
		return nil
	}
	m := out.message()
	m.StopReason, m.Timestamp = model.StopAborted, tx.at
	if agent, _, err := g.e.agentOf(tx.ctx, g.t, g.conv.rec.ID); err == nil && agent.Model != nil {
		m.Provider, m.Model = agent.Model.Provider, agent.Model.ModelID
	}
	return m
}

func (g *generation) dropPartial(tx *Tx) {
	if tx.t.convs[g.conv.rec.ID].outputs[g.run.ID()] != nil {
		tx.partials = append(tx.partials, PartialWrite{TaskID: g.run.ID(), Reset: true})
	}
}

// abort ends the run: what was shown of an answer becomes an aborted entry, the
// inputs stay without an answer.
func (g *generation) abort(ctx context.Context) error {
	return g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		if partial := g.partial(tx); partial != nil {
			id, err := tx.appendEntry(g.conv.rec.ID, EntrySpec{Kind: KindAssistant, Model: []model.Message{*partial}})
			if err != nil {
				return generationStep{}, err
			}
			tx.emit(g.conv.rec.ID, EventMessageEnd, g.messageEvent(func(m *MessageEvent) { m.EntryID, m.StopReason = id, model.StopAborted }))
		}
		g.endTurn(tx)
		g.settleRun(tx, func(s *SubmissionRecord) { tx.settleSub(s, SubmissionUnanswered, ReasonAborted, nil) })
		return g.run.Abort(g.run.AbortReason()), nil
	})
}

func (g *generation) messageEvent(set func(*MessageEvent)) MessageEvent {
	ev := MessageEvent{ConversationID: g.conv.rec.ID, TaskID: g.run.ID(), SubmissionID: g.sub}
	if set != nil {
		set(&ev)
	}
	return ev
}

// opened is the state once the turn of the due request was shown to start.
func (g *generation) opened() generationState {
	s := g.state
	s.Open = s.Turn + 1
	return s
}

// openTurn shows that the turn of the due request starts, and before it that
// the last one has ended, when that was not shown yet.
func (g *generation) openTurn(tx *Tx) {
	next := g.state.Turn + 1
	if g.state.Open == next {
		return
	}
	if g.state.Open != 0 {
		tx.emit(g.conv.rec.ID, EventTurnEnd, g.turnEvent(g.state.Open))
	}
	tx.emit(g.conv.rec.ID, EventTurnStart, g.turnEvent(next))
}

// closeTurn shows that the turn has ended, with the answer of this commit.
func (g *generation) closeTurn(tx *Tx) {
	tx.emit(g.conv.rec.ID, EventTurnEnd, g.turnEvent(max(g.state.Open, g.state.Turn+1)))
}

// endTurn shows the end of a turn that an earlier commit left open.
func (g *generation) endTurn(tx *Tx) {
	if g.state.Open != 0 {
		tx.emit(g.conv.rec.ID, EventTurnEnd, g.turnEvent(g.state.Open))
	}
}

// breakOff shows the end of a run that its own code did not end: what was shown
// of an answer is void, the turn is over (E17.2).
func (tx *Tx) breakOff(rec *TaskRecord, o *Outcome) {
	id, sub := rec.ConversationID, firstInput(rec)
	if c := tx.t.convs[id]; c != nil && c.outputs[rec.ID] != nil {
		tx.emit(id, EventMessageVoid, MessageEvent{ConversationID: id, TaskID: rec.ID, SubmissionID: sub, Reason: string(o.Status)})
	}
	var ckpt checkpoint
	var state generationState
	if json.Unmarshal(rec.State.Checkpoint, &ckpt) == nil && json.Unmarshal(ckpt.Data, &state) == nil && state.Open != 0 {
		tx.emit(id, EventTurnEnd, TurnEvent{ConversationID: id, TaskID: rec.ID, SubmissionID: sub, Turn: state.Open})
	}
}

func (g *generation) turnEvent(turn int) TurnEvent {
	return TurnEvent{ConversationID: g.conv.rec.ID, TaskID: g.run.ID(), SubmissionID: g.sub, Turn: turn}
}

// errEnded stands for ends whose words are in the task's detail.
var errEnded = errors.New("run ended without an answer")
