package durable

import (
	"encoding/json"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
)

// liveOutput is the committed running output of a task, in memory: the pieces
// of an answer, or what a tool printed.
type liveOutput struct {
	answer bool
	pieces int             // how many were committed
	deltas []model.Delta   // answer: as they came, see merged
	buf    strings.Builder // tool
}

func newLiveOutput(rec *TaskRecord, parts [][]byte) *liveOutput {
	o := &liveOutput{answer: rec.Kind == generationKind}
	for _, p := range parts {
		o.add(p)
	}
	return o
}

func (o *liveOutput) add(data []byte) {
	o.pieces++
	if !o.answer {
		o.buf.Write(data)
		return
	}
	var ds []model.Delta
	if json.Unmarshal(data, &ds) == nil {
		o.deltas = append(o.deltas, ds...)
	}
}

// merged joins pieces that go on with the one before, each text built once.
func merged(deltas []model.Delta) []model.Delta {
	var out []model.Delta
	for i := 0; i < len(deltas); {
		d := deltas[i]
		var b strings.Builder
		n := i
		for ; n < len(deltas) && continues(&d, &deltas[n]); n++ {
			b.WriteString(deltas[n].Text)
		}
		d.Text = b.String()
		out = append(out, d)
		i = n
	}
	return out
}

// continues reports whether next goes on with the block of d.
func continues(d, next *model.Delta) bool {
	return next.Kind == d.Kind && next.Index == d.Index && (next.ToolCallID == "" || next.ToolCallID == d.ToolCallID)
}

func (o *liveOutput) text() string { return o.buf.String() }

// message assembles the pieces of an answer. Calls that were being written are
// left out: nobody knows what they were to be.
func (o *liveOutput) message() *model.Message { return assemble(o.deltas) }

func assemble(deltas []model.Delta) *model.Message {
	m := &model.Message{Role: model.RoleAssistant, Content: []model.Block{}}
	for _, d := range merged(deltas) {
		switch d.Kind {
		case model.DeltaText:
			m.Content = append(m.Content, model.Text(d.Text))
		case model.DeltaThinking:
			m.Content = append(m.Content, model.Block{Type: model.BlockThinking, Thinking: d.Text})
		}
	}
	return m
}

// partial describes the answer for a snapshot.
func (o *liveOutput) partial(id TaskID, sub SubmissionID) *PartialMessage {
	p := &PartialMessage{TaskID: id, SubmissionID: sub, Deltas: merged(o.deltas)}
	for _, d := range p.Deltas {
		switch d.Kind {
		case model.DeltaText:
			p.Text += d.Text
		case model.DeltaThinking:
			p.Thinking += d.Text
		case model.DeltaToolCall:
			p.ToolCalls = append(p.ToolCalls, PartialToolCall{Index: d.Index, ID: d.ToolCallID, Name: d.ToolName, Arguments: d.Text})
		}
	}
	return p
}

// runningTool describes a tool task for a snapshot, false when it is not
// running.
func runningTool(rec *TaskRecord, out *liveOutput) (RunningTool, bool) {
	if rec.Kind != toolKind || rec.State.Status != TaskRunning {
		return RunningTool{}, false
	}
	var in toolInput
	var ckpt checkpoint
	var state toolState
	if json.Unmarshal(rec.Input, &in) != nil || json.Unmarshal(rec.State.Checkpoint, &ckpt) != nil {
		return RunningTool{}, false
	}
	_ = json.Unmarshal(ckpt.Data, &state) // a call that has not begun has none
	rt := RunningTool{TaskID: rec.ID, ToolCallID: in.CallID, ToolName: in.Name, Arguments: state.Arguments}
	if out != nil {
		rt.Output = out.text()
	}
	return rt, true
}
