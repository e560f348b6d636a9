package anthropic

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// event is the data of any event of the stream.
type event struct {
	Type    string `json:"type"`
	Message struct {
		Usage usage `json:"usage"`
	} `json:"message"`
	Index        int        `json:"index"`
	ContentBlock *eventPart `json:"content_block"`
	Delta        *eventPart `json:"delta"`
	Usage        usage      `json:"usage"`
}

// eventPart is a block as it starts, a delta to it, or the end of the message.
type eventPart struct {
	Type        string          `json:"type"`
	ID          string          `json:"id"`
	Name        string          `json:"name"`
	Input       json.RawMessage `json:"input"`
	Text        string          `json:"text"`
	Thinking    string          `json:"thinking"`
	Signature   string          `json:"signature"`
	Data        string          `json:"data"`
	PartialJSON string          `json:"partial_json"`
	StopReason  string          `json:"stop_reason"`
	StopDetails *struct {
		Category    string `json:"category"`
		Explanation string `json:"explanation"`
	} `json:"stop_details"`
}

// usage is cumulative within a message: a field that is there replaces the
// earlier value, one that is missing keeps it.
type usage struct {
	Input      *int64 `json:"input_tokens"`
	CacheWrite *int64 `json:"cache_creation_input_tokens"`
	CacheRead  *int64 `json:"cache_read_input_tokens"`
	Output     *int64 `json:"output_tokens"`
	Details    struct {
		Thinking *int64 `json:"thinking_tokens"`
	} `json:"output_tokens_details"`
}

// part is a block of the final message while it grows.
type part struct {
	block model.Block
	text  strings.Builder // text, thinking or arguments
	index int             // in the final message
}

// decoder builds one message out of the streams of one answer, of which there
// is more than one when the server pauses the turn.
type decoder struct {
	req  *model.Request
	emit func(model.Delta)

	parts []*part       // the final message so far
	open  map[int]*part // by index in the stream; nil for blocks that are not kept
	ids   map[string]bool
	lost  bool // the stream had content that is not kept

	done    model.Usage // of the streams before this one
	current model.Usage
	counted bool // the server reported usage

	stop    string
	details string
	ended   bool // message_stop was seen
}

func newDecoder(req *model.Request, emit func(model.Delta)) *decoder {
	d := &decoder{req: req, emit: emit, ids: map[string]bool{}}
	for i := range req.Messages {
		for _, b := range req.Messages[i].Content {
			if b.Type == model.BlockToolCall {
				d.ids[b.ID] = true
			}
		}
	}
	return d
}

// read reads one stream to its end and reports whether the turn is paused.
func (d *decoder) read(s *wire.Stream) (paused bool, err error) {
	d.open, d.stop, d.ended = map[int]*part{}, "", false
	d.done.Add(&d.current)
	d.current = model.Usage{}
	for !d.ended {
		ev, err := s.Next()
		if errors.Is(err, io.EOF) {
			break // fine after a stop reason: some servers leave message_stop out
		}
		if err != nil {
			return false, err
		}
		var e event
		if err := json.Unmarshal(ev.Data, &e); err != nil {
			return false, s.Protocol(err)
		}
		if e.Type == "" {
			e.Type = ev.Type
		}
		if e.Type == "error" {
			f, _ := wire.ParseFailure(ev.Data)
			return false, s.Failed(f)
		}
		if err := d.event(&e); err != nil {
			return false, s.Protocol(err)
		}
	}
	return d.judge(s)
}

// event applies one event. Types that are not known are ignored: new ones will
// come.
func (d *decoder) event(e *event) error {
	switch e.Type {
	case "message_start":
		d.count(&e.Message.Usage)
	case "content_block_start":
		if e.ContentBlock == nil {
			return fmt.Errorf("content_block_start without a block")
		}
		d.start(e.Index, e.ContentBlock)
	case "content_block_delta":
		p, ok := d.open[e.Index]
		if !ok || e.Delta == nil {
			return fmt.Errorf("content_block_delta for block %d, which is not open", e.Index)
		}
		if p != nil {
			d.add(p, e.Delta)
		}
	case "content_block_stop":
		delete(d.open, e.Index)
	case "message_delta":
		d.count(&e.Usage)
		if e.Delta != nil && e.Delta.StopReason != "" {
			d.stop, d.details = e.Delta.StopReason, ""
			if sd := e.Delta.StopDetails; sd != nil {
				d.details = strings.TrimSpace(sd.Category + " " + sd.Explanation)
			}
		}
	case "message_stop":
		d.ended = true
	}
	return nil
}

func (d *decoder) start(index int, b *eventPart) {
	p := &part{index: -1}
	d.open[index] = p
	switch b.Type {
	case "text":
		p.block.Type = model.BlockText
		d.add(p, &eventPart{Type: "text_delta", Text: b.Text})
	case "thinking":
		p.block.Type = model.BlockThinking
		d.add(p, &eventPart{Type: "thinking_delta", Thinking: b.Thinking})
		d.add(p, &eventPart{Type: "signature_delta", Signature: b.Signature})
	case "redacted_thinking":
		raw, err := wire.Marshal(content{Type: b.Type, Data: b.Data})
		if err != nil || b.Data == "" {
			d.skip(index)
			return
		}
		p.block = model.Block{Type: model.BlockThinking, Raw: string(raw)}
		d.keep(p)
	case "tool_use":
		p.block = model.Block{Type: model.BlockToolCall, ID: d.newID(b.ID), Name: b.Name}
		d.keep(p)
		d.emit(model.Delta{Kind: model.DeltaToolCall, Index: p.index, ToolCallID: p.block.ID, ToolName: b.Name})
		if in := strings.TrimSpace(string(b.Input)); in != "" && in != "{}" && in != "null" {
			d.add(p, &eventPart{Type: "input_json_delta", PartialJSON: in}) // whole arguments at the start
		}
	default:
		d.skip(index)
	}
}

