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

// responseEvent is one event of a Responses stream.
type responseEvent struct {
	Type         string          `json:"type"`
	OutputIndex  *int            `json:"output_index"`
	ItemID       string          `json:"item_id"`
	ContentIndex int             `json:"content_index"`
	SummaryIndex int             `json:"summary_index"`
	Delta        lax             `json:"delta"`
	Item         json.RawMessage `json:"item"`
	Response     json.RawMessage `json:"response"`
	Error        json.RawMessage `json:"error"`
}

// responseEnd is the response of the event that ends a stream.
type responseEnd struct {
	Status     string            `json:"status"`
	Output     []json.RawMessage `json:"output"`
	Usage      *responseUsage    `json:"usage"`
	Error      json.RawMessage   `json:"error"`
	Incomplete *struct {
		Reason string `json:"reason"`
	} `json:"incomplete_details"`
}

// thinkingKind says which of its two texts a reasoning item is shown by.
type thinkingKind int

const (
	shownNone thinkingKind = iota
	shownSummary
	shownText
)

// outputItem is an output item while it arrives.
type outputItem struct {
	id     string
	kind   string
	block  *block // nil until there is content
	call   item   // what was said of a call before its block was opened
	shown  thinkingKind
	part   int // of a reasoning item, the part that grows
	closed bool
}

// responsesDecoder turns the events of a stream into an answer.
type responsesDecoder struct {
	*answer
	req    *model.Request
	stream *wire.Stream

	items   map[int]*outputItem
	order   []int // the indexes in order of arrival
	refusal strings.Builder
	final   *responseEnd
}

func newResponsesDecoder(req *model.Request, s *wire.Stream, emit func(model.Delta)) *responsesDecoder {
	return &responsesDecoder{answer: newAnswer(req, emit), req: req, stream: s, items: map[int]*outputItem{}}
}

// event reads one event; unknown ones are skipped.
func (d *responsesDecoder) event(ev wire.Event) error {
	var e responseEvent
	if err := json.Unmarshal(ev.Data, &e); err != nil {
		return d.stream.Protocol(err)
	}
	if e.Type == "" {
		e.Type = ev.Type
	}
	if e.Type == "error" || (!strings.HasPrefix(e.Type, "response.") && !isNull(e.Error)) {
		return failure(d.stream, ev.Data)
	}
	var err error
	switch e.Type {
	case "response.output_item.added":
		err = d.itemAdded(&e)
	case "response.output_item.done":
		err = d.itemDone(d.find(&e), e.Item)
	case "response.output_text.delta":
		d.grow(d.find(&e), itemMessage, string(e.Delta))
	case "response.refusal.delta":
		d.refusal.WriteString(string(e.Delta))
	case "response.reasoning_summary_text.delta":
		d.thinking(d.find(&e), shownSummary, e.SummaryIndex, string(e.Delta))
	case "response.reasoning_text.delta":
		d.thinking(d.find(&e), shownText, e.ContentIndex, string(e.Delta))
	case "response.function_call_arguments.delta":
		d.grow(d.find(&e), itemCall, string(e.Delta))
	case "response.completed", "response.incomplete", "response.failed", "response.cancelled":
		err = d.ended(&e)
	}
	if err != nil {
		return d.asProtocol(err)
	}
	return nil
}

// asProtocol returns an error of the decoder as one of the protocol.
func (d *responsesDecoder) asProtocol(err error) error {
	if me, ok := errors.AsType[*model.Error](err); ok {
		return me
	}
	return d.stream.Protocol(err)
}

// find returns the item an event is about: that of its index, else that of its
// id, else the newest.
func (d *responsesDecoder) find(e *responseEvent) *outputItem {
	index := 0
	switch {
	case e.OutputIndex != nil:
		index = *e.OutputIndex
	case len(d.order) > 0:
		index = d.order[len(d.order)-1]
		for _, i := range d.order {
			if e.ItemID != "" && d.items[i].id == e.ItemID {
				index = i
			}
		}
	}
	it := d.items[index]
	if it == nil {
		it = &outputItem{id: e.ItemID}
		d.items[index] = it
		d.order = append(d.order, index)
	}
	return it
}

