package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// chatChunk is one event of a Chat Completions stream. What servers do
// differently is read as raw JSON.
type chatChunk struct {
	Choices []chatChoice    `json:"choices"`
	Usage   *chatUsage      `json:"usage"`
	Error   json.RawMessage `json:"error"`
}

type chatChoice struct {
	Index        int             `json:"index"`
	Delta        *chatDelta      `json:"delta"`
	FinishReason lax             `json:"finish_reason"`
	Usage        *chatUsage      `json:"usage"`
	Error        json.RawMessage `json:"error"`
}

type chatDelta struct {
	Content          json.RawMessage   `json:"content"`
	Refusal          lax               `json:"refusal"`
	ReasoningContent lax               `json:"reasoning_content"`
	Reasoning        lax               `json:"reasoning"`
	ReasoningDetails []json.RawMessage `json:"reasoning_details"`
	ToolCalls        []json.RawMessage `json:"tool_calls"`
}

// lax is a string; any other JSON value counts as none.
type lax string

func (l *lax) UnmarshalJSON(data []byte) error {
	var s string
	if json.Unmarshal(data, &s) == nil {
		*l = lax(s)
	}
	return nil
}

// chatDecoder turns the chunks of a stream into an answer.
type chatDecoder struct {
	*answer
	req    *model.Request
	stream *wire.Stream

	reasoningIn string // the field to read; auto until one was seen
	tags        *thinkTags
	details     details
	current     *block // the text or thinking block that grows
	calls       callTable
	refusal     strings.Builder
	finish      string // the finish reason, "" until it came
	finishError []byte // the error object beside it
}

func newChatDecoder(req *model.Request, s *wire.Stream, emit func(model.Delta)) *chatDecoder {
	q := &quirks{info: &req.Model}
	d := &chatDecoder{
		answer: newAnswer(req, emit), req: req, stream: s,
		reasoningIn: q.get(QuirkReasoningIn, fieldAuto),
	}
	if q.is(QuirkThinkTags, false) {
		d.tags = &thinkTags{text: d.text, thinking: func(s string) { d.thinking("", s) }}
	}
	d.calls.open = d.openCall
	return d
}

// event reads one event.
func (d *chatDecoder) event(ev wire.Event) error {
	if ev.Type == "error" {
		return failure(d.stream, ev.Data)
	}
	var c chatChunk
	if err := json.Unmarshal(ev.Data, &c); err != nil {
		return d.stream.Protocol(err)
	}
	if c.Usage != nil {
		d.setUsage(c.Usage)
	}
	if !isNull(c.Error) {
		return failure(d.stream, ev.Data)
	}
	for i := range c.Choices {
		if c.Choices[i].Index != 0 {
			continue
		}
		if err := d.choice(&c.Choices[i]); err != nil {
			return d.stream.Protocol(err)
		}
	}
	return nil
}

func (d *chatDecoder) choice(c *chatChoice) error {
	if c.Usage != nil {
		d.setUsage(c.Usage)
	}
	if c.Delta != nil {
		if err := d.delta(c.Delta); err != nil {
			return err
		}
	}
	if !isNull(c.Error) {
		d.finish, d.finishError = "error", bytes.Clone(c.Error)
	}
	if c.FinishReason != "" && d.finish == "" {
		d.finish = strings.ToLower(string(c.FinishReason))
	}
	return nil
}

func (d *chatDecoder) delta(c *chatDelta) error {
	d.reasoning(c)
	if err := d.content(c.Content); err != nil {
		return err
	}
	d.refusal.WriteString(string(c.Refusal))
	for _, raw := range c.ToolCalls {
		if isNull(raw) {
			continue
		}
		if err := d.calls.add(raw); err != nil {
			return err
		}
		d.current = nil
	}
	return nil
}

// reasoning takes the thinking of a delta from one of the fields it may stand
// in: the one seen first, for some servers fill two.
func (d *chatDecoder) reasoning(c *chatDelta) {
	if d.reasoningIn == fieldNone {
		return
	}
	if d.reasoningIn == fieldAuto {
		switch {
		case c.ReasoningContent != "":
			d.reasoningIn = fieldContent
		case c.Reasoning != "":
			d.reasoningIn = fieldReasoning
		}
	}
	text := ""
	switch d.reasoningIn {
	case fieldContent:
		text = string(c.ReasoningContent)
	case fieldReasoning:
		text = string(c.Reasoning)
	}
	if len(c.ReasoningDetails) > 0 {
		detailText := d.details.add(c.ReasoningDetails)
		if d.reasoningIn == fieldAuto {
			text = detailText
		}
		if d.details.block == nil {
			d.details.block = d.grow(model.BlockThinking)
		}
	}
	if text != "" {
		field := d.reasoningIn
		if field == fieldAuto {
			field = fieldReasoning
		}
		d.thinking(field, text)
	}
}