// skip leaves a block out of the message.
func (d *decoder) skip(index int) { d.open[index], d.lost = nil, true }

// keep gives the part its place in the final message. It happens when there is
// something in it, so that empty blocks leave no gap.
func (d *decoder) keep(p *part) {
	if p.index < 0 {
		p.index = len(d.parts)
		d.parts = append(d.parts, p)
	}
}

func (d *decoder) add(p *part, delta *eventPart) {
	var kind model.DeltaKind
	var text string
	switch {
	case delta.Type == "text_delta" && p.block.Type == model.BlockText:
		kind, text = model.DeltaText, delta.Text
	case delta.Type == "thinking_delta" && p.block.Type == model.BlockThinking:
		kind, text = model.DeltaThinking, delta.Thinking
	case delta.Type == "input_json_delta" && p.block.Type == model.BlockToolCall:
		kind, text = model.DeltaToolCall, delta.PartialJSON
	case delta.Type == "signature_delta" && p.block.Type == model.BlockThinking && delta.Signature != "":
		d.keep(p)
		p.block.Signature += delta.Signature
		return
	}
	if text == "" {
		return
	}
	d.keep(p)
	p.text.WriteString(text)
	d.emit(model.Delta{Kind: kind, Index: p.index, Text: text})
}

// newID returns the id of a call, or another one when it is missing or taken
// already within the request (E13).
func (d *decoder) newID(id string) string {
	if id == "" || d.ids[id] {
		id = "toolu_" + rand.Text()
	}
	d.ids[id] = true
	return id
}

func (d *decoder) count(u *usage) {
	set := func(to *int64, from *int64) {
		if from != nil {
			*to, d.counted = max(*from, 0), true
		}
	}
	set(&d.current.Input, u.Input)
	set(&d.current.CacheWrite, u.CacheWrite)
	set(&d.current.CacheRead, u.CacheRead)
	set(&d.current.Output, u.Output)
	set(&d.current.Reasoning, u.Details.Thinking)
}

// judge says what the end of a stream means.
func (d *decoder) judge(s *wire.Stream) (paused bool, err error) {
	calls := 0
	for _, p := range d.parts {
		if p.block.Type == model.BlockToolCall {
			calls++
		}
	}
	switch d.stop {
	case "":
		return false, s.Incomplete()
	case "end_turn", "stop_sequence", "max_tokens", "model_context_window_exceeded":
		return false, nil
	case "tool_use":
		if calls == 0 {
			return false, s.Error(model.ClassProtocol, wire.Failure{Message: "the answer stopped for tools and calls none"})
		}
		return false, nil
	case "pause_turn":
		if d.lost {
			e := s.Error(model.ClassProtocol, wire.Failure{Message: "the answer paused in content that cannot be sent back", Code: d.stop})
			e.NoRetry = true
			return false, e
		}
		return true, nil
	case "refusal":
		text := "the model refused to answer"
		if d.details != "" {
			text += ": " + d.details
		}
		return false, s.Error(model.ClassRefusal, wire.Failure{Message: text, Code: d.stop})
	}
	e := s.Error(model.ClassProtocol, wire.Failure{Message: fmt.Sprintf("unknown stop reason %q", d.stop), Code: d.stop})
	e.NoRetry = true
	return false, e
}

// response returns the finished answer.
func (d *decoder) response() (*model.Response, error) {
	m := d.soFar()
	m.StopReason = model.StopEnd
	switch {
	case d.stop == "max_tokens" || d.stop == "model_context_window_exceeded":
		m.StopReason = model.StopLength
	case len(m.ToolCalls()) > 0: // also where a server says end_turn
		m.StopReason = model.StopToolUse
	}
	return &model.Response{Message: &m}, nil
}

// failed returns err and what was received before it.
func (d *decoder) failed(err error) (*model.Response, error) {
	e := model.AsError(err)
	if len(d.parts) == 0 && !d.counted {
		return nil, e
	}
	m := d.soFar()
	m.StopReason, m.ErrorMessage = model.StopError, e.Error()
	if e.Class == model.ClassAborted {
		m.StopReason = model.StopAborted
	}
	return &model.Response{Message: &m}, e
}

// soFar returns the message as far as it was received.
func (d *decoder) soFar() model.Message {
	m := model.Message{Role: model.RoleAssistant, Provider: d.req.Model.Provider, Model: d.req.Model.ID}
	for _, p := range d.parts {
		b := p.block
		switch b.Type {
		case model.BlockText:
			b.Text = p.text.String()
		case model.BlockThinking:
			b.Thinking = p.text.String()
		case model.BlockToolCall:
			b.SetArguments(p.text.String())
		}
		m.Content = append(m.Content, b)
	}
	if d.counted {
		u := d.done.Clone()
		u.Add(&d.current)
		u.Price(d.req.Model.Prices)
		m.Usage = &u
	}
	return m
}
