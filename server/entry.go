package server

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server/internal/web"
)

// Entry is one immutable record of a transcript.
type Entry struct {
	ID             durable.EntryID        `json:"id"`
	ConversationID durable.ConversationID `json:"conversationId" doc:"Where it was written; in a fork possibly the parent"`
	Kind           string                 `json:"kind" example:"pi.user"`
	CreatedAt      *time.Time             `json:"createdAt,omitempty" doc:"The time of its message; absent without one"`
	Model          []Message              `json:"model,omitempty" doc:"What the model sees of it"`
	Data           json.RawMessage        `json:"data,omitempty"`
	Head           durable.EntryID        `json:"head,omitempty" doc:"The model sees this entry, then those from head on"`
	Edits          []Edit                 `json:"edits,omitempty" doc:"Changes of what the model sees of earlier entries"`
	ByTaskID       durable.TaskID         `json:"byTaskId,omitempty" doc:"The task that wrote it"`
}

// Edit changes what the model sees of one earlier entry.
type Edit struct {
	Target   durable.EntryID `json:"target"`
	Action   string          `json:"action" enum:"omit,replace"`
	Messages []Message       `json:"messages,omitempty"`
}

// EntryPage is a page of a transcript.
type EntryPage struct {
	Items []Entry `json:"items"`
	Next  string  `json:"next,omitempty" doc:"Cursor of the next page; absent at the end"`
}

// Context is what the model would see now.
type Context struct {
	Messages []Message `json:"messages"`
}

type (
	listEntriesInput struct {
		ConversationPath
		PageParams
		Order string `query:"order" enum:"asc,desc" default:"asc"`
		After int64  `query:"after" minimum:"0" doc:"Only entries with a greater id, for followers"`
	}
	entryPageOutput struct{ Body EntryPage }
	contextOutput   struct{ Body Context }
)

func (s *Server) entryRoutes() {
	register(s, huma.Operation{
		OperationID: "listEntries", Method: http.MethodGet, Path: "/v1/conversations/{id}/entries", Tags: []string{tagConversations},
		Summary: "List the stored history", Description: "With the part that a fork shares with its parent.",
	}, []int{http.StatusNotFound}, s.listEntries)
	register(s, huma.Operation{
		OperationID: "getContext", Method: http.MethodGet, Path: "/v1/conversations/{id}/context", Tags: []string{tagConversations},
		Summary: "What the model would see now",
	}, []int{http.StatusNotFound}, s.getContext)
}

// list says which list of entries is asked for.
func (in *listEntriesInput) list() string {
	return fmt.Sprintf("e.%d.%s.%d", in.ID, in.Order, in.After)
}

func (s *Server) listEntries(ctx context.Context, in *listEntriesInput) (*entryPageOutput, error) {
	c, err := s.engine.Conversation(ctx, durable.ConversationID(in.ID))
	if err != nil {
		return nil, err
	}
	none := &entryPageOutput{EntryPage{Items: []Entry{}}}
	if in.After == math.MaxInt64 {
		return none, nil
	}
	q := durable.EntryQuery{From: durable.EntryID(in.After) + 1, Limit: in.Limit + 1, Descending: in.Order == "desc"}
	if in.Cursor != "" {
		var last int64
		if err := decodeCursor(in.Cursor, in.list(), &last); err != nil {
			return nil, err
		}
		switch {
		case last < 1:
			return nil, web.Invalid("query.cursor", "this is not a cursor of this list")
		case last == math.MaxInt64, q.Descending && last == 1:
			return none, nil
		case q.Descending:
			q.To = durable.EntryID(last - 1)
		default:
			q.From = max(q.From, durable.EntryID(last+1))
		}
	}
	entries, err := c.Entries(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &entryPageOutput{EntryPage{Items: []Entry{}}}
	if len(entries) > in.Limit {
		entries = entries[:in.Limit]
		out.Body.Next = encodeCursor(in.list(), int64(entries[in.Limit-1].ID))
	}
	for i := range entries {
		out.Body.Items = append(out.Body.Items, wireEntry(&entries[i]))
	}
	return out, nil
}

func (s *Server) getContext(ctx context.Context, in *ConversationPath) (*contextOutput, error) {
	c, err := s.engine.Conversation(ctx, durable.ConversationID(in.ID))
	if err != nil {
		return nil, err
	}
	messages, err := c.Context(ctx)
	if err != nil {
		return nil, err
	}
	return &contextOutput{Context{wireMessages(messages)}}, nil
}

func wireEntry(e *durable.Entry) Entry {
	out := Entry{
		ID: e.ID, ConversationID: e.ConversationID, Kind: e.Kind, Data: e.Data, Head: e.Head, ByTaskID: e.ByTaskID,
	}
	if len(e.Model) > 0 {
		out.Model = wireMessages(e.Model)
		if at := e.Model[0].Timestamp; !at.IsZero() {
			out.CreatedAt = &at
		}
	}
	for _, edit := range e.Edits {
		w := Edit{Target: edit.Target, Action: string(edit.Action)}
		if len(edit.Messages) > 0 {
			w.Messages = wireMessages(edit.Messages)
		}
		out.Edits = append(out.Edits, w)
	}
	return out
}
