package faux

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable/model"
)

const (
	charsPerToken = 4
	defaultChunk  = 16
)

var _ model.Provider = (*Provider)(nil)

// Stream answers req as the script says.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, aborted(err)
	}
	step, err := p.take(req)
	if err != nil {
		return nil, err
	}
	a := &answer{p: p, ctx: ctx, req: req, step: step, emit: emit}
	a.msg = &model.Message{Role: model.RoleAssistant, StopReason: model.StopError}
	err = a.run()
	a.setUsage()
	if err != nil {
		me := model.AsError(err)
		a.msg.ErrorMessage = me.Message
		if me.Class == model.ClassAborted {
			a.msg.StopReason = model.StopAborted
		}
		if len(a.msg.Content) == 0 && step.Usage == nil {
			return nil, me
		}
		return &model.Response{Message: a.msg}, me
	}
	return &model.Response{Message: a.msg}, nil
}

func aborted(cause error) *model.Error {
	class := model.ClassAborted
	if errors.Is(cause, context.DeadlineExceeded) {
		class = model.ClassTimeout
	}
	return &model.Error{Class: class, Message: "request cancelled", Err: cause}
}

// answer is one running answer.
type answer struct {
	p    *Provider
	ctx  context.Context
	req  *model.Request
	step Step
	emit func(model.Delta)
	msg  *model.Message // what was sent up to now
	sent bool           // a delta was sent
}

func (a *answer) run() error {
	s := &a.step
	if err := a.sleep(s.DelayMS); err != nil {
		return err
	}
	if err := a.await(s.Wait); err != nil {
		return err
	}
	stop := s.StopReason
	if stop == "" && a.cut() {
		stop = model.StopLength
	}
	if stop == "" {
		stop = model.StopEnd
		if len(s.ToolCalls) > 0 {
			stop = model.StopToolUse
		}
	}
	if err := a.blocks(); err != nil {
		return err
	}
	if err := a.await(s.Hold); err != nil {
		return err
	}
	if e := s.Error; e != nil {
		return &model.Error{
			Class: e.Class, Message: e.Message, NoRetry: e.NoRetry,
			RetryAfter: time.Duration(e.RetryAfterMS) * time.Millisecond,
		}
	}
	a.msg.StopReason = stop
	return nil
}

func (a *answer) blocks() error {
	s := &a.step
	if s.Thinking != "" {
		err := a.block(model.Block{Type: model.BlockThinking}, model.DeltaThinking, s.Thinking)
		if err != nil {
			return err
		}
	}
	if s.Text != "" {
		if err := a.block(model.Block{Type: model.BlockText}, model.DeltaText, s.Text); err != nil {
			return err
		}
	}
	for i := range s.ToolCalls {
		c := &s.ToolCalls[i]
		id := c.ID
		if id == "" {
			id = a.p.callID(a.req)
		}
		b := model.Block{Type: model.BlockToolCall, ID: id, Name: c.Name}
		if err := a.block(b, model.DeltaToolCall, c.text()); err != nil {
			return err
		}
	}
	return nil
}

// cut shortens the answer to the request's limit and reports whether it was
// longer.
func (a *answer) cut() bool {
	left := a.req.MaxOutputTokens * charsPerToken
	if left <= 0 {
		return false
	}
	s := &a.step
	var cut bool
	s.Thinking, left, cut = cutRunes(s.Thinking, left)
	if !cut {
		s.Text, _, cut = cutRunes(s.Text, left)
	} else {
		s.Text = ""
	}
	if cut {
		s.ToolCalls = nil
	}
	return cut
}

// cutRunes returns the first n characters of s and how many of n are left.
func cutRunes(s string, n int) (string, int, bool) {
	if len(s) <= n {
		return s, n - utf8.RuneCountInString(s), false
	}
	for i := range s {
		if n == 0 {
			return s[:i], 0, true
		}
		n--
	}
	return s, n, false
}

// block sends the text of one block in chunks. When it fails, the message
// holds what was sent.
func (a *answer) block(b model.Block, kind model.DeltaKind, text string) error {
	index := len(a.msg.Content)
	size := a.step.ChunkSize
	if size == 0 && a.step.ChunkMS > 0 {
		size = defaultChunk
	}
	var err error
	done := 0
	for first := true; first || done < len(text); first = false {
		if a.sent {
			if err = a.sleep(a.step.ChunkMS); err != nil {
				break
			}
		}
		if cause := context.Cause(a.ctx); cause != nil {
			err = aborted(cause)
			break
		}
		chunk := text[done:]
		if size > 0 {
			chunk, _, _ = cutRunes(chunk, size)
		}
		d := model.Delta{Kind: kind, Index: index, Text: chunk}
		if first && b.Type == model.BlockToolCall {
			d.ToolCallID, d.ToolName = b.ID, b.Name
		}
		a.emit(d)
		a.sent = true
		done += len(chunk)
	}
	if err != nil && done == 0 {
		return err
	}
	switch b.Type {
	case model.BlockText:
		b.Text = text[:done]
	case model.BlockThinking:
		b.Thinking = text[:done]
		if err == nil {
			b.Signature = sign(text)
		}
	case model.BlockToolCall:
		b.SetArguments(text[:done])
	}
	a.msg.Content = append(a.msg.Content, b)
	return err
}

const signaturePrefix = "faux:"

// sign is the proof of a thinking block that [Check] verifies.
func sign(thinking string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(thinking))
	return signaturePrefix + strconv.FormatUint(h.Sum64(), 16)
}

func (a *answer) sleep(ms int64) error {
	if ms <= 0 {
		return nil
	}
	if err := a.p.opts.Sleep(a.ctx, time.Duration(ms)*time.Millisecond); err != nil {
		if cause := context.Cause(a.ctx); cause != nil {
			err = cause
		}
		return aborted(err)
	}
	return nil
}

func (a *answer) await(ch <-chan struct{}) error {
	if ch == nil {
		return nil
	}
	select {
	case <-ch:
		return nil
	case <-a.ctx.Done():
		return aborted(context.Cause(a.ctx))
	}
}

// setUsage gives the message the script's usage, or an estimate when it has
// content.
func (a *answer) setUsage() {
	if a.step.Usage == nil && len(a.msg.Content) == 0 && a.msg.StopReason == model.StopError {
		return
	}
	var u model.Usage
	if a.step.Usage != nil {
		u = *a.step.Usage
		if u.Total != 0 || u.Cost != (model.Cost{}) || u.IsZero() {
			a.msg.Usage = &u
			return
		}
	} else {
		n := 0
		for i := range a.req.Messages {
			n += size(&a.req.Messages[i])
		}
		u.Input = tokens(n)
		u.Output = tokens(size(a.msg))
		for i := range a.msg.Content {
			u.Reasoning += tokens(len(a.msg.Content[i].Thinking))
		}
	}
	u.Price(a.req.Model.Prices)
	a.msg.Usage = &u
}

func tokens(chars int) int64 { return int64((chars + charsPerToken - 1) / charsPerToken) }

// size is the length of what a model would read of m, an image counting as
// 1200 tokens.
func size(m *model.Message) int {
	n := 0
	for i := range m.Content {
		b := &m.Content[i]
		n += len(b.Text) + len(b.Thinking) + len(b.Name) + len(b.Arguments)
		if b.Type == model.BlockImage {
			n += 1200 * charsPerToken
		}
	}
	for i := range m.Sections {
		n += len(m.Sections[i].Text)
	}
	for i := range m.ToolsAdded {
		t := &m.ToolsAdded[i]
		n += len(t.Name) + len(t.Description) + len(t.Parameters)
	}
	return n
}
