package providers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

// masked is a provider whose answers hold no secret (S1.3): neither the pieces
// that are shown as they come nor the message that is stored, which the pieces
// add up to (E17.5). A piece, or the end of one, that may be the beginning of a
// secret is held back until it is known, at the latest until the next block
// begins.
type masked struct {
	model.Provider
	r *secrets.Redactor
}

// Available asks the provider.
func (p *masked) Available() error {
	if a, ok := p.Provider.(model.Availability); ok {
		return a.Available()
	}
	return nil
}

// Stream sends the request.
func (p *masked) Stream(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	m := pieces{r: p.r, emit: emit, blocks: map[int]*blockPieces{}}
	resp, err := p.Provider.Stream(ctx, req, m.next)
	m.end()
	if resp != nil && resp.Message != nil {
		masked := *resp
		masked.Message = maskMessage(resp.Message, p.r)
		resp = &masked
	}
	return resp, maskError(err, p.r)
}

// pieces masks the pieces of one answer.
type pieces struct {
	r      *secrets.Redactor
	emit   func(model.Delta)
	blocks map[int]*blockPieces
	last   *blockPieces
}

// blockPieces are those of one block.
type blockPieces struct {
	kind   model.DeltaKind
	index  int
	stream *secrets.Stream
}

func (m *pieces) next(d model.Delta) {
	b := m.blocks[d.Index]
	if b == nil {
		b = &blockPieces{kind: d.Kind, index: d.Index, stream: m.r.Stream()}
		if d.Kind == model.DeltaToolCall {
			b.stream = m.r.JSONStream()
		}
		m.blocks[d.Index] = b
	}
	// Texts are shown one after the other, so one is over when another block
	// begins. Tool calls may come side by side.
	if m.last != nil && m.last != b && m.last.kind != model.DeltaToolCall {
		m.flush(m.last)
	}
	m.last = b
	whole := d.Text
	if d.Text = b.stream.Next(whole); d.Text != "" || whole == "" || d.ToolCallID != "" {
		m.emit(d)
	}
}

func (m *pieces) flush(b *blockPieces) {
	if rest := b.stream.End(); rest != "" {
		m.emit(model.Delta{Kind: b.kind, Index: b.index, Text: rest})
	}
}

func (m *pieces) end() {
	for _, index := range slices.Sorted(maps.Keys(m.blocks)) {
		m.flush(m.blocks[index])
	}
}

// maskMessage returns a message without secrets: msg itself when there are
// none.
func maskMessage(msg *model.Message, r *secrets.Redactor) *model.Message {
	out := *msg
	out.ErrorMessage = r.String(msg.ErrorMessage)
	changed := out.ErrorMessage != msg.ErrorMessage
	for i := range msg.Content {
		b, found := maskBlock(msg.Content[i], r)
		if !found {
			continue
		}
		if &out.Content[0] == &msg.Content[0] {
			out.Content = slices.Clone(msg.Content)
		}
		out.Content[i], changed = b, true
	}
	if !changed {
		return msg
	}
	return &out
}

// maskBlock returns a block without secrets and whether it held any. What only
// fits the block as the provider sent it is gone then.
func maskBlock(b model.Block, r *secrets.Redactor) (model.Block, bool) {
	out := b
	out.Text, out.Thinking = r.String(b.Text), r.String(b.Thinking)
	raw := r.String(string(r.JSON([]byte(b.Raw))))
	out.Arguments, out.RawArguments = maskArguments(b.Arguments, b.RawArguments, r)
	if out.Text == b.Text && out.Thinking == b.Thinking && raw == b.Raw &&
		bytes.Equal(out.Arguments, b.Arguments) && out.RawArguments == b.RawArguments {
		return b, false
	}
	out.Raw, out.Signature = "", ""
	return out, true
}

// maskArguments masks the arguments of a tool call, as JSON and as the model
// wrote them. Should they be no JSON object afterwards, the call is one that
// never runs.
func maskArguments(args json.RawMessage, raw string, r *secrets.Redactor) (json.RawMessage, string) {
	s := r.JSONStream()
	if masked := s.Next(string(args)) + s.End(); masked != string(args) {
		if !json.Valid([]byte(masked)) {
			if raw == "" {
				raw = masked
			}
			masked = "{}"
		}
		args = json.RawMessage(masked)
	}
	return args, s.Next(raw) + s.End()
}

// maskError keeps what kind of error it is.
func maskError(err error, r *secrets.Redactor) error {
	if err == nil || r.String(err.Error()) == err.Error() {
		return err
	}
	failure := *model.AsError(err)
	failure.Message = r.String(failure.Message)
	if failure.Err != nil {
		failure.Err = errors.New(r.String(failure.Err.Error()))
	}
	return &failure
}
