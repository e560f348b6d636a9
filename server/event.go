package server

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server/internal/sse"
)

// The data of a conversation's events (E17.2), where it differs from the
// engine's types.
type (
	// SnapshotEvent is the conversation at a moment.
	SnapshotEvent struct {
		View         View                    `json:"view"`
		Partial      *durable.PartialMessage `json:"partial,omitempty" doc:"The message that is being written"`
		RunningTools []durable.RunningTool   `json:"runningTools"`
	}
	// View is the committed state of a conversation.
	View struct {
		Conversation ViewConversation           `json:"conversation"`
		Busy         bool                       `json:"busy"`
		Entries      []Entry                    `json:"entries" doc:"What the model may see"`
		Submissions  []Submission               `json:"submissions" doc:"Those that are not settled"`
		Docs         map[string]json.RawMessage `json:"docs" doc:"The engine's documents, by kind"`
	}
	// ViewConversation is what never changes of a conversation.
	ViewConversation struct {
		ID         durable.ConversationID `json:"id"`
		Parent     *ConversationParent    `json:"parent,omitempty"`
		ForkedFrom *ConversationFork      `json:"forkedFrom,omitempty"`
	}
	// EntryAppendedEvent is a new entry.
	EntryAppendedEvent struct {
		ConversationID durable.ConversationID `json:"conversationId"`
		Entry          Entry                  `json:"entry"`
	}
	// SubmissionChangedEvent is a new or changed submission.
	SubmissionChangedEvent struct {
		ConversationID durable.ConversationID `json:"conversationId"`
		SubmissionID   durable.SubmissionID   `json:"submissionId"`
		Submission     Submission             `json:"submission"`
	}
	// MessageDeltaEvent adds to the message that is being written.
	MessageDeltaEvent struct {
		ConversationID durable.ConversationID `json:"conversationId"`
		TaskID         durable.TaskID         `json:"taskId"`
		SubmissionID   durable.SubmissionID   `json:"submissionId,omitempty"`
		Kind           string                 `json:"kind" enum:"text,thinking,toolCall"`
		Index          int                    `json:"index" doc:"The block of the message that it adds to"`
		Delta          string                 `json:"delta,omitempty"`
		ToolCallID     string                 `json:"toolCallId,omitempty" doc:"At the beginning of a tool call"`
		ToolName       string                 `json:"toolName,omitempty" doc:"At the beginning of a tool call"`
	}
	// MessageStateEvent is the beginning or the end of a message, or says to
	// forget it.
	MessageStateEvent struct {
		ConversationID durable.ConversationID `json:"conversationId"`
		TaskID         durable.TaskID         `json:"taskId"`
		SubmissionID   durable.SubmissionID   `json:"submissionId,omitempty"`
		EntryID        durable.EntryID        `json:"entryId,omitempty" doc:"At the end"`
		StopReason     string                 `json:"stopReason,omitempty" doc:"At the end"`
		Reason         string                 `json:"reason,omitempty" doc:"Why it is to be forgotten"`
	}
	// ToolExecutionEvent is about a tool call that runs.
	ToolExecutionEvent struct {
		ConversationID durable.ConversationID `json:"conversationId"`
		TaskID         durable.TaskID         `json:"taskId"`
		SubmissionID   durable.SubmissionID   `json:"submissionId,omitempty"`
		ToolCallID     string                 `json:"toolCallId"`
		ToolName       string                 `json:"toolName"`
		Arguments      json.RawMessage        `json:"arguments,omitempty" doc:"At the beginning"`
		Delta          string                 `json:"delta,omitempty" doc:"Running output that follows what was shown"`
		Reset          bool                   `json:"reset,omitempty" doc:"Delta replaces the output shown so far"`
		EntryID        durable.EntryID        `json:"entryId,omitempty" doc:"At the end"`
		Result         *Message               `json:"result,omitempty" doc:"At the end"`
	}
)

type eventsInput struct {
	ConversationPath
	LastEventID string `header:"Last-Event-ID" doc:"Go on behind this event"`
}

