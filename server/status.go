package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
)

// The states of isolation.
const (
	IsolationOK     = "ok"
	IsolationFailed = "failed"
	IsolationOff    = "off"
)

// Isolation says what keeps commands apart from the server and each other.
type Isolation struct {
	State   string           `json:"state" enum:"ok,failed,off"`
	Level   string           `json:"level,omitempty" doc:"root, bwrap or landlock" example:"bwrap"`
	Reason  string           `json:"reason,omitempty" doc:"Why it is not ok, and what to do"`
	Network bool             `json:"network" doc:"Commands reach the network"`
	Notes   []string         `json:"notes,omitempty" doc:"In which respects the level is weaker than others"`
	Checks  []IsolationCheck `json:"checks" doc:"The promises that the self-test tried"`
}

// IsolationCheck is one promise that the self-test tried.
type IsolationCheck struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"`
}

// Health says whether the server works.
type Health struct {
	OK        bool   `json:"ok"`
	Version   string `json:"version"`
	UptimeMS  int64  `json:"uptimeMs"`
	Isolation string `json:"isolation" enum:"ok,failed,off" doc:"off: there is no isolation here, commands run nowhere or, in a test mode, without it"`
	Tools     int    `json:"tools" doc:"How many tools are on offer now"`
	Store     string `json:"store" enum:"ok,failed"`
}

// Status is what there is to know about the server.
type Status struct {
	Version    string           `json:"version"`
	UptimeMS   int64            `json:"uptimeMs"`
	Store      StoreStatus      `json:"store"`
	Isolation  Isolation        `json:"isolation"`
	Limits     Limits           `json:"limits"`
	Providers  []ProviderStatus `json:"providers"`
	Extensions map[string]any   `json:"extensions" doc:"What each extension says of itself, by name"`
	Counts     StatusCounts     `json:"counts"`
}

// StoreStatus describes the database.
type StoreStatus struct {
	Kind  string `json:"kind" example:"sqlite"`
	Bytes int64  `json:"bytes" doc:"What it takes on disk"`
}

// ProviderStatus is a model provider and whether it has a credential.
type ProviderStatus struct {
	ID         string `json:"id" example:"anthropic"`
	Credential string `json:"credential" enum:"ok,missing" doc:"ok also for providers that need none"`
	Reason     string `json:"reason,omitempty" doc:"Why it cannot be used"`
}

// StatusCounts is what goes on.
type StatusCounts struct {
	Running int   `json:"running" doc:"Conversations with work that is not finished, at most 1000 are counted"`
	Streams int64 `json:"streams" doc:"Open streams"`
	Waits   int64 `json:"waits" doc:"Requests that wait for something to end"`
}

type (
	healthOutput struct {
		Status int
		Body   Health
	}
	statusOutput struct{ Body Status }
)

// storeTimeout is how long the store may take to show that it works.
const storeTimeout = 5 * time.Second

func (s *Server) statusRoutes() {
	register(s, huma.Operation{
		OperationID: "getHealth", Method: http.MethodGet, Path: "/healthz", Tags: []string{tagServer},
		Summary: "Whether the server works", Description: "503 when the store does not answer.",
	}, nil, s.health)
	register(s, huma.Operation{
		OperationID: "getStatus", Method: http.MethodGet, Path: "/v1/status", Tags: []string{tagServer},
		Summary: "What there is to know about the server",
	}, nil, s.status)
}

func (s *Server) health(ctx context.Context, _ *struct{}) (*healthOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	out := &healthOutput{Status: http.StatusOK, Body: Health{
		OK: true, Version: s.opts.Version, UptimeMS: time.Since(s.started).Milliseconds(), Store: "ok",
		Isolation: s.opts.Isolation().State, Tools: len(s.offered().Tools),
	}}
	if _, err := s.engine.Store().LiveTrees(ctx, 0, 1); err != nil {
		s.log.Error("store does not answer", "error", err)
		out.Status, out.Body.OK, out.Body.Store = http.StatusServiceUnavailable, false, "failed"
	}
	return out, nil
}

// offered returns what a conversation that sets nothing is offered.
func (s *Server) offered() durable.Selection {
	registry := s.engine.Registry()
	sel := registry.Select(s.opts.Agent.Extensions.Apply(registry.Names()))
	if filter := s.opts.Agent.Tools; filter != nil {
		var names []string
		for _, t := range sel.Tools {
			names = append(names, t.Name())
		}
		keep := filter.Apply(names)
		sel.Tools = slices.DeleteFunc(sel.Tools, func(t *durable.Tool) bool { return !slices.Contains(keep, t.Name()) })
	}
	return sel
}

func (s *Server) status(ctx context.Context, _ *struct{}) (*statusOutput, error) {
	const most = 1000
	info, err1 := s.engine.Store().Info(ctx)
	live, err2 := s.engine.Store().LiveTrees(ctx, 0, most)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	out := Status{
		Version: s.opts.Version, UptimeMS: time.Since(s.started).Milliseconds(), Store: StoreStatus(info),
		Isolation: s.opts.Isolation(), Limits: s.opts.Limits, Providers: s.providers(), Extensions: map[string]any{},
		Counts: StatusCounts{Running: len(live), Streams: s.streams.Load(), Waits: s.waits.Load()},
	}
	if out.Isolation.Checks == nil {
		out.Isolation.Checks = []IsolationCheck{}
	}
	for _, name := range s.engine.Registry().Names() {
		out.Extensions[name] = map[string]any{}
	}
	if s.opts.Extensions != nil {
		maps.Copy(out.Extensions, s.opts.Extensions())
	}
	return &statusOutput{out}, nil
}

// providers returns the providers of the models, by id.
func (s *Server) providers() []ProviderStatus {
	out := []ProviderStatus{}
	seen := map[string]bool{}
	for _, info := range s.opts.Models.Models() {
		if seen[info.Provider] {
			continue
		}
		seen[info.Provider] = true
		p := ProviderStatus{ID: info.Provider, Credential: "ok"}
		if err := s.unavailable(info.Provider); err != nil {
			p.Reason = err.Error()
			if errors.Is(err, model.ErrMissingCredential) {
				p.Credential = "missing"
			}
		}
		out = append(out, p)
	}
	return out
}

// unavailable returns why a provider cannot be used, nil when it can.
func (s *Server) unavailable(provider string) error {
	p, ok := s.opts.Models.Provider(provider)
	if !ok {
		return model.ErrUnknownModel
	}
	if a, ok := p.(model.Availability); ok {
		return a.Available()
	}
	return nil
}
