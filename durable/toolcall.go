package durable

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/internal/line"
	"github.com/wp-durable/wp-durable/durable/model"
)

// ToolCall is one call of a tool, as the tool and the hooks see it. Its methods
// may be called from several goroutines until the tool has returned.
type ToolCall struct {
	run   *toolRun
	e     *Engine
	t     *tree
	conv  *Conversation
	tool  *Tool
	state toolState

	mu          sync.Mutex
	out         *env.Output
	bounds      OutputLimit
	printed     bool // out holds output of this process
	stopped     bool
	timer       Timer
	interval    time.Duration
	lastFlush   time.Time
	lost        bool // a commit of output failed: the next one replaces all
	details     json.RawMessage
	diagnostics []Diagnostic

	flushing line.Line // held during a commit of output
}

func newToolCall(run *toolRun) *ToolCall {
	c := &ToolCall{run: run, e: run.r.e, t: run.r.t, conv: run.Conversation(), state: run.Checkpoint()}
	c.interval = c.e.opts.PartialInterval
	return c
}

// ID returns the id the model gave the call; it is unique within a request,
// not in the store: see [ToolCall.TaskID].
func (c *ToolCall) ID() string { return c.run.Input().CallID }

// TaskID returns the task that makes the call, unique in the store and the same
// after a restart.
func (c *ToolCall) TaskID() TaskID { return c.run.ID() }

// Name returns the tool's name.
func (c *ToolCall) Name() string { return c.run.Input().Name }

// Conversation returns the conversation that calls.
func (c *ToolCall) Conversation() *Conversation { return c.conv }

// RawArguments returns the arguments as the model wrote them.
func (c *ToolCall) RawArguments() json.RawMessage {
	return append(json.RawMessage(nil), c.run.Input().Arguments...)
}

// Env returns the conversation's environment, or [ErrNoEnvironment].
func (c *ToolCall) Env(ctx context.Context) (env.Environment, error) {
	return c.e.environment(ctx, c.conv)
}

// Memo stores candidate under a name the first time, and reads what is stored
// into out: see [TaskRun.Memo].
func (c *ToolCall) Memo(ctx context.Context, name string, candidate, out any) error {
	return c.run.Memo(ctx, name, candidate, out)
}

// Commit runs fn in a commit of the call's tree.
func (c *ToolCall) Commit(ctx context.Context, fn func(ctx context.Context, tx *Tx) error) error {
	return c.run.Commit(ctx, func(ctx context.Context, tx *Tx) (toolStep, error) { return toolStep{}, fn(ctx, tx) })
}

// Details sets JSON for user interfaces, which no model sees. A value that
// cannot be encoded is reported and left out.
func (c *ToolCall) Details(v any) {
	raw, err := encode(v)
	if err != nil {
		c.e.log.Warn("tool details", slog.String("tool", c.Name()), slog.Any("error", err))
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.details = raw
}

// Diagnostic adds a remark to the result, for the model and for people.
func (c *ToolCall) Diagnostic(s Severity, code, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diagnostics = append(c.diagnostics, Diagnostic{s, code, text})
}

func (c *ToolCall) takeDiagnostics() []Diagnostic {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.diagnostics
	c.diagnostics = nil
	return d
}

func (c *ToolCall) hookFailed(name string, err error) {
	c.e.log.Warn("hook failed", slog.String("hook", name), slog.Int64("task", int64(c.run.ID())), slog.Any("error", err))
}

// Output adds running output: shown and stored while the tool runs, bounded by
// [ToolSpec].Output, cleaned of what is not text. It is committed at intervals
// and never blocks on that.
func (c *ToolCall) Output(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	_, _ = c.output().Write(p) // never fails
	c.arm()
}

// Receive is the [env.ExecRequest].Output function of the call: what an
// environment reports goes to the running output, with what it skipped.
func (c *ToolCall) Receive(stream env.Stream, text string, skippedBytes, skippedLines int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return
	}
	c.output().Receive(stream, text, skippedBytes, skippedLines)
	c.arm()
}

// OutputWindow returns how much of the end of the output can still matter, for
// [env.ExecRequest].Window (E10.7).
func (c *ToolCall) OutputWindow() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output().Window()
}

// OutputText returns the running output that is kept.
func (c *ToolCall) OutputText() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.printed {
		return ""
	}
	return c.out.String()
}

// OutputCounts returns how much was printed and how much of it is left out.
func (c *ToolCall) OutputCounts() env.OutputCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.output().Counts()
}

// limit sets the bounds before the first output.
func (c *ToolCall) limit(o OutputLimit) { c.bounds = o }

func (c *ToolCall) output() *env.Output {
	if c.out == nil {
		c.out = env.NewOutput(&env.OutputOptions{MaxBytes: c.bounds.Bytes, MaxLines: c.bounds.Lines, KeepHead: c.bounds.KeepHead})
	}
	c.printed = true
	return c.out
}

