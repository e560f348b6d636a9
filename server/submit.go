package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/server/internal/web"
)

// SubmitLimits bound one submission.
type SubmitLimits struct {
	OutputTokens int64 `json:"outputTokens,omitempty" minimum:"1" maximum:"2147483647" doc:"Output limit of each answer of its run"`
}

// Submit is the body that hands an input or a write to a conversation. Fields
// it does not have are ignored.
type Submit struct {
	_         struct{}        `additionalProperties:"true"`
	RequestID string          `json:"requestId" minLength:"1" maxLength:"256" doc:"Admits it once, for ever: the same id again finds the first submission" example:"b2f4c1d0"`
	Type      string          `json:"type,omitempty" enum:"input,write" default:"input" doc:"input goes to the model, write adds an entry"`
	Content   *Content        `json:"content,omitempty" doc:"Of an input"`
	Entry     *EntryWrite     `json:"entry,omitempty" doc:"Of a write"`
	WhenBusy  string          `json:"whenBusy,omitempty" enum:"followUp,steer,reject" default:"followUp" doc:"What an input does while a run goes on: wait for its end, join it, or be refused"`
	Limits    *SubmitLimits   `json:"limits,omitempty"`
	Callback  json.RawMessage `json:"callback,omitempty" hidden:"true"`
}

// UnmarshalJSON ignores fields that are not exactly its own.
func (b *Submit) UnmarshalJSON(data []byte) error {
	type plain Submit
	return exactly(data, (*plain)(b))
}

// EntryWrite is an entry to be written.
type EntryWrite struct {
	Kind  string          `json:"kind" minLength:"1" maxLength:"100" doc:"Kinds that start with pi. are the engine's" example:"app.note"`
	Model []InputMessage  `json:"model,omitempty" doc:"What the model sees of it"`
	Data  json.RawMessage `json:"data,omitempty"`
	Head  int64           `json:"head,omitempty" minimum:"1" doc:"Make the model see this entry, then those from head on"`
	Edits []EditWrite     `json:"edits,omitempty" doc:"Changes of what the model sees of earlier entries"`
}

// EditWrite is a change of what the model sees of one earlier entry.
type EditWrite struct {
	Target   int64          `json:"target" minimum:"1"`
	Action   string         `json:"action" enum:"omit,replace"`
	Messages []InputMessage `json:"messages,omitempty"`
}

// SubmitAnywhere is the body that hands an input to a conversation, which is
// created when none is named. Fields it does not have are ignored.
type SubmitAnywhere struct {
	_              struct{}        `additionalProperties:"true"`
	ConversationID int64           `json:"conversationId,omitempty" minimum:"1" doc:"Absent: create one, or find the one that the same requestId created"`
	RequestID      string          `json:"requestId" minLength:"1" maxLength:"256" doc:"Admits it once, for ever: the same id again finds conversation and submission" example:"b2f4c1d0"`
	Content        Content         `json:"content"`
	WhenBusy       string          `json:"whenBusy,omitempty" enum:"followUp,steer,reject" default:"followUp"`
	Limits         *SubmitLimits   `json:"limits,omitempty"`
	Title          string          `json:"title,omitempty" maxLength:"500" doc:"Of a new conversation"`
	Agent          *AgentChange    `json:"agent,omitempty" doc:"Of a new conversation"`
	Type           string          `json:"type,omitempty" enum:"input" hidden:"true"`
	Callback       json.RawMessage `json:"callback,omitempty" hidden:"true"`
}

// UnmarshalJSON ignores fields that are not exactly its own.
func (b *SubmitAnywhere) UnmarshalJSON(data []byte) error {
	type plain SubmitAnywhere
	return exactly(data, (*plain)(b))
}

type (
	submitInput struct {
		ConversationPath
		Body Submit
	}
	submitAnywhereInput struct{ Body SubmitAnywhere }
	submitOutput        struct {
		Status int
		Body   Submission
	}
)

// claimScope is where requestIds that create conversations are unique.
const claimScope = "server.submit"

