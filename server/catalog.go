package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Tool is a tool that is on offer.
type Tool struct {
	Name        string          `json:"name" example:"bash"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description" doc:"For the model"`
	Parameters  json.RawMessage `json:"parameters" doc:"JSON schema of the arguments"`
	Replay      string          `json:"replay" enum:"never,safe" doc:"Whether a call that was cut off may run again"`
	Extension   string          `json:"extension" example:"tools"`
}

// ToolList is what tools are on offer to conversations that set nothing.
type ToolList struct {
	Items []Tool `json:"items"`
}

// Model describes a model and whether it can be used.
type Model struct {
	Provider       string          `json:"provider" example:"anthropic"`
	ID             string          `json:"id" example:"claude-opus-5-5"`
	Name           string          `json:"name,omitempty"`
	Available      bool            `json:"available"`
	Reason         string          `json:"reason,omitempty" doc:"Why it is not available"`
	Default        bool            `json:"default,omitempty" doc:"Conversations that name none use it"`
	ContextWindow  int             `json:"contextWindow,omitempty" doc:"Tokens; absent when unknown"`
	MaxOutput      int             `json:"maxOutput,omitempty" doc:"Tokens; absent when unknown"`
	Prices         *Prices         `json:"prices,omitempty" doc:"Absent when unknown"`
	ThinkingLevels []ThinkingLevel `json:"thinkingLevels" doc:"Levels it knows beside off"`
	Images         bool            `json:"images" doc:"Takes images"`
}

// Prices are US dollars per million tokens.
type Prices struct {
	Input      float64    `json:"input"`
	Output     float64    `json:"output"`
	CacheRead  float64    `json:"cacheRead"`
	CacheWrite float64    `json:"cacheWrite"`
	Long       *LongPrice `json:"long,omitempty" doc:"Of whole requests with a long prompt"`
}

// LongPrice are the prices of requests whose prompt is longer than above.
type LongPrice struct {
	Above      int64   `json:"above" doc:"Tokens"`
	Input      float64 `json:"input"`
	Output     float64 `json:"output"`
	CacheRead  float64 `json:"cacheRead"`
	CacheWrite float64 `json:"cacheWrite"`
}

// ModelList is what models the server knows.
type ModelList struct {
	Items []Model `json:"items"`
}

type (
	toolListOutput  struct{ Body ToolList }
	modelListOutput struct{ Body ModelList }
)

func (s *Server) catalogRoutes() {
	register(s, huma.Operation{
		OperationID: "listTools", Method: http.MethodGet, Path: "/v1/tools", Tags: []string{tagServer},
		Summary: "List the tools on offer",
	}, nil, s.listTools)
	register(s, huma.Operation{
		OperationID: "listModels", Method: http.MethodGet, Path: "/v1/models", Tags: []string{tagServer},
		Summary: "List the models",
	}, nil, s.listModels)
}

func (s *Server) listTools(context.Context, *struct{}) (*toolListOutput, error) {
	sel := s.offered()
	out := &toolListOutput{ToolList{Items: []Tool{}}}
	for _, t := range sel.Tools {
		spec := t.Spec()
		out.Body.Items = append(out.Body.Items, Tool{
			Name: spec.Name, Title: spec.Title, Description: spec.Description, Parameters: spec.Parameters,
			Replay: string(spec.Replay), Extension: sel.ToolExtension(spec.Name),
		})
	}
	return out, nil
}

func (s *Server) listModels(context.Context, *struct{}) (*modelListOutput, error) {
	out := &modelListOutput{ModelList{Items: []Model{}}}
	for _, info := range s.opts.Models.Models() {
		out.Body.Items = append(out.Body.Items, s.wireModel(&info))
	}
	return out, nil
}

func (s *Server) wireModel(info *model.Info) Model {
	m := Model{
		Provider: info.Provider, ID: info.ID, Name: info.Name, Available: true,
		ContextWindow: info.ContextWindow, MaxOutput: info.MaxOutput, Images: info.Images, ThinkingLevels: []ThinkingLevel{},
	}
	if ref := s.opts.Agent.Model; ref != nil {
		m.Default = *ref == model.Ref{Provider: info.Provider, ModelID: info.ID}
	}
	if err := s.unavailable(info.Provider); err != nil {
		m.Available, m.Reason = false, err.Error()
	}
	for _, l := range info.ThinkingLevels {
		m.ThinkingLevels = append(m.ThinkingLevels, ThinkingLevel(l))
	}
	if p := info.Prices; p != nil {
		m.Prices = &Prices{Input: p.Input, Output: p.Output, CacheRead: p.CacheRead, CacheWrite: p.CacheWrite}
		if l := p.Long; l != nil {
			m.Prices.Long = &LongPrice{p.LongAbove, l.Input, l.Output, l.CacheRead, l.CacheWrite}
		}
	}
	return m
}
