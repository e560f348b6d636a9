package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
)

// Submission is something that was handed to a conversation.
type Submission struct {
	ID             durable.SubmissionID   `json:"id" example:"4100"`
	ConversationID durable.ConversationID `json:"conversationId" example:"4096"`
	RequestID      string                 `json:"requestId,omitempty" example:"b2f4c1d0"`
	Type           string                 `json:"type" enum:"input,write"`
	Status         string                 `json:"status" enum:"queued,placed,done,unanswered" doc:"done and unanswered are final"`
	Reason         string                 `json:"reason,omitempty" doc:"Why it is unanswered: no_model, model_error, aborted, reset, stale, stuck, faulted, or another" example:"model_error"`
	Detail         json.RawMessage        `json:"detail,omitempty" doc:"What the reason adds"`
	EntryID        durable.EntryID        `json:"entryId,omitempty" doc:"The entry it was placed as"`
	AnswerEntryID  durable.EntryID        `json:"answerEntryId,omitempty" doc:"The entry that answered it"`
	Answer         *Answer                `json:"answer,omitempty"`
	Usage          *Usage                 `json:"usage,omitempty" doc:"What the model requests between entry and answer consumed"`
	CreatedAt      time.Time              `json:"createdAt"`
	SettledAt      *time.Time             `json:"settledAt,omitempty"`
	TimedOut       bool                   `json:"timedOut,omitempty" doc:"The wait ended before the submission did"`
}

// Answer is what a submission was answered with.
type Answer struct {
	Text       string `json:"text" example:"There are three files."`
	StopReason string `json:"stopReason" doc:"stop; length when the output limit cut it; providers may have further reasons" example:"stop"`
}

type (
	// SubmissionPath names a submission in a path.
	SubmissionPath struct {
		ID int64 `path:"id" minimum:"1" doc:"Id of the submission" example:"4100"`
	}
	waitInput struct {
		SubmissionPath
		TimeoutMS int64 `query:"timeoutMs" default:"25000" minimum:"0" maximum:"60000" doc:"How long to wait; the server holds it for at most its limit waitMs"`
	}
	withdrawInput struct {
		SubmissionPath
		Body *NoOptions
	}
	submissionOutput struct{ Body Submission }
)

// NoOptions is the empty body of actions that have no options.
type NoOptions struct{}

func (s *Server) submissionRoutes() {
	register(s, huma.Operation{
		OperationID: "getSubmission", Method: http.MethodGet, Path: "/v1/submissions/{id}", Tags: []string{tagSubmissions},
		Summary: "Get a submission",
	}, []int{http.StatusNotFound}, s.getSubmission)
	register(s, huma.Operation{
		OperationID: "waitSubmission", Method: http.MethodGet, Path: "/v1/submissions/{id}/wait", Tags: []string{tagSubmissions},
		Summary: "Wait until a submission has ended", Description: "A long poll. When the time is over first, timedOut is true and the status is that of now: ask again.",
	}, []int{http.StatusNotFound}, s.waitSubmission)
	register(s, huma.Operation{
		OperationID: "withdrawSubmission", Method: http.MethodPost, Path: "/v1/submissions/{id}/withdraw", Tags: []string{tagSubmissions},
		Summary: "Take a queued submission back", Description: "It ends unanswered, aborted.",
	}, []int{http.StatusNotFound, http.StatusConflict}, s.withdrawSubmission)
}

func (s *Server) getSubmission(ctx context.Context, in *SubmissionPath) (*submissionOutput, error) {
	sub, err := s.engine.Submission(ctx, durable.SubmissionID(in.ID))
	if err != nil {
		return nil, err
	}
	rec, err := sub.Record(ctx)
	if err != nil {
		return nil, err
	}
	return s.showSubmission(ctx, &rec, false)
}

func (s *Server) waitSubmission(ctx context.Context, in *waitInput) (*submissionOutput, error) {
	sub, err := s.engine.Submission(ctx, durable.SubmissionID(in.ID))
	if err != nil {
		return nil, err
	}
	s.waits.Add(1)
	defer s.waits.Add(-1)
	timeout := time.Duration(min(in.TimeoutMS, s.opts.Limits.WaitMS)) * time.Millisecond
	waitCtx, cancel := s.untilClosing(ctx)
	defer cancel()
	waitCtx, stop := context.WithTimeout(waitCtx, timeout)
	defer stop()
	rec, err := sub.Wait(waitCtx)
	if err != nil {
		if waitCtx.Err() == nil && !errors.Is(err, durable.ErrClosed) {
			return nil, err
		}
		if rec, err = sub.Record(ctx); err != nil {
			return nil, err
		}
	}
	return s.showSubmission(ctx, &rec, rec.SettledAt == nil)
}

func (s *Server) withdrawSubmission(ctx context.Context, in *withdrawInput) (*submissionOutput, error) {
	sub, err := s.engine.Submission(ctx, durable.SubmissionID(in.ID))
	if err != nil {
		return nil, err
	}
	rec, err := sub.Withdraw(ctx)
	if err != nil {
		return nil, err
	}
	return s.showSubmission(ctx, &rec, false)
}

func (s *Server) showSubmission(ctx context.Context, rec *durable.SubmissionRecord, timedOut bool) (*submissionOutput, error) {
	view, err := s.submissionView(ctx, rec)
	if err != nil {
		return nil, err
	}
	view.TimedOut = timedOut
	return &submissionOutput{*view}, nil
}

// bareSubmission returns what the record itself says.
func bareSubmission(rec *durable.SubmissionRecord) Submission {
	return Submission{
		ID: rec.ID, ConversationID: rec.ConversationID, RequestID: rec.RequestID, Type: string(rec.Type), Status: string(rec.Status),
		Reason: rec.Reason, Detail: rec.Detail, EntryID: rec.EntryID, AnswerEntryID: rec.AnswerEntryID,
		CreatedAt: rec.CreatedAt, SettledAt: rec.SettledAt,
	}
}

// submissionView returns a submission with its answer and usage.
func (s *Server) submissionView(ctx context.Context, rec *durable.SubmissionRecord) (*Submission, error) {
	view := bareSubmission(rec)
	if rec.Type != durable.SubmissionInput || rec.SettledAt == nil || rec.EntryID == 0 {
		return &view, nil
	}
	answer, usage, err := s.runOf(ctx, rec)
	if err != nil {
		return nil, err
	}
	if rec.AnswerEntryID != 0 && answer != nil {
		view.Answer = &Answer{Text: answer.Text(), StopReason: string(rec.StopReason)}
	}
	if !usage.IsZero() {
		u := usageOf(*usage)
		view.Usage = &u
	}
	return &view, nil
}

// runOf reads the messages between a submission and the end of its run: the
// one that answered it, and what they consumed together.
func (s *Server) runOf(ctx context.Context, rec *durable.SubmissionRecord) (answer *model.Message, usage *model.Usage, err error) {
	const page = 200
	usage = &model.Usage{}
	q := durable.EntryQuery{ConversationID: rec.ConversationID, From: rec.EntryID + 1, To: rec.AnswerEntryID, Limit: page}
	for {
		entries, err := s.engine.Store().Entries(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		for i := range entries {
			e := &entries[i]
			if e.Kind != durable.KindAssistant || len(e.Model) == 0 {
				continue
			}
			if e.ByTaskID != rec.TaskID {
				return answer, usage, nil // of the next run
			}
			usage.Add(e.Model[0].Usage)
			if e.ID == rec.AnswerEntryID {
				answer = &e.Model[0]
			}
		}
		if len(entries) < page {
			return answer, usage, nil
		}
		q.From = entries[page-1].ID + 1
	}
}
