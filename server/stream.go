package server

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"reflect"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server/internal/sse"
)

// The data of the events of a submission's stream (S10).
type (
	// StreamStatus is the submission: first, and at each change of status.
	StreamStatus struct {
		Submission Submission `json:"submission"`
	}
	// StreamMessageStart begins a message.
	StreamMessageStart struct {
		Message int `json:"message" doc:"Counts from 1 within the run"`
	}
	// StreamDelta adds to the text or the thinking of a message.
	StreamDelta struct {
		Message int    `json:"message"`
		Delta   string `json:"delta"`
	}
	// StreamToolCall is a tool call of a message.
	StreamToolCall struct {
		Message    int             `json:"message"`
		ToolCallID string          `json:"toolCallId"`
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
	}
	// StreamToolOutput adds to the running output of a tool call.
	StreamToolOutput struct {
		ToolCallID string `json:"toolCallId"`
		Delta      string `json:"delta"`
		Reset      bool   `json:"reset,omitempty" doc:"Delta replaces the output shown so far"`
	}
	// StreamToolResult is the result of a tool call.
	StreamToolResult struct {
		ToolCallID string  `json:"toolCallId"`
		IsError    bool    `json:"isError"`
		Content    []Block `json:"content"`
	}
	// StreamMessageVoid says to forget a message.
	StreamMessageVoid struct {
		Message int    `json:"message"`
		Reason  string `json:"reason"`
	}
	// StreamMessageEnd ends a message.
	StreamMessageEnd struct {
		Message    int             `json:"message"`
		EntryID    durable.EntryID `json:"entryId"`
		StopReason string          `json:"stopReason"`
	}
	// StreamDone is the settled submission; then the stream closes.
	StreamDone struct {
		Submission Submission `json:"submission"`
	}
	// Bye ends a stream because the server stops.
	Bye struct {
		RetryMS int `json:"retryMs" doc:"How long to wait before coming back"`
	}
)

func (s *Server) streamRoutes() {
	s.registerStream(huma.Operation{
		OperationID: "streamSubmission", Method: http.MethodGet, Path: "/v1/submissions/{id}/stream", Tags: []string{tagSubmissions},
		Summary:     "Follow the answer to a submission",
		Description: "Server-sent events: who joins late gets the past as the same events. Each connection begins with the first one again: an id counts the events of its connection, and Last-Event-ID is not used. Text that came in many pieces may then come in few. The text of the last message that is not void is the answer's. The stream ends with done.",
	}, "SubmissionStreamEvent", []streamEvent{
		{"status", reflect.TypeFor[StreamStatus]()},
		{"message_start", reflect.TypeFor[StreamMessageStart]()},
		{"text", reflect.TypeFor[StreamDelta]()},
		{"thinking", reflect.TypeFor[StreamDelta]()},
		{"tool_call", reflect.TypeFor[StreamToolCall]()},
		{"tool_output", reflect.TypeFor[StreamToolOutput]()},
		{"tool_result", reflect.TypeFor[StreamToolResult]()},
		{"message_void", reflect.TypeFor[StreamMessageVoid]()},
		{"message_end", reflect.TypeFor[StreamMessageEnd]()},
		{"done", reflect.TypeFor[StreamDone]()},
		{"bye", reflect.TypeFor[Bye]()},
	}, func(op huma.Operation) { register(s, op, []int{http.StatusNotFound}, s.streamSubmission) })
}

func (s *Server) streamSubmission(ctx context.Context, in *SubmissionPath) (*huma.StreamResponse, error) {
	sub, err := s.engine.Submission(ctx, durable.SubmissionID(in.ID))
	if err != nil {
		return nil, err
	}
	return s.stream(func(ctx context.Context) iter.Seq2[sse.Event, error] {
		return func(yield func(sse.Event, error) bool) {
			n := 0
			for ev, err := range sub.Stream(ctx) {
				var out sse.Event
				if err == nil {
					out, err = s.streamEvent(ctx, &ev)
				}
				n++
				out.ID = strconv.Itoa(n)
				if !yield(out, err) || err != nil {
					return
				}
			}
		}
	}), nil
}

// stream answers with the events of source.
func (s *Server) stream(source func(ctx context.Context) iter.Seq2[sse.Event, error]) *huma.StreamResponse {
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		s.streams.Add(1)
		defer s.streams.Add(-1)
		r, w := humago.Unwrap(hc)
		if err := sse.Serve(w, r, s.streamOptions(), source); err != nil {
			s.problem(err).Write(w, s.opts.Redactor)
		}
	}}
}

// streamEvent converts an event of the engine.
func (s *Server) streamEvent(ctx context.Context, ev *durable.StreamEvent) (sse.Event, error) {
	var data any
	switch ev.Type {
	case durable.StreamStatus, durable.StreamDone:
		view, err := s.submissionView(ctx, ev.Submission)
		if err != nil {
			return sse.Event{}, err
		}
		data = StreamStatus{*view}
	case durable.StreamMessageStart:
		data = StreamMessageStart{ev.Message}
	case durable.StreamText, durable.StreamThinking:
		data = StreamDelta{ev.Message, ev.Delta}
	case durable.StreamToolCall:
		data = StreamToolCall{ev.Message, ev.ToolCallID, ev.Name, ev.Arguments}
	case durable.StreamToolOutput:
		data = StreamToolOutput{ev.ToolCallID, ev.Delta, ev.Reset}
	case durable.StreamToolResult:
		data = StreamToolResult{ev.ToolCallID, ev.IsError, wireBlocks(ev.Content)}
	case durable.StreamMessageVoid:
		data = StreamMessageVoid{ev.Message, ev.Reason}
	case durable.StreamMessageEnd:
		data = StreamMessageEnd{ev.Message, ev.EntryID, string(ev.StopReason)}
	}
	return sse.Event{Name: string(ev.Type), Data: s.encode(data)}, nil
}

// streamEvent is a kind of event of a stream: its name and the type of its
// data.
type streamEvent struct {
	name string
	data reflect.Type
}

// registerStream documents an operation that answers with events and registers
// it.
func (s *Server) registerStream(op huma.Operation, name string, events []streamEvent, add func(huma.Operation)) {
	r := s.api.OpenAPI().Components.Schemas
	choice := &huma.Schema{
		Description:   "One server-sent event: the fields id, event and data of it, data as JSON",
		Discriminator: &huma.Discriminator{PropertyName: "event", Mapping: map[string]string{}},
	}
	for _, ev := range events {
		member := named(r, name+camel(ev.name), &huma.Schema{
			Type: huma.TypeObject,
			Properties: map[string]*huma.Schema{
				"id":    {Type: huma.TypeString},
				"event": {Type: huma.TypeString, Enum: []any{ev.name}},
				"data":  r.Schema(ev.data, true, ev.data.Name()),
			},
			Required: []string{"event", "data"},
		})
		choice.OneOf = append(choice.OneOf, member)
		choice.Discriminator.Mapping[ev.name] = member.Ref
	}
	op.Responses = map[string]*huma.Response{"200": {
		Description: "A stream of events",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: named(r, name, choice)}},
	}}
	add(op)
}

// camel turns message_start into MessageStart.
func camel(name string) string {
	out := make([]byte, 0, len(name))
	upper := true
	for i := range len(name) {
		c := name[i]
		if c == '_' {
			upper = true
			continue
		}
		if upper && c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		upper = false
		out = append(out, c)
	}
	return string(out)
}