func (s *Server) submitRoutes() {
	known := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Submission](), true, "Submission")
	register(s, alsoAnswers(huma.Operation{
		OperationID: "submit", Method: http.MethodPost, Path: "/v1/conversations/{id}/submit", Tags: []string{tagSubmissions},
		Summary: "Hand an input or a write to a conversation", DefaultStatus: http.StatusAccepted,
		Description: "When it answers, the submission is stored and will be settled whatever crashes. Fields it does not know are ignored.",
	}, http.StatusOK, "The requestId was known: the first submission", known),
		[]int{http.StatusNotFound, http.StatusConflict}, s.submit)
	register(s, alsoAnswers(huma.Operation{
		OperationID: "submitAnywhere", Method: http.MethodPost, Path: "/v1/submit", Tags: []string{tagSubmissions},
		Summary: "Hand an input to a conversation, a new one when none is named", DefaultStatus: http.StatusAccepted,
		Description: "The same requestId finds conversation and submission again. Fields it does not know are ignored.",
	}, http.StatusOK, "The requestId was known: the first submission", known),
		[]int{http.StatusNotFound, http.StatusConflict}, s.submitAnywhere)
}

// checkAdmission refuses a requestId that not every store can keep, and a
// callback: it says that there are none, rather than to ignore the wish.
func checkAdmission(requestID string, callback json.RawMessage) error {
	if strings.ContainsRune(requestID, 0) {
		return web.Invalid("body.requestId", "it holds a NUL character")
	}
	if len(callback) > 0 {
		return web.Invalid("body.callback", "callbacks are not supported yet")
	}
	return nil
}

func (l *SubmitLimits) outputTokens() int {
	if l == nil {
		return 0
	}
	return int(l.OutputTokens)
}

func (s *Server) submit(ctx context.Context, in *submitInput) (*submitOutput, error) {
	b := &in.Body
	if err := checkAdmission(b.RequestID, b.Callback); err != nil {
		return nil, err
	}
	c, err := s.engine.Conversation(ctx, durable.ConversationID(in.ID))
	if err != nil {
		return nil, err
	}
	p := &durable.SubmitParams{
		RequestID: b.RequestID, Type: durable.SubmissionType(b.Type), WhenBusy: durable.WhenBusy(b.WhenBusy),
		OutputTokens: b.Limits.outputTokens(),
	}
	if p.Type == durable.SubmissionWrite {
		if b.Entry == nil || b.Content != nil {
			return nil, web.Invalid("body.entry", "a write has an entry, and no content")
		}
		if strings.HasPrefix(b.Entry.Kind, "pi.") {
			return nil, web.Invalid("body.entry.kind", "kinds that start with pi. are the engine's")
		}
		p.Entry = b.Entry.spec()
	} else {
		if b.Content == nil || b.Entry != nil {
			return nil, web.Invalid("body.content", "an input has content, and no entry")
		}
		if err := checkContent(*b.Content); err != nil {
			return nil, err
		}
		p.Content = *b.Content
	}
	return s.handOver(ctx, c, p)
}

func (e *EntryWrite) spec() *durable.EntrySpec {
	spec := &durable.EntrySpec{Kind: e.Kind, Data: e.Data, Head: durable.EntryID(e.Head), Model: plainMessages(e.Model)}
	for _, edit := range e.Edits {
		spec.Edits = append(spec.Edits, durable.Edit{
			Target: durable.EntryID(edit.Target), Action: durable.EditAction(edit.Action), Messages: plainMessages(edit.Messages),
		})
	}
	return spec
}

func plainMessages(list []InputMessage) []model.Message {
	var out []model.Message
	for _, m := range list {
		out = append(out, m.Message)
	}
	return out
}

func (s *Server) submitAnywhere(ctx context.Context, in *submitAnywhereInput) (*submitOutput, error) {
	b := &in.Body
	if err := checkAdmission(b.RequestID, b.Callback); err != nil {
		return nil, err
	}
	c, err := s.conversationFor(ctx, b)
	if err != nil {
		return nil, err
	}
	return s.handOver(ctx, c, &durable.SubmitParams{
		RequestID: b.RequestID, Content: b.Content, WhenBusy: durable.WhenBusy(b.WhenBusy), OutputTokens: b.Limits.outputTokens(),
	})
}

