package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
)

// The tool task makes one tool call (E10.2). Its call phase resolves the tool,
// checks the arguments, asks the hooks, commits the intent with the final
// arguments and the replay policy, runs the tool and commits the result. Its
// execute phase is what recovery finds when a process died in between.
const toolKind = "pi.tool"

// The phases of a tool call.
const (
	phaseCall    = "call"
	phaseExecute = "execute"
)

type toolInput struct {
	Entry      EntryID         `json:"entry"` // the answer that calls
	CallID     string          `json:"callId"`
	Name       string          `json:"name"`
	Arguments  json.RawMessage `json:"arguments"`        // as the model wrote them
	Broken     bool            `json:"broken,omitempty"` // not a JSON object
	Cut        bool            `json:"cut,omitempty"`    // by the output limit
	Submission SubmissionID    `json:"submission,omitempty"`
}

// toolState is the intent: what runs, once it is committed.
type toolState struct {
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Replay    Replay          `json:"replay,omitempty"`
	Started   time.Time       `json:"started,omitzero"`
}

// toolOutcome is what the generation needs to know of a call.
type toolOutcome struct {
	Entry     EntryID `json:"entry,omitempty"`
	IsError   bool    `json:"isError,omitempty"`
	Terminate bool    `json:"terminate,omitempty"`
	Handoff   string  `json:"handoff,omitempty"`
	// Digest tells failing calls apart: name, arguments and what was said.
	Digest string `json:"digest,omitempty"`
}

type (
	toolRun  = TaskRun[toolInput, toolState, toolOutcome]
	toolStep = Step[toolState, toolOutcome]
)

// interruptedText stands before the output of a call that was cut off.
const interruptedText = "The call was interrupted before it finished. It may have had effects."

// call makes the call from its beginning.
func (c *ToolCall) call(ctx context.Context) error {
	in := c.run.Input()
	switch {
	case in.Cut:
		return c.refuse(ctx, CodeInvalidArguments, "The call was cut off by the output limit and did not run. Make it again, shorter or in parts.")
	case in.Broken:
		return c.refuse(ctx, CodeInvalidArguments, "The arguments were not a valid JSON object and the call did not run.")
	}
	hooks, err := c.resolve(ctx)
	if err != nil {
		return err
	}
	if c.tool == nil {
		return c.refuse(ctx, CodeToolUnavailable, fmt.Sprintf("Tool %s is not available", in.Name))
	}
	args := in.Arguments
	if prepare := c.tool.spec.Prepare; prepare != nil {
		err := c.e.protect("prepare of tool "+in.Name, func() error { args = prepare(args); return nil })
		if err != nil {
			return c.refuse(ctx, CodeToolError, err.Error())
		}
	}
	if err := c.tool.validate(args); err != nil {
		return c.refuse(ctx, CodeInvalidArguments, "Invalid arguments: "+err.Error())
	}
	args, blocked := c.beforeTool(ctx, hooks, args)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if blocked != "" {
		return c.refuse(ctx, CodeBlocked, blocked)
	}
	if err := c.tool.validate(args); err != nil {
		return c.refuse(ctx, CodeInvalidArguments, "Invalid arguments after a hook changed them: "+err.Error())
	}
	c.state = toolState{Arguments: args, Replay: c.tool.spec.Replay, Started: stamp(c.e.clock.Now())}
	err = c.run.Commit(ctx, func(_ context.Context, tx *Tx) (toolStep, error) {
		tx.emit(c.conv.rec.ID, EventToolStart, c.event(func(ev *ToolEvent) { ev.Arguments = args }))
		return c.run.Next(phaseExecute, c.state), nil
	})
	if err != nil {
		return err
	}
	return c.execute(ctx, hooks)
}

