package faux

import (
	"maps"
	"slices"

	"github.com/wp-durable/wp-durable/durable/model"
)

// View is a request as the model would have seen it, in the JSON of S9.
type View struct {
	Model    model.Ref       `json:"model"`
	System   string          `json:"system"`   // the folded system prompt
	Messages []model.Message `json:"messages"` // without system messages
	Tools    []model.Tool    `json:"tools"`
	Options  ViewOptions     `json:"options"`
}

// ViewOptions are the settings of a [View].
type ViewOptions struct {
	ThinkingLevel   model.ThinkingLevel `json:"thinkingLevel,omitempty"`
	MaxOutputTokens int                 `json:"maxOutputTokens"`
	SessionID       string              `json:"sessionId,omitempty"`
	DropThinking    bool                `json:"dropThinking,omitempty"`
}

// NewView returns the view of a request. It shares memory with the request.
func NewView(req *model.Request) View {
	sys, rest := model.FoldSystem(req.Messages)
	tools := sys.Tools
	if tools == nil {
		tools = []model.Tool{}
	}
	return View{
		Model:  model.Ref{Provider: req.Model.Provider, ModelID: req.Model.ID},
		System: sys.Prompt(), Messages: rest, Tools: tools,
		Options: ViewOptions{
			ThinkingLevel: req.ThinkingLevel, MaxOutputTokens: req.MaxOutputTokens,
			SessionID: req.SessionID, DropThinking: req.DropThinking,
		},
	}
}

func clone(req *model.Request) *model.Request {
	r := *req
	r.Messages = make([]model.Message, len(req.Messages))
	for i := range req.Messages {
		r.Messages[i] = req.Messages[i].Clone()
	}
	r.Model.ThinkingLevels = slices.Clone(req.Model.ThinkingLevels)
	r.Model.Quirks = maps.Clone(req.Model.Quirks)
	if req.Model.Prices != nil {
		prices := *req.Model.Prices
		r.Model.Prices = &prices
	}
	return &r
}
