package server

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server/internal/web"
)

// title is what people call a conversation.
var title = durable.NewDoc(durable.DocSpec[string]{Kind: "server.title", Scope: durable.ScopeConversation, Fork: durable.ForkCurrent})

// ConversationItem is a conversation in a list.
type ConversationItem struct {
	ID           durable.ConversationID `json:"id" example:"4096"`
	Title        string                 `json:"title,omitempty" example:"Release notes"`
	CreatedAt    time.Time              `json:"createdAt"`
	Busy         bool                   `json:"busy" doc:"Work goes on that is not in the background"`
	UsageSummary UsageSummary           `json:"usageSummary"`
	Parent       *ConversationParent    `json:"parent,omitempty"`
	ForkedFrom   *ConversationFork      `json:"forkedFrom,omitempty"`
}

// Conversation is a conversation with all that is to be said about it.
type Conversation struct {
	ConversationItem
	Agent    Agent                  `json:"agent"`
	Env      *Environment           `json:"env,omitempty" doc:"Where its commands run; absent when there are none"`
	Usage    UsageTotals            `json:"usage"`
	Children []ConversationChild    `json:"children" doc:"Conversations that its tasks own"`
	Inbox    []durable.SubmissionID `json:"inbox" doc:"Submissions that wait, in order"`
	Head     durable.EntryID        `json:"head,omitempty" doc:"The newest entry"`
}

// ConversationParent is the owner of a conversation.
type ConversationParent struct {
	ConversationID durable.ConversationID `json:"conversationId"`
	TaskID         durable.TaskID         `json:"taskId"`
}

// ConversationFork is where a conversation's history comes from.
type ConversationFork struct {
	ConversationID durable.ConversationID `json:"conversationId"`
	At             durable.EntryID        `json:"at" doc:"The last entry they share"`
}

// ConversationChild is a conversation that is owned by another's task.
type ConversationChild struct {
	ConversationID durable.ConversationID `json:"conversationId"`
	TaskID         durable.TaskID         `json:"taskId"`
	UsageSummary   UsageSummary           `json:"usageSummary"`
}

// Environment is where a conversation's commands run.
type Environment struct {
	Kind string `json:"kind" enum:"workdir,bridge"`
	Path string `json:"path,omitempty" doc:"The work folder, as commands see it"`
}

// ConversationPage is a page of conversations.
type ConversationPage struct {
	Items []ConversationItem `json:"items"`
	Next  string             `json:"next,omitempty" doc:"Cursor of the next page; absent at the end"`
}

// CreateConversation is the body that creates a conversation.
type CreateConversation struct {
	Title string       `json:"title,omitempty" maxLength:"500" example:"Release notes"`
	Agent *AgentChange `json:"agent,omitempty" doc:"What differs from the server's defaults"`
}

// UpdateConversation is the body that changes a conversation: fields that are
// given replace, null clears, absent ones stay.
type UpdateConversation struct {
	Title Change[Title] `json:"title,omitzero"`
	Agent *AgentChange  `json:"agent,omitempty" doc:"From the next request to the model on"`
}

// Title is what people call a conversation.
type Title string

// Schema bounds it.
func (Title) Schema(huma.Registry) *huma.Schema {
	most := 500
	return &huma.Schema{Type: huma.TypeString, MaxLength: &most}
}

type (
	// ConversationPath names a conversation in a path.
	ConversationPath struct {
		ID int64 `path:"id" minimum:"1" doc:"Id of the conversation" example:"4096"`
	}
	conversationOutput      struct{ Body Conversation }
	createConversationInput struct{ Body *CreateConversation }
	updateConversationInput struct {
		ConversationPath
		Body UpdateConversation
	}
	listConversationsInput struct {
		PageParams
		Order  string `query:"order" enum:"asc,desc" default:"desc" doc:"By time of creation"`
		Parent int64  `query:"parent" minimum:"1" doc:"Only conversations that tasks of this one own"`
	}
	conversationPageOutput struct{ Body ConversationPage }
)