// recover goes on after a process died during the call: it runs the call again
// when both the stored and the current declaration say that this does no harm,
// else it ends it as interrupted with the output that is stored (E10.2).
func (c *ToolCall) recover(ctx context.Context) error {
	hooks, err := c.resolve(ctx)
	if err != nil {
		return err
	}
	if c.tool == nil || c.state.Replay != ReplaySafe || c.tool.spec.Replay != ReplaySafe {
		c.Diagnostic(SeverityError, CodeInterrupted, interruptedText)
		return c.finish(ctx, ToolResult{Content: textContent(c.kept()), IsError: true})
	}
	if err := c.dropOutput(ctx); err != nil {
		return err
	}
	return c.execute(ctx, hooks)
}

// resolve finds the tool in what the conversation's agent offers now and what
// the request offered.
func (c *ToolCall) resolve(ctx context.Context) ([]Hooks, error) {
	_, sel, err := c.e.agentOf(ctx, c.t, c.conv.rec.ID)
	if err != nil {
		return nil, err
	}
	name := c.run.Input().Name
	offered := false
	err = c.t.withTranscript(ctx, c.conv.rec.ID, func(conv *conversation) {
		for _, t := range conv.transcript.System().Tools {
			offered = offered || t.Name == name
		}
	})
	if err != nil {
		return nil, err
	}
	if offered {
		c.tool = sel.Tool(name)
	}
	if c.tool != nil {
		c.limit(c.tool.spec.Output)
	}
	return sel.Hooks, nil
}

// beforeTool chains the BeforeTool hooks; blocked says why the call must not
// run, empty when it may.
func (c *ToolCall) beforeTool(ctx context.Context, hooks []Hooks, args json.RawMessage) (_ json.RawMessage, blocked string) {
	for _, h := range hooks {
		if h.BeforeTool == nil {
			continue
		}
		var d ToolDecision
		err := c.e.protect("hook BeforeTool", func() (err error) {
			d, err = h.BeforeTool(ctx, c, args)
			return err
		})
		switch {
		case err != nil:
			return args, err.Error()
		case d.Block != "":
			return args, d.Block
		case d.Arguments != nil:
			args = d.Arguments
		}
	}
	return args, ""
}

// execute runs the tool and commits its result.
func (c *ToolCall) execute(ctx context.Context, hooks []Hooks) error {
	var res ToolResult
	err := c.e.protect("tool "+c.Name(), func() (err error) {
		res, err = c.tool.run(ctx, c, c.state.Arguments)
		return err
	})
	if err != nil {
		c.Diagnostic(SeverityError, CodeToolError, err.Error())
		res = ToolResult{Content: textContent(c.OutputText()), IsError: true}
	}
	if ctx.Err() != nil && (err != nil || res.IsError) {
		// Cut off, by an abort or by the engine's end: what it printed is kept
		// for the abort handler or for recovery.
		return errors.Join(context.Cause(ctx), c.flushLast(ctx))
	}
	for _, h := range hooks {
		if h.AfterTool == nil {
			continue
		}
		err := c.e.protect("hook AfterTool", func() error {
			r, err := h.AfterTool(ctx, c, res)
			if err == nil {
				res = r
			}
			return err
		})
		if err != nil {
			c.hookFailed("AfterTool", err)
		}
	}
	return c.finish(ctx, res)
}

// abort ends a call that was asked to end, with its output so far.
func (c *ToolCall) abort(ctx context.Context) error {
	hooks, err := c.resolve(ctx)
	if err != nil {
		return err
	}
	if c.run.Phase() == phaseExecute {
		for _, h := range hooks {
			if h.OnToolAbort == nil {
				continue
			}
			if err := c.e.protect("hook OnToolAbort", func() error { return h.OnToolAbort(ctx, c) }); err != nil {
				c.hookFailed("OnToolAbort", err)
			}
		}
	}
	c.Diagnostic(SeverityError, CodeAborted, "The call was aborted.")
	return c.commitResult(ctx, ToolResult{Content: textContent(c.kept()), IsError: true}, func(toolOutcome) toolStep {
		return c.run.Abort(c.run.AbortReason())
	})
}

