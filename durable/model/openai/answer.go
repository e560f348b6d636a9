package openai

import (
	"bytes"
	"crypto/rand"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// answer collects a running answer and emits its deltas. A block is opened
// with its first content and never removed, so its position is that of the
// finished message. The one exception is reasoning that was announced before
// a block of later content: it keeps its place even if nothing comes.
type answer struct {
	emit   func(model.Delta)
	blocks []*block
	ids    map[string]bool // tool call ids of the request and this answer
	usage  *model.Usage
}

type block struct {
	model.Block
	index int
	text  strings.Builder
	a     *answer
}

func newAnswer(req *model.Request, emit func(model.Delta)) *answer {
	a := &answer{emit: emit, ids: map[string]bool{}}
	for i := range req.Messages {
		m := &req.Messages[i]
		if m.Role != model.RoleAssistant {
			continue
		}
		for j := range m.Content {
			if m.Content[j].Type == model.BlockToolCall {
				a.ids[m.Content[j].ID] = true
			}
		}
	}
	return a
}

// open appends an empty block.
func (a *answer) open(t model.BlockType) *block {
	b := &block{Block: model.Block{Type: t}, index: len(a.blocks), a: a}
	a.blocks = append(a.blocks, b)
	return b
}

// openCall appends a tool call. A provider's id that is missing or was used
// before is replaced.
func (a *answer) openCall(id, name string) *block {
	switch {
	case id == "":
		id = "call_" + rand.Text()
	case a.ids[id] && len(id) <= maxChatID-9:
		id += "_" + rand.Text()[:8]
	case a.ids[id]:
		id = "call_" + rand.Text()
	}
	a.ids[id] = true
	b := a.open(model.BlockToolCall)
	b.ID, b.Name = id, name
	a.emit(model.Delta{Kind: model.DeltaToolCall, Index: b.index, ToolCallID: id, ToolName: name})
	return b
}

var deltaKinds = map[model.BlockType]model.DeltaKind{
	model.BlockText:     model.DeltaText,
	model.BlockThinking: model.DeltaThinking,
	model.BlockToolCall: model.DeltaToolCall,
}

// add appends text to the block's text, thinking or argument text.
func (b *block) add(text string) {
	if text == "" {
		return
	}
	b.text.WriteString(text)
	b.a.emit(model.Delta{Kind: deltaKinds[b.Type], Index: b.index, Text: text})
}

// complete appends what whole has beyond what was added. It reports whether
// the block's text now equals whole.
func (b *block) complete(whole string) bool {
	rest, ok := strings.CutPrefix(whole, b.text.String())
	if ok {
		b.add(rest)
	}
	return ok
}

// message returns the blocks as a message, its stop reason still open.
func (a *answer) message() *model.Message {
	m := &model.Message{Role: model.RoleAssistant, Usage: a.usage, StopReason: model.StopError}
	for _, b := range a.blocks {
		switch text := b.text.String(); b.Type {
		case model.BlockText:
			b.Text = text
		case model.BlockThinking:
			b.Thinking = text
		case model.BlockToolCall:
			setArguments(&b.Block, text)
		}
		m.Content = append(m.Content, b.Block)
	}
	return m
}

// setArguments takes the argument text of a call. Where it holds lone
// surrogates, which no provider takes back, the arguments hold U+FFFD.
func setArguments(b *model.Block, text string) {
	b.SetArguments(text)
	if valid := wire.ValidText(b.Arguments); !bytes.Equal(valid, b.Arguments) {
		b.Arguments, b.RawArguments = valid, text
	}
}

// callCount returns how many tool calls there are.
func (a *answer) callCount() int {
	n := 0
	for _, b := range a.blocks {
		if b.Type == model.BlockToolCall {
			n++
		}
	}
	return n
}

// failed returns what was received up to an error, beside it.
func (a *answer) failed(err error) (*model.Response, error) {
	me := model.AsError(err)
	if len(a.blocks) == 0 && a.usage == nil {
		return nil, me
	}
	m := a.message()
	m.ErrorMessage = me.Message
	if me.Class == model.ClassAborted {
		m.StopReason = model.StopAborted
	}
	return &model.Response{Message: m}, me
}

// done returns the finished answer.
func (a *answer) done(stop model.StopReason) (*model.Response, error) {
	m := a.message()
	m.StopReason = stop
	return &model.Response{Message: m}, nil
}
