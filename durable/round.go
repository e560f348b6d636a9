package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/wp-durable/wp-durable/durable/model"
)

// stuckAfter is how many identical failing rounds in a row end a run (E13).
const stuckAfter = 3

// startRound creates the tool tasks of an answer and waits for them. They run
// side by side, or each after the one before it when a tool or the host says
// so (E10.5).
func (g *generation) startRound(tx *Tx, p *prepared, next generationState, msg *model.Message, calls []model.Block) (generationStep, error) {
	sequential := g.e.opts.ToolMode == ToolSequential
	for _, c := range calls {
		for _, t := range p.rc.Tools {
			sequential = sequential || t.Name() == c.Name && t.spec.Mode == ToolSequential
		}
	}
	last := len(msg.Content) - 1
	for _, c := range calls {
		in := toolInput{
			Entry: next.Answer, CallID: c.ID, Name: c.Name, Arguments: c.Arguments, Submission: g.sub,
		}
		if c.ArgumentsBroken() {
			in.Broken = true
		}
		if msg.StopReason == model.StopLength && (c.ArgumentsBroken() || msg.Content[last].ID == c.ID) {
			in.Cut = true
		}
		id, err := StartTask(tx, toolTask, in, TaskOptions{Conversation: g.conv.rec.ID, Owner: g.run.ID()})
		if err != nil {
			return generationStep{}, err
		}
		if n := len(next.Tools); sequential && n > 0 {
			rec := tx.editTask(id)
			rec.State.Status = TaskWaiting
			rec.State.Wait = &Wait{On: []TaskID{next.Tools[n-1]}, Policy: AllSettled, Since: tx.at}
		}
		next.Tools = append(next.Tools, id)
	}
	return g.run.Wait(phaseTools, next, WaitOptions{On: next.Tools}), nil
}

// afterTools goes on when every call of a round has its result: it ends the
// run where the results say so, places what waits in the inbox, and asks the
// model again.
func (g *generation) afterTools(ctx context.Context) error {
	outcomes, err := g.outcomes(ctx)
	if err != nil {
		return err
	}
	if err := g.afterToolsHooks(ctx, outcomes); err != nil {
		return err
	}
	g.countFailures(outcomes)
	handoff, terminate := "", len(outcomes) > 0
	for _, o := range outcomes {
		terminate = terminate && o.Terminate
		if o.Handoff != "" {
			handoff = o.Handoff
		}
	}
	inboxEmpty := g.inboxEmpty()
	if handoff == "" && !terminate && g.state.Failures < stuckAfter && inboxEmpty {
		return g.turn(ctx)
	}
	goOn := false
	err = g.commit(ctx, func(_ context.Context, tx *Tx) (generationStep, error) {
		goOn = false
		id := g.conv.rec.ID
		g.endTurn(tx)
		switch {
		case handoff != "":
			step := g.done(tx, g.state, model.StopToolUse)
			_, err := tx.appendEntry(id, resetEntry(handoff))
			return step, err
		case terminate:
			return g.done(tx, g.state, model.StopToolUse), nil
		case g.state.Failures >= stuckAfter:
			g.settleRun(tx, func(s *SubmissionRecord) {
				tx.settleSub(s, SubmissionUnanswered, ReasonStuck, marshalRaw(map[string]string{
					"message": fmt.Sprintf("the same tool calls failed in the same way %d times in a row", g.state.Failures),
				}))
			})
			return g.run.Fail(errEnded, map[string]string{"reason": ReasonStuck}), nil
		}
		_, reset, err := tx.placeAfterTools(id, g.run.ID())
		if err != nil {
			return generationStep{}, err
		}
		if reset {
			g.settleRun(tx, func(s *SubmissionRecord) { tx.settleSub(s, SubmissionUnanswered, ReasonReset, nil) })
			return g.run.Fail(errEnded, map[string]string{"reason": ReasonReset}), nil
		}
		goOn = true
		next := g.state
		next.Tools, next.Open = nil, 0
		return g.run.Next(phasePrepare, next), nil
	})
	if err != nil || !goOn {
		return err
	}
	return nil // the scheduler goes on with prepare
}

// inboxEmpty reports whether nothing waits to be placed after a tool round.
func (g *generation) inboxEmpty() bool {
	g.t.mu.RLock()
	defer g.t.mu.RUnlock()
	for _, s := range g.t.subs {
		if s.ConversationID == g.conv.rec.ID && s.Status == SubmissionQueued && (s.Type == SubmissionWrite || s.Queued.WhenBusy == Steer) {
			return false
		}
	}
	return true
}

// outcomes reads how the calls of the round ended; a call whose task failed or
// was aborted has no outcome of its own.
func (g *generation) outcomes(ctx context.Context) ([]toolOutcome, error) {
	out := make([]toolOutcome, len(g.state.Tools))
	for i, id := range g.state.Tools {
		o, err := g.run.Outcome(ctx, id)
		if err != nil {
			return nil, err
		}
		if o == nil || o.Status != OutcomeCompleted {
			out[i] = toolOutcome{IsError: true}
			continue
		}
		if err := json.Unmarshal(o.Result, &out[i]); err != nil {
			return nil, fmt.Errorf("result of task %d: %w", id, err)
		}
	}
	return out, nil
}

// countFailures compares a round that failed whole with the one before it.
func (g *generation) countFailures(outcomes []toolOutcome) {
	h := sha256.New()
	for _, o := range outcomes {
		if !o.IsError {
			g.state.Failing, g.state.Failures = "", 0
			return
		}
		_, _ = fmt.Fprintf(h, "%d:%s", len(o.Digest), o.Digest)
	}
	sum := hex.EncodeToString(h.Sum(nil)[:8])
	if sum == g.state.Failing {
		g.state.Failures++
	} else {
		g.state.Failing, g.state.Failures = sum, 1
	}
}

func (g *generation) afterToolsHooks(ctx context.Context, outcomes []toolOutcome) error {
	agent, sel, err := g.e.agentOf(ctx, g.t, g.conv.rec.ID)
	if err != nil {
		return err
	}
	var results []model.Message
	for _, h := range sel.Hooks {
		if h.AfterTools == nil {
			continue
		}
		if results == nil {
			if results, err = g.results(ctx, outcomes); err != nil {
				return err
			}
		}
		_, info, _ := g.e.resolveModel(agent)
		rc := g.e.requestContext(g.conv, agent, info, sel.Tools)
		g.hook("AfterTools", func() error { return h.AfterTools(ctx, rc, results) })
	}
	return nil
}

func (g *generation) results(ctx context.Context, outcomes []toolOutcome) ([]model.Message, error) {
	out := []model.Message{}
	for _, o := range outcomes {
		if o.Entry == 0 {
			continue
		}
		e, err := g.e.store.Entry(ctx, o.Entry)
		if err != nil {
			return nil, fmt.Errorf("tool result entry %d: %w", o.Entry, err)
		}
		out = append(out, e.Model...)
	}
	return out, nil
}
