package server

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/server/internal/sse"
	"github.com/wp-durable/wp-durable/server/internal/web"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

// Limits bound what the server does (S7).
type Limits = config.Limits

// DefaultLimits returns the limits of a server that is told nothing.
func DefaultLimits() Limits { return config.DefaultLimits() }

// Options configure a [Server]. Every zero field but Token has the default it
// names.
type Options struct {
	// Token is the bearer token of every /v1 route. It is required.
	Token string
	// Version of the program. Default: "dev".
	Version string
	// Models are what the engine was opened with. Default: none.
	Models *model.Set
	// Agent is the host's default agent that the engine was opened with.
	Agent durable.Agent
	// Limits; the zero value means the defaults.
	Limits Limits

	// Addr is the address the server listens on, Hosts further names of it,
	// Origins the web pages that may call it, and PublicHost the host of its
	// public URL (S2).
	Addr       string
	Hosts      []string
	Origins    []string
	PublicHost string

	// Isolation says what isolates commands. Default: they are off.
	Isolation func() Isolation
	// Environment says what the environment of a conversation is, nil for
	// none. Default: none has one.
	Environment func(ctx context.Context, c *durable.Conversation) (*Environment, error)
	// OwnsCwd reports whether some environment has a folder, so that an agent
	// may name it as its cwd. Default: none has.
	OwnsCwd func(ctx context.Context, cwd string) (bool, error)
	// Extensions returns what the extensions say of themselves, by name.
	Extensions func() map[string]any

	// Key, when not empty, lets clients that know it make sure whom they talk
	// to before they send the token: see [Proof].
	Key []byte

	// Faux, when not nil, adds the routes that script it. For tests.
	Faux *faux.Provider

	// Redactor masks secrets in every body. Default: none are known.
	Redactor *secrets.Redactor
	// Logger receives what no client is told. Default: slog.Default.
	Logger *slog.Logger
}

// Server is the HTTP handler. Its methods may be called concurrently.
type Server struct {
	engine  *durable.Engine
	opts    Options
	log     *slog.Logger
	api     *web.API
	handler http.Handler
	doc     *web.Document
	started time.Time

	closing context.Context // ends with Shutdown
	close   context.CancelCauseFunc
	streams atomic.Int64 // open now
	waits   atomic.Int64 // long polls held now
}

// New returns a server over an engine.
func New(engine *durable.Engine, opts *Options) (*Server, error) {
	var o Options
	if opts != nil {
		o = *opts
	}
	if o.Token == "" {
		return nil, fmt.Errorf("options: Token is empty: %w", durable.ErrInvalid)
	}
	o.Version = cmp.Or(o.Version, "dev")
	if o.Models == nil {
		o.Models = &model.Set{}
	}
	if o.Limits == (Limits{}) {
		o.Limits = DefaultLimits()
	}
	if o.Isolation == nil {
		o.Isolation = func() Isolation { return Isolation{State: IsolationOff, Reason: "the program offers no commands"} }
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	s := &Server{engine: engine, opts: o, log: o.Logger, started: time.Now()}
	s.closing, s.close = context.WithCancelCause(context.Background())
	mux := http.NewServeMux()
	s.api = web.NewAPI(mux, &web.APIOptions{
		Title: "wp-durable", Version: apiVersion, Description: apiDescription,
		MaxBody: o.Limits.BodyBytes, Redactor: o.Redactor,
	})
	s.routes()
	doc, err := s.api.Document()
	if err != nil {
		return nil, fmt.Errorf("render the OpenAPI document: %w", err)
	}
	s.doc = doc
	s.documentRoutes(mux)
	if o.Faux != nil {
		s.fauxRoutes()
	}
	s.handler = s.chain(mux)
	return s, nil
}

// chain puts the conventions in front of the routes.
func (s *Server) chain(mux *http.ServeMux) http.Handler {
	redact := s.opts.Redactor
	h := web.Routes(mux, s.opts.Limits.BodyBytes, redact)
	h = web.Auth(h, s.opts.Token, redact)
	h = s.refuseWhenClosing(h)
	guard := web.NewGuard(web.GuardOptions{
		Bound: s.opts.Addr, Hosts: s.opts.Hosts, Origins: s.opts.Origins, PublicHost: s.opts.PublicHost,
	})
	h = guard.Handler(h, redact, "/healthz")
	return web.Recover(web.Target(h, redact), s.log, redact)
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

// Shutdown makes streams end with bye and long polls answer at once; requests
// that come later, and those whose body is still being sent, are told to come
// back (S1.4, S1.5). It does not wait for requests under way. The engine may be
// closed at the same time, the store must stay open until they have ended.
func (s *Server) Shutdown() { s.close(errClosing) }

func (s *Server) refuseWhenClosing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.closing.Err() != nil && r.URL.Path != healthPath {
			w.Header().Set("Connection", "close")
			web.NewProblem(http.StatusServiceUnavailable, "", errClosing.Error()).Write(w, s.opts.Redactor)
			return
		}
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = &closingBody{ReadCloser: r.Body, w: w, closing: s.closing}
		}
		next.ServeHTTP(w, r)
	})
}