// arm starts the timer of the next commit of output. The caller holds mu.
func (c *ToolCall) arm() {
	if c.timer != nil {
		return
	}
	wait := partialGrace
	if !c.lastFlush.IsZero() {
		wait = max(wait, c.interval-c.e.clock.Now().Sub(c.lastFlush))
	}
	c.timer = c.e.clock.AfterFunc(wait, c.flush)
}

// flush commits the output that came since the last commit. A slow store makes
// the next interval longer.
func (c *ToolCall) flush() {
	if !c.e.begin() {
		return
	}
	defer c.e.wg.Done()
	_ = c.flushing.Lock(context.Background())
	defer c.flushing.Unlock()
	c.mu.Lock()
	c.timer = nil
	if c.stopped {
		c.mu.Unlock()
		return
	}
	began := c.e.clock.Now()
	c.lastFlush = began
	delta, reset := c.take()
	c.mu.Unlock()
	if delta == "" && !reset {
		return
	}
	err := c.commitOutput(c.e.ctx, delta, reset)
	if err != nil {
		c.e.log.Debug("commit of running output", slog.Int64("task", int64(c.run.ID())), slog.Any("error", err))
	}
	c.mu.Lock()
	c.lost = err != nil
	c.interval = max(c.e.opts.PartialInterval, 4*c.e.clock.Now().Sub(began))
	c.mu.Unlock()
}

// take returns what is to be committed next. The caller holds mu.
func (c *ToolCall) take() (delta string, reset bool) {
	delta, reset = c.out.TakeDelta()
	if c.lost {
		return c.out.String(), true
	}
	return delta, reset
}

// flushLast commits what is left of the output when the tool was cut off.
func (c *ToolCall) flushLast(ctx context.Context) error {
	c.stopOutput()
	c.mu.Lock()
	if !c.printed {
		c.mu.Unlock()
		return nil
	}
	delta, reset := c.take()
	c.mu.Unlock()
	if delta == "" && !reset {
		return nil
	}
	return c.commitOutput(ctx, delta, reset)
}

// stopOutput ends the running output and waits for a commit of it under way.
func (c *ToolCall) stopOutput() {
	c.mu.Lock()
	c.stopped = true
	if c.timer != nil {
		c.timer.Stop()
	}
	c.mu.Unlock()
	_ = c.flushing.Lock(context.Background())
	defer c.flushing.Unlock()
}

func (c *ToolCall) commitOutput(ctx context.Context, delta string, reset bool) error {
	return c.Commit(ctx, func(_ context.Context, tx *Tx) error {
		tx.partials = append(tx.partials, PartialWrite{TaskID: c.run.ID(), Reset: reset, Data: []byte(delta)})
		tx.emit(c.conv.rec.ID, EventToolUpdate, c.event(func(ev *ToolEvent) { ev.Delta, ev.Reset = delta, reset }))
		return nil
	})
}

// dropOutput forgets the stored output of an earlier attempt.
func (c *ToolCall) dropOutput(ctx context.Context) error {
	if c.stored() == "" {
		return nil
	}
	return c.commitOutput(ctx, "", true)
}

// stored returns the output that is committed.
func (c *ToolCall) stored() string {
	c.t.mu.RLock()
	defer c.t.mu.RUnlock()
	conv := c.t.convs[c.conv.rec.ID]
	if conv == nil || conv.outputs[c.run.ID()] == nil {
		return ""
	}
	return conv.outputs[c.run.ID()].text()
}

// kept returns the committed output within the tool's bounds: what is stored
// may hold several windows.
func (c *ToolCall) kept() string {
	out := env.NewOutput(&env.OutputOptions{MaxBytes: c.bounds.Bytes, MaxLines: c.bounds.Lines, KeepHead: c.bounds.KeepHead})
	_, _ = out.Write([]byte(c.stored())) // never fails
	return out.String()
}

func textContent(s string) []model.Block {
	if s == "" {
		return nil
	}
	return []model.Block{model.Text(s)}
}

// checkedContent keeps the text and the images that models take; an image they
// would refuse for ever becomes a note.
func checkedContent(content []model.Block) []model.Block {
	out := make([]model.Block, 0, len(content)+1)
	for _, b := range content {
		switch b.Type {
		case model.BlockText:
			out = append(out, b)
		case model.BlockImage:
			if err := model.CheckImage(b.MimeType, b.Data); err != nil {
				b = model.Text(fmt.Sprintf("[image left out: %v]", err))
			}
			out = append(out, b)
		default:
			out = append(out, model.Text(fmt.Sprintf("[content of type %q left out]", b.Type)))
		}
	}
	return out
}

// harnessText is how the model sees diagnostics (E10.4).
func harnessText(ds []Diagnostic) string {
	var b strings.Builder
	b.WriteString("<harness>\n")
	for _, d := range ds {
		fmt.Fprintf(&b, "[%s] %s\n", d.Severity, strings.ReplaceAll(d.Message, "\n", " "))
	}
	b.WriteString("</harness>")
	return b.String()
}

func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