// refuse ends a call that did not run.
func (c *ToolCall) refuse(ctx context.Context, code, text string) error {
	c.Diagnostic(SeverityError, code, text)
	return c.finish(ctx, ToolResult{IsError: true})
}

func (c *ToolCall) finish(ctx context.Context, res ToolResult) error {
	return c.commitResult(ctx, res, func(o toolOutcome) toolStep { return c.run.Complete(o) })
}

// commitResult stores the result as an entry and ends the task.
func (c *ToolCall) commitResult(ctx context.Context, res ToolResult, end func(toolOutcome) toolStep) error {
	in := c.run.Input()
	c.stopOutput()
	c.mu.Lock()
	details := res.Details
	if details == nil {
		details = c.details
	}
	c.mu.Unlock()
	if len(details) > 0 && !json.Valid(details) {
		c.e.log.Warn("tool details are not JSON", slog.String("tool", in.Name))
		details = nil
	}
	msg := model.Message{
		Role: model.RoleToolResult, ToolCallID: in.CallID, ToolName: in.Name, IsError: res.IsError, Details: details,
		Content: checkedContent(res.Content), Usage: res.Usage,
	}
	diagnostics := c.takeDiagnostics()
	if len(diagnostics) > 0 {
		msg.Content = append(msg.Content, model.Text(harnessText(diagnostics)))
	}
	if !c.state.Started.IsZero() {
		msg.DurationMS = c.e.clock.Now().Sub(c.state.Started).Milliseconds()
	}
	validText(&msg)
	return c.run.Commit(ctx, func(_ context.Context, tx *Tx) (toolStep, error) {
		id := c.conv.rec.ID
		spec := EntrySpec{Kind: KindToolResult, Model: []model.Message{msg}}
		if len(diagnostics) > 0 {
			spec.Data = marshalRaw(map[string][]Diagnostic{"diagnostics": diagnostics})
		}
		entry, err := tx.appendEntry(id, spec)
		if err != nil {
			return toolStep{}, err
		}
		if err := tx.countTool(id, in.Name, res.Usage); err != nil {
			return toolStep{}, err
		}
		if err := tx.addTools(id, res.AddTools); err != nil {
			return toolStep{}, err
		}
		if tx.t.convs[id].outputs[c.run.ID()] != nil {
			tx.partials = append(tx.partials, PartialWrite{TaskID: c.run.ID(), Reset: true})
		}
		stored := &tx.entries[len(tx.entries)-1].Model[0]
		tx.emit(id, EventToolEnd, c.event(func(ev *ToolEvent) { ev.EntryID, ev.Result = entry, stored }))
		o := toolOutcome{Entry: entry, IsError: res.IsError, Terminate: res.Terminate, Handoff: res.Handoff}
		if res.IsError {
			o.Digest = digest(in.Name, string(in.Arguments), msg.Text())
		}
		return end(o), nil
	})
}

// addTools takes tools back that the conversation's agent left out.
func (tx *Tx) addTools(id ConversationID, names []string) error {
	if len(names) == 0 {
		return nil
	}
	a, err := agentDoc.Edit(tx, int64(id))
	if err != nil {
		return err
	}
	filter := a.Tools
	if filter == nil {
		filter = tx.e.opts.Agent.Tools
	}
	if filter == nil {
		return nil
	}
	c := *filter
	for _, n := range names {
		c.Remove = without(c.Remove, n)
		if !c.Changes {
			c.List = append(without(c.List, n), n)
		}
	}
	a.Tools = &c
	return nil
}

func without(names []string, name string) []string {
	var out []string
	for _, n := range names {
		if n != name {
			out = append(out, n)
		}
	}
	return out
}

func (c *ToolCall) event(set func(*ToolEvent)) ToolEvent {
	in := c.run.Input()
	ev := ToolEvent{ConversationID: c.conv.rec.ID, TaskID: c.run.ID(), SubmissionID: in.Submission, ToolCallID: in.CallID, ToolName: in.Name}
	set(&ev)
	return ev
}