// closingBody is a request's body that ends with [web.ErrClosing] when the
// server stops.
type closingBody struct {
	io.ReadCloser
	w       http.ResponseWriter
	closing context.Context
}

// Read reads. Only while it does may the connection's deadline expire: later
// that would look as if the client had gone.
func (b *closingBody) Read(p []byte) (n int, err error) {
	stop := context.AfterFunc(b.closing, func() {
		// A writer without deadlines, as tests have, waits for the client.
		_ = http.NewResponseController(b.w).SetReadDeadline(time.Unix(1, 0))
	})
	if b.closing.Err() == nil {
		n, err = b.ReadCloser.Read(p)
	}
	if !stop() {
		b.w.Header().Set("Connection", "close")
		b.w.Header().Set("Retry-After", web.RetryAfter)
		return 0, errClosing
	}
	return n, err
}

// untilClosing returns a context that also ends when the server stops.
func (s *Server) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(errClosing) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// register adds an operation whose errors are translated by [Server.problem].
// problems are the statuses it may answer beside those of every operation.
func register[I, O any](s *Server, op huma.Operation, problems []int, handler func(ctx context.Context, in *I) (*O, error)) {
	huma.Register(s.api, s.api.Operation(op, problems...), func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, s.problem(err)
		}
		return out, nil
	})
}

// alsoAnswers documents a further status with the body of the operation's
// first one.
func alsoAnswers(op huma.Operation, status int, description string, schema *huma.Schema) huma.Operation {
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	op.Responses[fmt.Sprint(status)] = &huma.Response{
		Description: description, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}},
	}
	return op
}

// streamOptions are how every stream is served.
func (s *Server) streamOptions() sse.Options {
	return sse.Options{
		Heartbeat: time.Duration(s.opts.Limits.HeartbeatMS) * time.Millisecond,
		Closing:   s.closing.Done(),
		Cut:       func(err error) { s.log.Error("stream was cut off", "error", err) },
		Bye:       &sse.Event{Name: "bye", Data: s.encode(Bye{RetryMS: retryMS})},
	}
}

// retryMS is how long a client of an ended stream waits before it comes back.
const retryMS = 1000

// encode returns v as JSON without secrets. It panics when v cannot be encoded.
func (s *Server) encode(v any) []byte {
	b, err := web.Marshal(v, s.opts.Redactor)
	if err != nil {
		panic(fmt.Errorf("encode %T: %w", v, err))
	}
	return b
}

// The tags of operations.
const (
	tagConversations = "Conversations"
	tagSubmissions   = "Submissions"
	tagServer        = "Server"
)

// apiVersion is the version of the document, not of the program.
const apiVersion = "1.0"

const apiDescription = `Agents whose work survives anything.

A conversation is a transcript. A submission hands something to it: an input for the model, or a write. Every submission is answered or ends with a reason, whatever crashes, and the same requestId never admits it twice.

Errors are problem details (RFC 9457) with an error message and a code. Lists are paged: pass next as cursor. Streams are server-sent events.`

// routes registers every route of the document.
func (s *Server) routes() {
	s.api.OpenAPI().Tags = []*huma.Tag{
		{Name: tagConversations, Description: "Transcripts and what they run with"},
		{Name: tagSubmissions, Description: "What was handed to conversations, and the answers"},
		{Name: tagServer, Description: "The server itself"},
	}
	s.conversationRoutes()
	s.entryRoutes()
	s.eventRoutes()
	s.submitRoutes()
	s.submissionRoutes()
	s.streamRoutes()
	s.abortRoutes()
	s.statusRoutes()
	s.catalogRoutes()
	s.usageRoutes()
}

// Document is the OpenAPI document in its renderings.
type Document = web.Document

// OpenAPI returns the document of every server, without one.
func OpenAPI() (*Document, error) {
	s, err := New(nil, &Options{Token: "unused"})
	if err != nil {
		return nil, err
	}
	return s.doc, nil
}

func (s *Server) documentRoutes(mux *http.ServeMux) {
	for path, doc := range map[string]struct {
		mediaType string
		body      []byte
	}{
		"/openapi.json":     {"application/json", s.doc.JSON},
		"/openapi.yaml":     {"application/yaml", s.doc.YAML},
		"/openapi-3.0.json": {"application/json", s.doc.JSON30},
		"/openapi-3.0.yaml": {"application/yaml", s.doc.YAML30},
	} {
		mux.HandleFunc("GET "+path, s.api.NoQuery(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", doc.mediaType)
			_, _ = w.Write(doc.body)
		}))
	}
}
