package server

import (
	"context"
	"net/http"
	"reflect"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
)

// Abort is the body that aborts a conversation's work.
type Abort struct {
	Background bool `json:"background,omitempty" doc:"Background work too"`
}

// AbortResult is what an abort did.
type AbortResult struct {
	Busy      bool                   `json:"busy" doc:"Work still ends"`
	Withdrawn []durable.SubmissionID `json:"withdrawn" doc:"Queued inputs that it took back"`
}

type (
	abortInput struct {
		ConversationPath
		Body *Abort
	}
	abortOutput struct {
		Status int
		Body   AbortResult
	}
)

func (s *Server) abortRoutes() {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[AbortResult](), true, "AbortResult")
	register(s, alsoAnswers(huma.Operation{
		OperationID: "abortConversation", Method: http.MethodPost, Path: "/v1/conversations/{id}/abort", Tags: []string{tagConversations},
		Summary:     "Abort a conversation's work",
		Description: "Running work ends, inputs that wait are taken back. Answers when the conversation is idle, or 202 when work still ends after the limit waitMs.",
	}, http.StatusAccepted, "Work still ends", schema), []int{http.StatusNotFound}, s.abort)
}

func (s *Server) abort(ctx context.Context, in *abortInput) (*abortOutput, error) {
	c, err := s.engine.Conversation(ctx, durable.ConversationID(in.ID))
	if err != nil {
		return nil, err
	}
	s.waits.Add(1)
	defer s.waits.Add(-1)
	ctx, cancel := s.untilClosing(ctx)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, time.Duration(s.opts.Limits.WaitMS)*time.Millisecond)
	defer stop()
	res, err := c.Abort(ctx, &durable.AbortParams{Background: in.Body != nil && in.Body.Background})
	if res == nil {
		return nil, err
	}
	// With a result, an error only says that the wait was cut short.
	out := &abortOutput{Status: http.StatusOK, Body: AbortResult{Busy: res.Busy, Withdrawn: res.Withdrawn}}
	if out.Body.Withdrawn == nil {
		out.Body.Withdrawn = []durable.SubmissionID{}
	}
	if res.Busy {
		out.Status = http.StatusAccepted
	}
	return out, nil
}