func (d *responsesDecoder) itemAdded(e *responseEvent) error {
	added, err := parseItem(e.Item)
	if err != nil {
		return err
	}
	if e.OutputIndex == nil {
		next := len(d.order)
		e.OutputIndex = &next
	}
	it := d.find(e)
	it.id, it.kind, it.call = added.ID, added.Type, *added
	if it.kind == itemCall {
		d.openItem(it)
	}
	return nil
}

// openItem opens the block of an item, and before it those of reasoning items
// that came earlier, so that the blocks keep the order of the items.
func (d *responsesDecoder) openItem(it *outputItem) *block {
	if it.block != nil {
		return it.block
	}
	for _, i := range d.order {
		earlier := d.items[i]
		if earlier == it {
			break
		}
		if earlier.kind == itemReasoning && earlier.block == nil && !earlier.closed {
			earlier.block = d.open(model.BlockThinking)
		}
	}
	switch it.kind {
	case itemCall:
		if it.call.Name == "" {
			return nil
		}
		it.block = d.openCall(it.call.CallID, it.call.Name)
	case itemReasoning:
		it.block = d.open(model.BlockThinking)
	default:
		it.kind = itemMessage
		it.block = d.open(model.BlockText)
	}
	return it.block
}

// grow adds text to an item, which is of that kind when its first event was
// lost. The block is opened with the first text. What cannot be placed is left
// to the whole item at its end.
func (d *responsesDecoder) grow(it *outputItem, kind, text string) {
	if it.kind == "" {
		it.kind = kind
	}
	if it.kind != kind || it.closed || text == "" {
		return
	}
	if b := d.openItem(it); b != nil {
		b.add(text)
	}
}

// thinking adds to a reasoning item one of its two texts, that which came
// first.
func (d *responsesDecoder) thinking(it *outputItem, kind thinkingKind, part int, text string) {
	if it.shown == shownNone && text != "" {
		it.shown, it.part = kind, part
	}
	if it.shown != kind || text == "" {
		return
	}
	if it.part != part {
		it.part = part
		if it.block != nil && it.block.text.Len() > 0 {
			text = partBreak + text
		}
	}
	d.grow(it, itemReasoning, text)
}

// itemDone takes the whole item, which counts: what its deltas left out is
// added, and it is kept to be sent back.
func (d *responsesDecoder) itemDone(it *outputItem, raw json.RawMessage) error {
	if it.closed {
		return nil
	}
	done, err := parseItem(raw)
	if err != nil {
		return err
	}
	if it.kind == "" || it.block == nil {
		it.kind = done.Type
	}
	if it.kind != done.Type {
		return fmt.Errorf("item %q became %q", it.kind, done.Type)
	}
	keep := ""
	if done.whole() {
		keep = string(wire.ValidText(raw))
	}
	switch done.Type {
	case itemMessage:
		if r := done.refusal(); r != "" && d.refusal.Len() == 0 {
			d.refusal.WriteString(r)
		}
		text := done.text()
		if text != "" || it.block != nil {
			b := d.openItem(it)
			b.complete(text)
			b.Raw = keep
		}
	case itemReasoning:
		text := done.thinking(it.shown)
		if text != "" || done.EncryptedContent != "" || it.block != nil {
			b := d.openItem(it)
			b.complete(text)
			b.Raw = keep
			if done.EncryptedContent != "" && done.whole() {
				b.Signature = firstOf(done.ID, itemReasoning)
			}
		}
	case itemCall:
		if err := d.callDone(it, done, keep); err != nil {
			return err
		}
	}
	it.closed = true
	return nil
}

func (d *responsesDecoder) callDone(it *outputItem, done *item, keep string) error {
	if it.block == nil {
		it.call = *done
		if d.openItem(it) == nil {
			return errors.New("a tool call has no name")
		}
	}
	b := it.block
	args, err := argumentPiece(done.Arguments)
	if err != nil {
		return err
	}
	if !b.complete(args) && !sameJSON(args, b.text.String()) {
		return errors.New("a tool call's arguments are not those of its deltas")
	}
	if done.CallID == b.ID {
		b.Raw = keep
	}
	return nil
}