// content reads content that is a string or, at some servers, a list of parts.
func (d *chatDecoder) content(raw json.RawMessage) error {
	if isNull(raw) {
		return nil
	}
	switch raw[0] {
	case '"':
		var s string
		if err := json.Unmarshal(raw, &s); err != nil {
			return err
		}
		d.tagged(s)
		return nil
	case '[':
		var parts []struct {
			Type     string          `json:"type"`
			Text     lax             `json:"text"`
			Thinking json.RawMessage `json:"thinking"`
		}
		if err := json.Unmarshal(raw, &parts); err != nil {
			return err
		}
		for i := range parts {
			if parts[i].Type == "thinking" {
				d.thinking("", thinkingText(parts[i].Thinking))
			} else {
				d.tagged(string(parts[i].Text))
			}
		}
		return nil
	}
	return fmt.Errorf("content is %.20q", raw)
}

// thinkingText returns a thinking part's text: a string, or a list of parts.
func thinkingText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var parts []struct {
		Text lax `json:"text"`
	}
	_ = json.Unmarshal(raw, &parts) // another form has no text
	var b strings.Builder
	for i := range parts {
		b.WriteString(string(parts[i].Text))
	}
	return b.String()
}

// tagged adds content that may begin with a think tag.
func (d *chatDecoder) tagged(s string) {
	if d.tags != nil {
		d.tags.add(s)
	} else {
		d.text(s)
	}
}

func (d *chatDecoder) text(s string) {
	if s != "" {
		d.grow(model.BlockText).add(s)
	}
}

// thinking adds thinking that came in a field, "" for none that can be sent
// back.
func (d *chatDecoder) thinking(field, s string) {
	if s == "" {
		return
	}
	b := d.grow(model.BlockThinking)
	if field != "" && b.Raw == "" {
		b.Raw = `{"field":"` + field + `"}`
	}
	b.add(s)
}

// grow returns the block that a piece of that type belongs to.
func (d *chatDecoder) grow(t model.BlockType) *block {
	if d.current == nil || d.current.Type != t {
		d.current = d.open(t)
	}
	return d.current
}

func (d *chatDecoder) setUsage(u *chatUsage) { d.usage = u.normal(d.req.Model.Prices) }

// end finishes the answer after the last event.
func (d *chatDecoder) end() (*model.Response, error) {
	if d.tags != nil {
		d.tags.end()
	}
	if d.finish == "" {
		return d.failed(d.stream.Incomplete())
	}
	if err := d.calls.end(); err != nil {
		return d.failed(d.stream.Protocol(err))
	}
	d.details.store()
	if d.refusal.Len() > 0 {
		return d.failed(d.stream.Error(model.ClassRefusal, wire.Failure{Message: d.refusal.String(), Code: "refusal"}))
	}
	stop, err := d.stop()
	if err != nil {
		return d.failed(err)
	}
	return d.done(stop)
}

// refused reports whether an error after the finish reason is a refusal of the
// server and not of the connection.
func (d *chatDecoder) refused(err error) bool {
	me, ok := errors.AsType[*model.Error](err)
	return ok && (me.Class == model.ClassContentFilter || me.Class == model.ClassRefusal)
}

// stop returns what the finish reason means.
func (d *chatDecoder) stop() (model.StopReason, error) {
	switch d.finish {
	case "stop", "end_turn", "eos", "eos_token", "stop_sequence":
		if d.callCount() > 0 {
			return model.StopToolUse, nil
		}
		return model.StopEnd, nil
	case "tool_calls", "function_call", "tool_use":
		switch {
		case d.callCount() == 0 && len(d.blocks) == 0:
			return "", d.stream.Protocol(errors.New("the answer names tool calls and has none"))
		case d.callCount() == 0:
			return model.StopEnd, nil
		case d.cutOff():
			return model.StopLength, nil
		}
		return model.StopToolUse, nil
	case "length", "max_tokens", "model_length":
		return model.StopLength, nil
	case "content_filter", "sensitive", "safety", "recitation", "prohibited_content":
		return "", d.named(model.ClassContentFilter, "the provider's content filter stopped the answer")
	case "refusal":
		return "", d.named(model.ClassRefusal, "the model refused to answer")
	case "insufficient_system_resource":
		return "", d.named(model.ClassOverloaded, "the provider ran out of resources")
	case "error", "network_error", "abort", "aborted", "malformed_function_call":
		if d.finishError != nil {
			return "", failure(d.stream, d.finishError)
		}
		return "", d.named(model.ClassServerError, "the answer ended with finish reason "+d.finish)
	}
	e := d.named(model.ClassProtocol, fmt.Sprintf("unknown finish reason %q", d.finish))
	e.NoRetry = true
	return "", e
}

func (d *chatDecoder) named(c model.Class, text string) *model.Error {
	return d.stream.Error(c, wire.Failure{Message: text, Code: d.finish})
}

// cutOff reports whether the last call's arguments are broken because the
// output limit was reached, which some servers report as tool calls.
func (d *chatDecoder) cutOff() bool {
	if d.usage == nil || d.usage.Output < int64(maxOutput(d.req)) {
		return false
	}
	for _, b := range d.blocks {
		if b.Type == model.BlockToolCall && !isObject(b.text.String()) {
			return true
		}
	}
	return false
}

// isObject reports whether s is a JSON object, or nothing, which stands for an
// empty one.
func isObject(s string) bool {
	s = strings.TrimSpace(s)
	return s == "" || (s[0] == '{' && s[len(s)-1] == '}' && json.Valid([]byte(s)))
}