// conversationFor returns the conversation that is named, the one that the
// requestId created before, or a new one.
func (s *Server) conversationFor(ctx context.Context, b *SubmitAnywhere) (*durable.Conversation, error) {
	if b.ConversationID != 0 {
		if b.Agent != nil || b.Title != "" {
			return nil, web.Invalid("body.conversationId", "title and agent are for a new conversation")
		}
		return s.engine.Conversation(ctx, durable.ConversationID(b.ConversationID))
	}
	id, err := s.engine.Store().Claimed(ctx, claimScope, b.RequestID)
	if err == nil {
		return s.engine.Conversation(ctx, durable.ConversationID(id))
	}
	if !errors.Is(err, durable.ErrNotFound) {
		return nil, err
	}
	if err := s.checkAgent(ctx, b.Agent); err != nil {
		return nil, err
	}
	agent := b.Agent.change().Apply(durable.Agent{})
	if agent.Model == nil {
		agent.Model = s.opts.Agent.Model
	}
	if err := s.checkCredential(agent.Model); err != nil {
		return nil, err
	}
	if err := checkContent(b.Content); err != nil {
		return nil, err
	}
	c, err := s.newConversation(ctx, b.Title, b.Agent, &durable.Claim{Scope: claimScope, Key: b.RequestID})
	if lost, ok := errors.AsType[*durable.ConflictError](err); ok && lost.Claim != nil {
		return s.engine.Conversation(ctx, durable.ConversationID(lost.Claim.Value))
	}
	return c, err
}

// checkContent refuses what the engine would refuse, before a conversation is
// made for it.
func checkContent(content []model.Block) error {
	said := false
	for i := range content {
		b := &content[i]
		said = said || b.Type != model.BlockText || strings.TrimSpace(b.Text) != ""
		if b.Type == model.BlockImage {
			if err := model.CheckImage(b.MimeType, b.Data); err != nil {
				return web.Invalid(fmt.Sprintf("body.content[%d].data", i), err.Error())
			}
		}
	}
	if !said {
		return web.Invalid("body.content", "content is empty")
	}
	return nil
}

// checkCredential refuses an input whose model has no credential (S3). Other
// reasons why a model cannot be used end the run, where the client sees them.
func (s *Server) checkCredential(ref *model.Ref) error {
	if ref == nil {
		return nil
	}
	if _, _, err := s.opts.Models.Resolve(*ref); errors.Is(err, model.ErrMissingCredential) {
		p := web.NewProblem(http.StatusConflict, web.CodeMissingCredential, err.Error())
		p.Provider = ref.Provider
		return p
	}
	return nil
}

// handOver submits, and answers 200 when the requestId was known.
func (s *Server) handOver(ctx context.Context, c *durable.Conversation, p *durable.SubmitParams) (*submitOutput, error) {
	if p.Type != durable.SubmissionWrite {
		agent, err := c.Agent(ctx)
		if err != nil {
			return nil, err
		}
		if missing := s.checkCredential(agent.Model); missing != nil {
			// What was admitted before is found again all the same.
			if _, err := s.engine.Store().SubmissionByRequest(ctx, c.ID(), p.RequestID); err != nil {
				if errors.Is(err, durable.ErrNotFound) {
					return nil, missing
				}
				return nil, err
			}
		}
	}
	sub, known, err := c.Submit(ctx, p)
	if err != nil {
		return nil, err
	}
	rec, err := sub.Record(ctx)
	if err != nil {
		return nil, err
	}
	view, err := s.submissionView(ctx, &rec)
	if err != nil {
		return nil, err
	}
	out := &submitOutput{Status: http.StatusAccepted, Body: *view}
	if known {
		out.Status = http.StatusOK
	}
	return out, nil
}
