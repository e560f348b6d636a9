package openai_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/openai"
)

var update = flag.Bool("update", false, "write the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newProvider makes one of the two providers against a server.
type newProvider func(*openai.Options) model.Provider

func newChat(o *openai.Options) model.Provider      { return openai.NewChat(o) }
func newResponses(o *openai.Options) model.Provider { return openai.NewResponses(o) }

var apis = map[string]newProvider{"chat": newChat, "responses": newResponses}

// serve runs a handler and returns options that lead there.
func serve(t *testing.T, h http.HandlerFunc) *openai.Options {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	client := srv.Client()
	t.Cleanup(client.CloseIdleConnections)
	return &openai.Options{BaseURL: srv.URL + "/v1", APIKey: "sk-test-key", HTTPClient: client}
}

// sse answers with a stream of events, written n bytes at a time, 0 for all.
func sse(t *testing.T, body string, n int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("X-Request-Id", "req_1")
		if n == 0 {
			n = max(len(body), 1)
		}
		for i := 0; i < len(body); i += n {
			if _, err := w.Write([]byte(body[i:min(i+n, len(body))])); err != nil {
				return
			}
			if n < len(body) {
				w.(http.Flusher).Flush()
			}
		}
	}
}

func info() model.Info {
	return model.Info{
		Provider: "openai", ID: "gpt-test", ContextWindow: 100_000, MaxOutput: 1000, Images: true,
		Prices:         &model.Prices{Input: 1, Output: 10, CacheRead: 0.1, CacheWrite: 1.25},
		ThinkingLevels: []model.ThinkingLevel{model.ThinkingLow, model.ThinkingHigh},
	}
}

func ask(text string) *model.Request {
	return &model.Request{
		Model: info(), MaxOutputTokens: 100, SessionID: "conversation-1",
		Messages: []model.Message{model.UserMessage(text, time.Time{})},
	}
}

// result is a finished request as the golden files show it.
type result struct {
	Message *model.Message `json:"message,omitempty"`
	Error   *errorResult   `json:"error,omitempty"`
}

type errorResult struct {
	Class   model.Class `json:"class"`
	Message string      `json:"message"`
	Code    string      `json:"code,omitempty"`
	NoRetry bool        `json:"noRetry,omitempty"`
}

// stream sends req and checks what holds for every answer.
func stream(ctx context.Context, t testing.TB, p model.Provider, req *model.Request) (*model.Message, error) {
	t.Helper()
	texts, kinds := map[int]string{}, map[int]model.DeltaKind{}
	ids := map[int]string{}
	next := 0
	res, err := p.Stream(ctx, req, func(d model.Delta) {
		if _, seen := kinds[d.Index]; !seen {
			if d.Kind == model.DeltaToolCall {
				require.NotEmpty(t, d.ToolCallID)
				require.NotEmpty(t, d.ToolName)
				ids[d.Index] = d.ToolCallID
			}
			kinds[d.Index] = d.Kind
		} else {
			require.Equal(t, kinds[d.Index], d.Kind)
			require.Empty(t, d.ToolCallID)
		}
		if d.Kind != model.DeltaToolCall {
			require.NotEmpty(t, d.Text)
		}
		next = max(next, d.Index+1)
		texts[d.Index] += d.Text
	})
	if err != nil {
		me, ok := err.(*model.Error) //nolint:errorlint // the contract is this type itself
		require.True(t, ok, "%T", err)
		require.Less(t, len(me.Message), 1000)
		require.NotContains(t, me.Message, "sk-test-key")
	} else {
		require.NotNil(t, res)
	}
	if res == nil {
		require.Empty(t, texts)
		return nil, err
	}
	m := res.Message
	require.GreaterOrEqual(t, len(m.Content), next)
	used := map[string]bool{}
	for i, b := range m.Content {
		switch b.Type {
		case model.BlockText:
			require.NotEmpty(t, b.Text)
			require.Equal(t, b.Text, texts[i])
		case model.BlockThinking:
			require.Equal(t, b.Thinking, texts[i])
			if err == nil {
				require.True(t, b.Thinking != "" || b.Raw != "" || i < len(m.Content)-1)
			}
		case model.BlockToolCall:
			require.True(t, json.Valid(b.Arguments) && b.Arguments[0] == '{', "%s", b.Arguments)
			require.Equal(t, ids[i], b.ID)
			require.False(t, used[b.ID], "id %s is used twice", b.ID)
			used[b.ID] = true
			want := b.RawArguments
			if want == "" {
				want = string(b.Arguments)
			}
			if strings.TrimSpace(texts[i]) != "" || want != "{}" {
				require.Equal(t, want, texts[i])
			}
		}
		require.True(t, b.Raw == "" || json.Valid([]byte(b.Raw)), "%s", b.Raw)
	}
	return m, err
}

