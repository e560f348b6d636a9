package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token  = "the-token-of-tests"
	apiKey = "sk-very-secret-key"
)

// fixture is a server over an engine with a scripted model.
type fixture struct {
	t      *testing.T
	srv    *httptest.Server
	server *server.Server
	engine *durable.Engine
	store  durable.Store
	faux   *faux.Provider
	client *http.Client
}

// fixtureOptions change what a fixture is made of.
type fixtureOptions struct {
	server server.Options
	engine durable.Options
	store  durable.Store
}

// keyless is a provider without a credential.
type keyless struct{ model.Provider }

func (keyless) Available() error {
	return fmt.Errorf("keyless: no API key: %w", model.ErrMissingCredential)
}

func newFixture(t *testing.T, change ...func(*fixtureOptions)) *fixture {
	t.Helper()
	f := &fixture{t: t, faux: faux.New(&faux.Options{Strict: true})}
	models := &model.Set{}
	models.AddProvider(faux.ProviderID, f.faux)
	models.AddProvider("keyless", keyless{})
	models.AddModel(faux.Model(), model.Info{Provider: "keyless", ID: "k-1", ContextWindow: 1000})
	log := slog.New(slog.NewTextHandler(testWriter{t}, nil))
	agent := durable.Agent{Model: &model.Ref{Provider: faux.ProviderID, ModelID: faux.ModelID}}
	redact := secrets.NewRedactor()
	require.NoError(t, redact.Add("key", apiKey))
	o := fixtureOptions{
		engine: durable.Options{Models: models, Agent: agent, Registry: durable.NewRegistry(testTools(t)), Retry: durable.RetryPolicy{Max: -1}, Logger: log},
		server: server.Options{
			Token: token, Version: "1.2.3", Models: models, Agent: agent, Addr: "127.0.0.1:0", Faux: f.faux, Redactor: redact, Logger: log,
		},
	}
	for _, c := range change {
		c(&o)
	}
	f.store = o.store
	if f.store == nil {
		f.store = memstore.New()
	}
	var err error
	f.engine, err = durable.Open(t.Context(), f.store, &o.engine)
	require.NoError(t, err)
	f.server, err = server.New(f.engine, &o.server)
	require.NoError(t, err)
	f.srv = httptest.NewUnstartedServer(f.server)
	f.srv.Config.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	f.srv.Start()
	f.client = f.srv.Client()
	t.Cleanup(func() {
		f.server.Shutdown()
		f.srv.Close()
		require.NoError(t, f.engine.Close(context.WithoutCancel(t.Context())))
		require.NoError(t, f.store.Close())
	})
	return f
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

// testTools is an extension with a tool that answers at once and one that
// prints and then waits for its end.
func testTools(t *testing.T) durable.Extension {
	type echo struct {
		Text string `json:"text"`
	}
	return durable.Extension{Name: "test", Tools: []*durable.Tool{
		durable.NewTool(durable.ToolSpec{Name: "echo", Description: "Says it again.", Replay: durable.ReplaySafe},
			func(_ context.Context, call *durable.ToolCall, args echo) (durable.ToolResult, error) {
				call.Output([]byte("out: " + args.Text + "\n"))
				return durable.TextResult("echo: " + args.Text), nil
			}),
		durable.NewTool(durable.ToolSpec{Name: "hang", Description: "Waits."},
			func(ctx context.Context, call *durable.ToolCall, _ struct{}) (durable.ToolResult, error) {
				call.Output([]byte("hanging\n"))
				<-ctx.Done()
				return durable.ToolResult{}, context.Cause(ctx)
			}),
	}}
}

// answer is a response whose body was read.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	body   string
}

// do sends a request with the token; body is JSON text, or a value to encode.
func (f *fixture) do(method, path string, body any, headers ...string) answer {
	f.t.Helper()
	res := f.send(method, path, body, headers...)
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	require.NoError(f.t, err)
	require.NotContains(f.t, string(b), apiKey)
	return answer{f.t, res.StatusCode, res.Header, string(b)}
}

func (f *fixture) send(method, path string, body any, headers ...string) *http.Response {
	f.t.Helper()
	var r io.Reader
	switch b := body.(type) {
	case nil:
	case string:
		r = strings.NewReader(b)
	default:
		data, err := json.Marshal(b)
		require.NoError(f.t, err)
		r = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.srv.URL+path, r)
	require.NoError(f.t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := f.client.Do(req)
	require.NoError(f.t, err)
	return res
}

// into decodes the body, which must have the status.
func (a answer) into(status int, v any) {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.body)
	require.NoError(a.t, json.Unmarshal([]byte(a.body), v), a.body)
}

// problem requires a problem of that status and code and returns its message.
func (a answer) problem(status int, code string) map[string]any {
	a.t.Helper()
	require.Equal(a.t, status, a.status, a.body)
	require.Equal(a.t, "application/problem+json", a.header.Get("Content-Type"))
	var p map[string]any
	require.NoError(a.t, json.Unmarshal([]byte(a.body), &p))
	require.Equal(a.t, code, p["code"], a.body)
	require.EqualValues(a.t, status, p["status"])
	require.Equal(a.t, p["detail"], p["error"])
	return p
}

// conversation creates a conversation and returns its id.
func (f *fixture) conversation(body any) server.Conversation {
	f.t.Helper()
	var c server.Conversation
	f.do("POST", "/v1/conversations", body).into(201, &c)
	return c
}

func (f *fixture) submit(id durable.ConversationID, body any) server.Submission {
	f.t.Helper()
	var s server.Submission
	f.do("POST", fmt.Sprintf("/v1/conversations/%d/submit", id), body).into(202, &s)
	return s
}

// wait long-polls until the submission is settled.
func (f *fixture) wait(id durable.SubmissionID) server.Submission {
	f.t.Helper()
	for {
		var s server.Submission
		f.do("GET", fmt.Sprintf("/v1/submissions/%d/wait", id), nil).into(200, &s)
		if s.SettledAt != nil {
			return s
		}
	}
}

func input(requestID, text string) map[string]any {
	return map[string]any{"requestId": requestID, "content": text}
}

func path(format string, args ...any) string { return fmt.Sprintf(format, args...) }
