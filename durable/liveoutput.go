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
	deltas []model.Delta   // answer
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
	if !o.answer {
		o.buf.Write(data)
		return
	}
	for _, d := range decodeDeltas([][]byte{data}) {
		o.deltas = appendDelta(o.deltas, d)
	}
}

func (o *liveOutput) text() string { return o.buf.String() }

// message assembles the pieces of an answer. Calls that were being written are
// left out: nobody knows what they were to be.
func (o *liveOutput) message() *model.Message {
	m := &model.Message{Role: model.RoleAssistant, Content: []model.Block{}}
	for _, d := range o.deltas {
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
	p := &PartialMessage{TaskID: id, SubmissionID: sub, Deltas: append([]model.Delta(nil), o.deltas...)}
	for _, d := range o.deltas {
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
