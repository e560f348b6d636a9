package server

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/server/internal/web"
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
	Store     string `json:"store" enum:"ok,failed,closing" doc:"closing: the server is stopping"`
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
	healthInput struct {
		Challenge string `header:"Wp-Durable-Challenge" hidden:"true" maxLength:"200"`
	}
	healthOutput struct {
		Status     int
		RetryAfter string `header:"Retry-After" hidden:"true"`
		Proof      string `header:"Wp-Durable-Proof" hidden:"true"`
		Body       Health
	}
	statusOutput struct{ Body Status }
)

// storeTimeout is how long the store may take to show that it works.
const storeTimeout = 5 * time.Second

const healthPath = "/healthz"

func (s *Server) statusRoutes() {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Health](), true, "Health")
	op := alsoAnswers(huma.Operation{
		OperationID: "getHealth", Method: http.MethodGet, Path: healthPath, Tags: []string{tagServer},
		Summary: "Whether the server works", Description: "503 when the store does not answer, and while the server stops.",
	}, http.StatusServiceUnavailable, "It does not work now", schema)
	op.Responses[fmt.Sprint(http.StatusServiceUnavailable)].Headers = web.RetryAfterHeader()
	register(s, op, nil, s.health)
	register(s, huma.Operation{
		OperationID: "getStatus", Method: http.MethodGet, Path: "/v1/status", Tags: []string{tagServer},
		Summary: "What there is to know about the server",
	}, nil, s.status)
}

// Proof is what a server with this [Options].Key answers to a request for
// /healthz in the header Wp-Durable-Proof, when the header
// Wp-Durable-Challenge holds challenge.
func Proof(key []byte, challenge string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("wp-durable server\n" + challenge))
	return hex.EncodeToString(mac.Sum(nil))
}

func (s *Server) health(ctx context.Context, in *healthInput) (*healthOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	out := &healthOutput{Status: http.StatusOK, Body: Health{
		OK: true, Version: s.opts.Version, UptimeMS: time.Since(s.started).Milliseconds(), Store: "ok",
		Isolation: s.opts.Isolation().State, Tools: len(s.offered().Tools),
	}}
	if in.Challenge != "" && len(s.opts.Key) > 0 {
		out.Proof = Proof(s.opts.Key, in.Challenge)
	}
	if s.closing.Err() != nil {
		out.Body.Store = "closing"
	} else if _, err := s.engine.Store().LiveTrees(ctx, 0, 1); err != nil {
		s.log.Error("store does not answer", "error", err)
		out.Body.Store = "failed"
	}
	if out.Body.Store != "ok" {
		out.Status, out.Body.OK, out.RetryAfter = http.StatusServiceUnavailable, false, web.RetryAfter
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