func (s *Server) conversationRoutes() {
	register(s, huma.Operation{
		OperationID: "createConversation", Method: http.MethodPost, Path: "/v1/conversations", Tags: []string{tagConversations},
		Summary: "Create a conversation", DefaultStatus: http.StatusCreated,
	}, nil, s.createConversation)
	register(s, huma.Operation{
		OperationID: "listConversations", Method: http.MethodGet, Path: "/v1/conversations", Tags: []string{tagConversations},
		Summary: "List conversations",
	}, nil, s.listConversations)
	register(s, huma.Operation{
		OperationID: "getConversation", Method: http.MethodGet, Path: "/v1/conversations/{id}", Tags: []string{tagConversations},
		Summary: "Get a conversation",
	}, []int{http.StatusNotFound}, s.getConversation)
	register(s, huma.Operation{
		OperationID: "updateConversation", Method: http.MethodPatch, Path: "/v1/conversations/{id}", Tags: []string{tagConversations},
		Summary:     "Change a conversation's title or agent",
		Description: "Fields that are given replace, null clears, absent ones stay. The agent changes from the next request to the model on.",
	}, []int{http.StatusNotFound, http.StatusConflict}, s.updateConversation)
}

func (s *Server) createConversation(ctx context.Context, in *createConversationInput) (*conversationOutput, error) {
	var body CreateConversation
	if in.Body != nil {
		body = *in.Body
	}
	c, err := s.newConversation(ctx, body.Title, body.Agent, nil)
	if err != nil {
		return nil, err
	}
	return s.showConversation(ctx, c)
}

// newConversation creates a conversation with a title.
func (s *Server) newConversation(ctx context.Context, name string, agent *AgentChange, claim *durable.Claim) (*durable.Conversation, error) {
	if err := s.checkAgent(ctx, agent); err != nil {
		return nil, err
	}
	return s.engine.NewConversation(ctx, &durable.ConversationParams{
		Agent: agent.change(), Claim: claim,
		Init: func(_ context.Context, tx *durable.Tx, id durable.ConversationID) error {
			if name == "" {
				return nil
			}
			t, err := title.Edit(tx, int64(id))
			if err == nil {
				*t = name
			}
			return err
		},
	})
}

func (s *Server) getConversation(ctx context.Context, in *ConversationPath) (*conversationOutput, error) {
	c, err := s.engine.Conversation(ctx, durable.ConversationID(in.ID))
	if err != nil {
		return nil, err
	}
	return s.showConversation(ctx, c)
}