func (s *Server) eventRoutes() {
	state, run, turn := reflect.TypeFor[MessageStateEvent](), reflect.TypeFor[durable.RunEvent](), reflect.TypeFor[durable.TurnEvent]()
	tool, retry, doc := reflect.TypeFor[ToolExecutionEvent](), reflect.TypeFor[durable.RetryEvent](), reflect.TypeFor[durable.DocEvent]()
	s.registerStream(huma.Operation{
		OperationID: "streamEvents", Method: http.MethodGet, Path: "/v1/conversations/{id}/events", Tags: []string{tagConversations},
		Summary:     "Follow a conversation",
		Description: "Server-sent events, a snapshot first. With Last-Event-ID the events behind that one follow when the server still has them, else a snapshot.",
	}, "ConversationEvent", []streamEvent{
		{string(durable.EventSnapshot), reflect.TypeFor[SnapshotEvent]()},
		{string(durable.EventRunStart), run},
		{string(durable.EventRunEnd), run},
		{string(durable.EventTurnStart), turn},
		{string(durable.EventTurnEnd), turn},
		{string(durable.EventMessageStart), state},
		{string(durable.EventMessageUpdate), reflect.TypeFor[MessageDeltaEvent]()},
		{string(durable.EventMessageEnd), state},
		{string(durable.EventMessageVoid), state},
		{string(durable.EventToolStart), tool},
		{string(durable.EventToolUpdate), tool},
		{string(durable.EventToolEnd), tool},
		{string(durable.EventEntryAppended), reflect.TypeFor[EntryAppendedEvent]()},
		{string(durable.EventSubmission), reflect.TypeFor[SubmissionChangedEvent]()},
		{string(durable.EventInboxUpdate), reflect.TypeFor[durable.InboxEvent]()},
		{string(durable.EventAgentChanged), doc},
		{string(durable.EventUsageChanged), doc},
		{string(durable.EventAutoRetryStart), retry},
		{string(durable.EventAutoRetryEnd), retry},
		{string(durable.EventTaskFailed), reflect.TypeFor[durable.TaskFailedEvent]()},
		{"bye", reflect.TypeFor[Bye]()},
	}, func(op huma.Operation) { register(s, op, []int{http.StatusNotFound}, s.streamEvents) })
}

func (s *Server) streamEvents(ctx context.Context, in *eventsInput) (*huma.StreamResponse, error) {
	c, err := s.engine.Conversation(ctx, durable.ConversationID(in.ID))
	if err != nil {
		return nil, err
	}
	return s.stream(func(ctx context.Context) iter.Seq2[sse.Event, error] {
		return func(yield func(sse.Event, error) bool) {
			for ev, err := range c.Events(ctx, in.LastEventID) {
				var out sse.Event
				if err == nil {
					out = sse.Event{ID: ev.ID, Name: string(ev.Type), Data: s.encode(wireEvent(ev.Data))}
				}
				if !yield(out, err) || err != nil {
					return
				}
			}
		}
	}), nil
}

// wireEvent converts the payload of an event. Types that are not converted are
// shown as they are.
func wireEvent(data any) any {
	switch d := data.(type) {
	case durable.Snapshot:
		return wireSnapshot(&d)
	case durable.EntryEvent:
		return EntryAppendedEvent{d.ConversationID, wireEntry(d.Entry)}
	case durable.SubmissionEvent:
		return SubmissionChangedEvent{d.ConversationID, d.SubmissionID, bareSubmission(d.Submission)}
	case durable.MessageEvent:
		if d.Delta == nil {
			return MessageStateEvent{d.ConversationID, d.TaskID, d.SubmissionID, d.EntryID, string(d.StopReason), d.Reason}
		}
		return MessageDeltaEvent{
			d.ConversationID, d.TaskID, d.SubmissionID,
			string(d.Delta.Kind), d.Index, d.Text, d.Delta.ToolCallID, d.Delta.ToolName,
		}
	case durable.ToolEvent:
		out := ToolExecutionEvent{
			d.ConversationID, d.TaskID, d.SubmissionID, d.ToolCallID, d.ToolName, d.Arguments, d.Delta, d.Reset, d.EntryID, nil,
		}
		if d.Result != nil {
			out.Result = &Message{*d.Result}
		}
		return out
	}
	return data
}

func wireSnapshot(snap *durable.Snapshot) SnapshotEvent {
	rec := &snap.View.Conversation
	out := SnapshotEvent{
		View: View{
			Conversation: ViewConversation{ID: rec.ID}, Busy: snap.View.Busy, Docs: snap.View.Docs,
			Entries: []Entry{}, Submissions: []Submission{},
		},
		Partial: snap.Partial, RunningTools: snap.RunningTools,
	}
	if rec.Owner != nil {
		out.View.Conversation.Parent = &ConversationParent{rec.Owner.ConversationID, rec.Owner.TaskID}
	}
	if rec.ForkOf != nil {
		out.View.Conversation.ForkedFrom = &ConversationFork{rec.ForkOf.ConversationID, rec.ForkOf.At}
	}
	for i := range snap.View.Entries {
		out.View.Entries = append(out.View.Entries, wireEntry(&snap.View.Entries[i]))
	}
	for i := range snap.View.Submissions {
		out.View.Submissions = append(out.View.Submissions, bareSubmission(&snap.View.Submissions[i]))
	}
	return out
}
