package anthropic

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable/model"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-ant-secret-0123456789"

// The models of the tests, one of each style.
var (
	adaptive = model.Info{
		Provider: "anthropic", ID: "claude-new", ContextWindow: 1_000_000, MaxOutput: 128_000, Images: true,
		ThinkingLevels: []model.ThinkingLevel{"low", "medium", "high", "xhigh", "max"},
		Prices:         &model.Prices{Input: 4, Output: 20, CacheRead: 0.2, CacheWrite: 5},
		Quirks:         map[string]string{"thinking_off": "disabled", "system_updates": "inline", "cache": "auto", "eager_tools": "on"},
	}
	budget = model.Info{
		Provider: "anthropic", ID: "claude-old", ContextWindow: 200_000, MaxOutput: 64_000, Images: true,
		ThinkingLevels: []model.ThinkingLevel{"minimal", "low", "medium", "high"},
		Quirks:         map[string]string{"thinking": "budget", "cache": "auto"},
	}
)

// server answers each request with the next of its scripts and keeps what was
// asked.
type server struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
	heads  []http.Header
	next   []http.HandlerFunc
}

func serve(t *testing.T, handlers ...http.HandlerFunc) *server {
	t.Helper()
	s := &server{next: handlers}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.bodies, s.heads = append(s.bodies, body), append(s.heads, r.Header.Clone())
		h := s.next[0]
		if len(s.next) > 1 {
			s.next = s.next[1:]
		}
		s.mu.Unlock()
		if r.Method != http.MethodPost || r.URL.Path != "/v1/messages" {
			http.NotFound(w, r)
			return
		}
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) provider(idle time.Duration) *Provider {
	return New(&Options{APIKey: key, BaseURL: s.URL, HTTPClient: s.Client(), IdleTimeout: idle})
}

// body returns the nth request body.
func (s *server) body(n int) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bodies[n]
}

// say answers with a stream of events, each given as its data.
func say(events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		head(w)
		_, _ = io.WriteString(w, sse(events...))
	}
}

func head(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Request-Id", "req_011")
}

// sse renders events as the API does, with the type as the event field too.
func sse(events ...string) string {
	var b strings.Builder
	for _, data := range events {
		var e struct {
			Type string `json:"type"`
		}
		_ = json.Unmarshal([]byte(data), &e)
		b.WriteString("event: " + e.Type + "\ndata: " + data + "\n\n")
	}
	return b.String()
}

// Pieces of streams, as the API writes them.
const (
	msgStart  = `{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"claude-new","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":100,"cache_creation_input_tokens":20,"cache_read_input_tokens":1000,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":0},"output_tokens":1,"service_tier":"standard"}}}`
	ping      = `{"type":"ping"}`
	msgStop   = `{"type":"message_stop"}`
	endTurn   = `{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":50}}`
	endTools  = `{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":50}}`
	textStart = `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`
	textHello = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hello"}}`
	textWorld = `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":", world"}}`
	blockStop = `{"type":"content_block_stop","index":0}`
)

// stopWith ends a message with a stop reason.
func stopWith(reason string) string {
	return `{"type":"message_delta","delta":{"stop_reason":"` + reason + `"},"usage":{"output_tokens":50}}`
}

func ask(text string) []model.Message {
	return []model.Message{model.UserMessage(text, time.Time{})}
}

func newRequest(info model.Info, messages []model.Message) *model.Request {
	return &model.Request{Model: info, Messages: messages, ThinkingLevel: model.ThinkingOff, MaxOutputTokens: 32_000}
}

// deltas collects what a stream emits and checks it against the final message.
type deltas struct{ all []model.Delta }

func (d *deltas) emit(x model.Delta) { d.all = append(d.all, x) }

// requireMatch checks the contract of [model.Delta]: the joined pieces of an
// index are that block of the message.
func (d *deltas) requireMatch(t *testing.T, m *model.Message) {
	t.Helper()
	joined := map[int]string{}
	for _, x := range d.all {
		require.Less(t, x.Index, len(m.Content), "delta %+v has no block", x)
		b := m.Content[x.Index]
		require.Equal(t, map[model.DeltaKind]model.BlockType{
			model.DeltaText: model.BlockText, model.DeltaThinking: model.BlockThinking, model.DeltaToolCall: model.BlockToolCall,
		}[x.Kind], b.Type)
		if _, seen := joined[x.Index]; !seen && x.Kind == model.DeltaToolCall {
			require.Equal(t, b.ID, x.ToolCallID)
			require.Equal(t, b.Name, x.ToolName)
		}
		joined[x.Index] += x.Text
	}
	for i, b := range m.Content {
		want := b.Text + b.Thinking
		if b.Type == model.BlockToolCall {
			want = b.RawArguments
			if want == "" {
				want = string(b.Arguments)
			}
			if joined[i] == "" {
				joined[i] = "{}" // no arguments were written
			}
		}
		require.Equal(t, want, joined[i], "block %d", i)
	}
}

// golden compares got with a golden file; JSON is stored indented.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	var pretty bytes.Buffer
	require.NoError(t, json.Indent(&pretty, got, "", "  "))
	pretty.WriteByte('\n')
	path := filepath.Join("testdata", name+".json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, pretty.Bytes(), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), pretty.String())
}
