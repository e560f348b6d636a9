package storetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
)

var epoch = time.Date(2031, 5, 6, 7, 8, 9, 123456789, time.UTC)

// rawJSON is a value whose text must come back as it is: order of keys, forms
// of numbers and strings, characters that some encoders escape.
const rawJSON = `{"b":1,"a":"<&>\u003c\u2028 ü\ud83d\ude00","n":[1.0,1e5,12345678901234567890,-0],"":{"z":null,"a":false}}`

// raw is rawJSON as a value of its own, so that tests may overwrite it.
func raw() json.RawMessage { return json.RawMessage(rawJSON) }

func sampleMessages() []model.Message {
	return []model.Message{
		{
			Role: model.RoleUser, Timestamp: epoch,
			Content: []model.Block{model.Text("héllo\x00<b>&\u2028"), {Type: model.BlockImage, MimeType: "image/png", Data: []byte{0, 1, 255}, Raw: rawJSON}},
		},
		{
			Role: model.RoleAssistant, Timestamp: epoch, Provider: "p", Model: "m",
			StopReason: model.StopToolUse, ErrorMessage: "e",
			Usage: &model.Usage{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4, Reasoning: 5, Total: 10, Cost: model.Cost{Input: 0.1, Total: 0.3}},
			Content: []model.Block{
				{Type: model.BlockThinking, Thinking: "t", Signature: "s"},
				{Type: model.BlockToolCall, ID: "c", Name: "n", Arguments: raw(), RawArguments: " " + rawJSON},
			},
		},
		{
			Role: model.RoleToolResult, Timestamp: epoch, ToolCallID: "c", ToolName: "n",
			Details: raw(), IsError: true, DurationMS: 7, Content: []model.Block{model.Text("")},
		},
		{
			Role: model.RoleSystem, Timestamp: epoch, Sections: []model.Section{{Key: "k", Text: "x", Untagged: true}},
			ToolsRemoved: []string{"old"}, Baseline: true,
		},
	}
}

func sampleConversation(id, tree durable.ConversationID) durable.ConversationRecord {
	return durable.ConversationRecord{
		ID: id, TreeID: tree, CreatedAt: epoch.Add(time.Duration(id)),
		ForkOf: &durable.ForkPoint{ConversationID: tree, At: 3},
		Owner:  &durable.Owner{ConversationID: tree, TaskID: 4},
	}
}

func sampleEntry(id durable.EntryID, conversation durable.ConversationID) durable.Entry {
	return durable.Entry{
		ID: id, ConversationID: conversation, Kind: "host.kind", Model: sampleMessages(), Data: raw(), Head: id,
		Edits: []durable.Edit{
			{Target: 1, Action: durable.EditOmit},
			{Target: 2, Action: durable.EditReplace, Messages: sampleMessages()},
		},
		ByTaskID: 5,
	}
}

func sampleTask(id durable.TaskID, conversation, tree durable.ConversationID) durable.TaskRecord {
	at := epoch.Add(time.Minute)
	return durable.TaskRecord{
		ID: id, ConversationID: conversation, TreeID: tree, Kind: "host.task", Version: 3, Input: raw(), Owner: 9,
		Background: true, AbortRequested: true, AbortReason: "because", CreatedAt: epoch, StartedAt: &at, EndedAt: &at,
		State: durable.TaskState{
			Status: durable.TaskWaiting, Checkpoint: raw(), Signal: raw(),
			Wait: &durable.Wait{On: []durable.TaskID{1, 2}, Policy: durable.FailFast, Signal: "s", Deadline: &at, Since: epoch},
			Outcome: &durable.Outcome{
				Status: durable.OutcomeFailed, Result: raw(), Error: &durable.TaskError{Message: "m", Detail: raw()}, Reason: "r",
			},
		},
		Memos: map[string]json.RawMessage{"<a>": raw(), "b": raw()},
	}
}

func sampleSubmission(id durable.SubmissionID, conversation durable.ConversationID) durable.SubmissionRecord {
	at := epoch.Add(time.Hour)
	return durable.SubmissionRecord{
		ID: id, ConversationID: conversation, RequestID: fmt.Sprintf("request %d", id),
		Type: durable.SubmissionInput, Status: durable.SubmissionQueued, EntryID: 6, AnswerEntryID: 7, TaskID: 9,
		StopReason: model.StopLength, Reason: durable.ReasonModelError, Detail: raw(), OutputTokens: 8,
		ContentHash: []byte{1, 2, 3},
		Queued: &durable.QueuedItem{
			WhenBusy: durable.Steer, Content: sampleMessages()[0].Content,
			Entry: &durable.EntrySpec{Kind: "k", Model: sampleMessages(), Data: raw(), Head: 1, Edits: []durable.Edit{{Target: 1, Action: durable.EditOmit}}},
		},
		HostData: raw(), CreatedAt: epoch, SettledAt: &at,
	}
}

func sampleDocument(key durable.DocKey) durable.DocRecord {
	return durable.DocRecord{DocKey: key, Version: 2, Revision: 1, Value: raw()}
}

// filled requires that no field of a sample is zero: a field that is added to
// a record must be added to its sample.
func filled(t *testing.T, record any) {
	t.Helper()
	v := reflect.ValueOf(record)
	for i := range v.NumField() {
		require.Falsef(t, v.Field(i).IsZero(), "%s.%s of the sample is zero", v.Type(), v.Type().Field(i).Name)
	}
}