// sameJSON reports whether two texts are the same JSON but for white space;
// no text is the same as any, for some servers leave it out at the end.
func sameJSON(a, b string) bool {
	if strings.TrimSpace(a) == "" {
		return true
	}
	var x, y bytes.Buffer
	return json.Compact(&x, []byte(a)) == nil && json.Compact(&y, []byte(b)) == nil && bytes.Equal(x.Bytes(), y.Bytes())
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// ended takes the event that ends the response, and from it the items that no
// event of their own was sent for.
func (d *responsesDecoder) ended(e *responseEvent) error {
	var end responseEnd
	if isNull(e.Response) {
		return errors.New("the last event holds no response")
	}
	if err := json.Unmarshal(e.Response, &end); err != nil {
		return err
	}
	if end.Status == "" || end.Status == "in_progress" || end.Status == "queued" {
		end.Status = strings.TrimPrefix(e.Type, "response.")
	}
	if end.Usage != nil {
		d.usage = end.Usage.normal(d.req.Model.Prices)
	}
	d.final = &end
	if end.Status == "failed" || end.Status == "cancelled" {
		return nil
	}
	return d.finalItems(end.Output)
}

// finalItems takes the items of the whole response. Items are matched by id,
// else by index and type, for some servers give new ids or count differently;
// one without a match is new when fewer of its type were seen.
func (d *responsesDecoder) finalItems(output []json.RawMessage) error {
	items := make([]*item, len(output))
	missing := map[string]int{}
	for i, raw := range output {
		it, err := parseItem(raw)
		if err != nil {
			return err
		}
		items[i] = it
		missing[it.Type]++
	}
	for _, it := range d.items {
		missing[it.kind]--
	}
	for i, whole := range items {
		it := d.match(i, whole)
		if it == nil {
			if missing[whole.Type] <= 0 {
				continue
			}
			missing[whole.Type]--
			next := i
			for d.items[next] != nil {
				next++
			}
			it = d.find(&responseEvent{OutputIndex: &next})
		}
		if err := d.itemDone(it, output[i]); err != nil {
			return err
		}
	}
	return nil
}

func (d *responsesDecoder) match(index int, whole *item) *outputItem {
	for _, it := range d.items {
		if whole.ID != "" && it.id == whole.ID && it.kind == whole.Type {
			return it
		}
	}
	if it := d.items[index]; it != nil && it.kind == whole.Type {
		return it
	}
	return nil
}

// end finishes the answer by the status of the response.
func (d *responsesDecoder) end() (*model.Response, error) {
	stop, err := d.stop()
	if err == nil && d.refusal.Len() > 0 {
		err = d.stream.Error(model.ClassRefusal, wire.Failure{Message: d.refusal.String(), Code: "refusal"})
	}
	if err != nil {
		return d.failed(err)
	}
	for _, i := range d.order {
		if it := d.items[i]; it.kind == itemCall && it.block == nil {
			return d.failed(d.stream.Protocol(errors.New("a tool call has no name")))
		}
	}
	return d.done(stop)
}

func (d *responsesDecoder) stop() (model.StopReason, error) {
	switch d.final.Status {
	case "completed":
		switch {
		case d.callCount() > 0:
			return model.StopToolUse, nil
		case d.usage != nil && d.usage.Output >= int64(max(maxOutput(d.req), minResponseOutput)):
			return model.StopLength, nil // some servers call a cut-off answer completed
		}
		return model.StopEnd, nil
	case "incomplete":
		reason := ""
		if d.final.Incomplete != nil {
			reason = d.final.Incomplete.Reason
		}
		switch reason {
		case "", "max_output_tokens", "max_tokens", "length":
			return model.StopLength, nil
		case "content_filter":
			return "", d.stream.Error(model.ClassContentFilter, wire.Failure{
				Message: "the provider's content filter stopped the answer", Code: reason})
		}
		return "", d.unknown("incomplete because of", reason)
	case "failed":
		if isNull(d.final.Error) {
			return "", d.stream.Error(model.ClassServerError, wire.Failure{Message: "the response failed"})
		}
		return "", failure(d.stream, d.final.Error)
	case "cancelled":
		return "", d.stream.Error(model.ClassServerError, wire.Failure{Message: "the provider cancelled the response"})
	}
	return "", d.unknown("response status", d.final.Status)
}

func (d *responsesDecoder) unknown(what, value string) error {
	e := d.stream.Error(model.ClassProtocol, wire.Failure{Message: fmt.Sprintf("%s %q is unknown", what, value), Code: value})
	e.NoRetry = true
	return e
}