var (
	generatedID = regexp.MustCompile(`call_[A-Z2-7]{26}|_[A-Z2-7]{8}\b`)
	noTime      = regexp.MustCompile(`,\s+"timestamp": "0001-01-01T00:00:00Z"`)
)

func golden(m *model.Message, err error) string {
	r := result{Message: m}
	if err != nil {
		me := model.AsError(err)
		r.Error = &errorResult{me.Class, me.Message, me.Code, me.NoRetry}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r); err != nil {
		return err.Error()
	}
	text := noTime.ReplaceAllString(b.String(), "")
	return generatedID.ReplaceAllString(text, "GENERATED")
}

// archive is a txtar file; set replaces a section.
type archive struct {
	path string
	*txtar.Archive
}

func archives(t testing.TB, dir string) map[string]*archive {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", dir, "*.txtar"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	all := map[string]*archive{}
	for _, path := range paths {
		a, err := txtar.ParseFile(path)
		require.NoError(t, err)
		all[strings.TrimSuffix(filepath.Base(path), ".txtar")] = &archive{path, a}
	}
	return all
}

func (a *archive) get(name string) string {
	for _, f := range a.Files {
		if f.Name == name {
			return string(f.Data)
		}
	}
	return ""
}

// check compares a section with got, or writes it.
func (a *archive) check(t *testing.T, name, got string) {
	t.Helper()
	if !*update {
		require.Equal(t, a.get(name), got, "%s: %s", a.path, name)
		return
	}
	for i := range a.Files {
		if a.Files[i].Name == name {
			a.Files[i].Data = []byte(got)
			require.NoError(t, os.WriteFile(a.path, txtar.Format(a.Archive), 0o644))
			return
		}
	}
	a.Files = append(a.Files, txtar.File{Name: name, Data: []byte(got)})
	require.NoError(t, os.WriteFile(a.path, txtar.Format(a.Archive), 0o644))
}

// request returns the request of a file: the messages and the changes of the
// model's description in it.
func (a *archive) request(t testing.TB) *model.Request {
	t.Helper()
	req := ask("hello")
	if text := a.get("info"); text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &req.Model))
	}
	if text := a.get("messages"); text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &req.Messages))
	}
	var options struct {
		ThinkingLevel model.ThinkingLevel
		DropThinking  bool
		OutputTokens  int
	}
	if text := a.get("options"); text != "" {
		require.NoError(t, json.Unmarshal([]byte(text), &options))
		req.ThinkingLevel, req.DropThinking = options.ThinkingLevel, options.DropThinking
		if options.OutputTokens > 0 {
			req.MaxOutputTokens = options.OutputTokens
		}
	}
	return req
}

// TestStreams runs every recorded stream through its codec, written in one
// piece, byte by byte and in odd pieces.
func TestStreams(t *testing.T) {
	t.Parallel()
	for api, provider := range apis {
		for name, a := range archives(t, api) {
			t.Run(api+"/"+name, func(t *testing.T) {
				t.Parallel()
				req := a.request(t)
				body := a.get("stream")
				for _, n := range []int{0, 1, 7} {
					p := provider(serve(t, sse(t, body, n)))
					m, err := stream(t.Context(), t, p, req)
					if err == nil {
						requireSendable(t, answered(req, m))
					}
					a.check(t, "result", golden(m, err))
				}
			})
		}
	}
}

// bodyOf returns the body that a provider sends for req, to OpenAI's own host
// or, with a base, there.
func bodyOf(t testing.TB, provider newProvider, req *model.Request, base string) []byte {
	t.Helper()
	var text []byte
	p := provider(&openai.Options{APIKey: "sk-test-key", BaseURL: base, HTTPClient: &http.Client{
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			var b bytes.Buffer
			_, err := b.ReadFrom(r.Body)
			text = b.Bytes()
			return nil, fmt.Errorf("not sent: %w", err)
		}),
	}})
	_, err := p.Stream(context.Background(), req, func(model.Delta) {})
	require.Error(t, err)
	require.NotNil(t, text, "%v", err)
	return text
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