func (s *Server) updateConversation(ctx context.Context, in *updateConversationInput) (*conversationOutput, error) {
	c, err := s.engine.Conversation(ctx, durable.ConversationID(in.ID))
	if err != nil {
		return nil, err
	}
	if err := s.checkAgent(ctx, in.Body.Agent); err != nil {
		return nil, err
	}
	err = c.Update(ctx, func(ctx context.Context, tx *durable.Tx) error {
		if a := in.Body.Agent; a != nil && a.Cwd.Set {
			// Nothing of the tree is committed meanwhile.
			busy, err := c.Busy(ctx)
			if err != nil {
				return err
			}
			if busy {
				return web.NewProblem(http.StatusConflict, web.CodeBusy, "cwd cannot change while the conversation is busy")
			}
		}
		if change := in.Body.Agent.change(); change != nil {
			if err := tx.ChangeAgent(c.ID(), change); err != nil {
				return err
			}
		}
		if !in.Body.Title.Set {
			return nil
		}
		t, err := title.Edit(tx, int64(c.ID()))
		if err != nil {
			return err
		}
		*t = ""
		if v := in.Body.Title.Value; v != nil {
			*t = string(*v)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return s.showConversation(ctx, c)
}

// list says which list of conversations is asked for.
func (in *listConversationsInput) list() string {
	return fmt.Sprintf("c.%s.%d", in.Order, in.Parent)
}

func (s *Server) listConversations(ctx context.Context, in *listConversationsInput) (*conversationPageOutput, error) {
	var after durable.Cursor
	if in.Cursor != "" {
		var at int64
		if err := decodeCursor(in.Cursor, in.list(), &at, &after.ID); err != nil {
			return nil, err
		}
		if at == math.MaxInt64 || after.ID == math.MaxInt64 {
			return &conversationPageOutput{ConversationPage{Items: []ConversationItem{}}}, nil // nothing comes behind
		}
		after.CreatedAt = time.UnixMilli(at).UTC()
	}
	records, err := s.engine.Conversations(ctx, durable.ConversationQuery{
		Parent: durable.ConversationID(in.Parent), After: after, Limit: in.Limit + 1, Descending: in.Order == "desc",
	})
	if err != nil {
		return nil, err
	}
	out := &conversationPageOutput{ConversationPage{Items: []ConversationItem{}}}
	if len(records) > in.Limit {
		records = records[:in.Limit]
		last := &records[in.Limit-1]
		out.Body.Next = encodeCursor(in.list(), last.CreatedAt.UnixMilli(), int64(last.ID))
	}
	for i := range records {
		item, _, err := s.conversationItem(ctx, &records[i])
		if err != nil {
			return nil, err
		}
		out.Body.Items = append(out.Body.Items, *item)
	}
	return out, nil
}

// conversationItem returns what a list shows, and the usage it was made from.
func (s *Server) conversationItem(ctx context.Context, rec *durable.ConversationRecord) (*ConversationItem, durable.UsageTotals, error) {
	item := &ConversationItem{ID: rec.ID, CreatedAt: rec.CreatedAt}
	if rec.Owner != nil {
		item.Parent = &ConversationParent{rec.Owner.ConversationID, rec.Owner.TaskID}
	}
	if rec.ForkOf != nil {
		item.ForkedFrom = &ConversationFork{rec.ForkOf.ConversationID, rec.ForkOf.At}
	}
	c, err := s.engine.Conversation(ctx, rec.ID)
	if err != nil {
		return nil, durable.UsageTotals{}, err
	}
	name, err1 := title.Get(ctx, s.engine, int64(rec.ID))
	busy, err2 := c.Busy(ctx)
	usage, err3 := c.Usage(ctx)
	item.Title, item.Busy, item.UsageSummary = name, busy, summarise(&usage)
	return item, usage, errors.Join(err1, err2, err3)
}

// maxChildren is how many children a conversation shows; the list with the
// filter parent has all of them.
const maxChildren = 500

func (s *Server) showConversation(ctx context.Context, c *durable.Conversation) (*conversationOutput, error) {
	rec := c.Record()
	item, usage, err := s.conversationItem(ctx, &rec)
	if err != nil {
		return nil, err
	}
	out := Conversation{
		ConversationItem: *item, Usage: wireTotals(usage), Children: []ConversationChild{}, Inbox: []durable.SubmissionID{},
	}
	agent, err := c.Agent(ctx)
	if err != nil {
		return nil, err
	}
	out.Agent = s.wireAgent(agent)
	if s.opts.Environment != nil {
		if out.Env, err = s.opts.Environment(ctx, c); err != nil {
			return nil, err
		}
	}
	inbox, err := c.Inbox(ctx)
	if err != nil {
		return nil, err
	}
	for _, sub := range inbox {
		out.Inbox = append(out.Inbox, sub.ID)
	}
	if out.Head, err = c.Head(ctx); err != nil {
		return nil, err
	}
	children, err := s.engine.Conversations(ctx, durable.ConversationQuery{Parent: c.ID(), Limit: maxChildren})
	if err != nil {
		return nil, err
	}
	for i := range children {
		child := &children[i]
		item, _, err := s.conversationItem(ctx, child)
		if err != nil {
			return nil, err
		}
		out.Children = append(out.Children, ConversationChild{child.ID, child.Owner.TaskID, item.UsageSummary})
	}
	return &conversationOutput{out}, nil
}
