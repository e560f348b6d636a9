package anthropic

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
)

func requireClass(t *testing.T, err error, class model.Class) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, class, e.Class, e.Message)
	require.NotContains(t, e.Error(), key)
	return e
}

func TestProvider_Answers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		events  []string
		stop    model.StopReason
		content []model.Block
		usage   model.Usage
	}{
		{
			"text, with pings and unknown events", []string{msgStart, ping, textStart, ping, textHello, `{"type":"brand_new","x":1}`, textWorld,
				`{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{}}}`, blockStop, endTurn, msgStop},
			model.StopEnd, []model.Block{model.Text("Hello, world")},
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
		{
			"thinking, redacted thinking, text and calls keep their order", []string{
				msgStart,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"let me "}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"see"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"AAA"}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"BBB"}}`,
				blockStop,
				`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"ENC<&>"}}`,
				`{"type":"content_block_stop","index":1}`,
				`{"type":"content_block_start","index":2,"content_block":{"type":"text","text":""}}`,
				`{"type":"content_block_stop","index":2}`,
				`{"type":"content_block_start","index":3,"content_block":{"type":"text","text":"I "}}`,
				`{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"look"}}`,
				`{"type":"content_block_stop","index":3}`,
				`{"type":"content_block_start","index":4,"content_block":{"type":"server_tool_use","id":"x","name":"web","input":{}}}`,
				`{"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":"{}"}}`,
				`{"type":"content_block_stop","index":4}`,
				`{"type":"content_block_start","index":5,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}`,
				`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":""}}`,
				`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"{\"n\": 12345678901234567890,"}}`,
				`{"type":"content_block_delta","index":5,"delta":{"type":"input_json_delta","partial_json":"\"a\":\"<b>\"}"}}`,
				`{"type":"content_block_stop","index":5}`,
				`{"type":"content_block_start","index":6,"content_block":{"type":"tool_use","id":"toolu_2","name":"list","input":{}}}`,
				`{"type":"content_block_stop","index":6}`,
				endTools, msgStop,
			},
			model.StopToolUse, []model.Block{
				{Type: model.BlockThinking, Thinking: "let me see", Signature: "AAABBB"},
				{Type: model.BlockThinking, Raw: `{"type":"redacted_thinking","data":"ENC<&>"}`},
				model.Text("I look"),
				{Type: model.BlockToolCall, ID: "toolu_1", Name: "read", Arguments: []byte(`{"n":12345678901234567890,"a":"<b>"}`), RawArguments: `{"n": 12345678901234567890,"a":"<b>"}`},
				{Type: model.BlockToolCall, ID: "toolu_2", Name: "list", Arguments: []byte(`{}`)},
			},
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
		{
			"thinking that is not shown is only a signature", []string{msgStart,
				`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"AAA"}}`, blockStop,
				strings.ReplaceAll(textStart, `"index":0`, `"index":1`), strings.ReplaceAll(textHello, `"index":0`, `"index":1`),
				endTurn, msgStop},
			model.StopEnd, []model.Block{{Type: model.BlockThinking, Signature: "AAA"}, model.Text("Hello")},
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
		{
			"eager arguments that are no JSON are kept and do not run", []string{msgStart,
				`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}`,
				`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"path\": \"a"}}`,
				blockStop, stopWith("max_tokens"), msgStop},
			model.StopLength, []model.Block{{Type: model.BlockToolCall, ID: "toolu_1", Name: "read", Arguments: []byte(`{}`), RawArguments: `{"path": "a`}},
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
		{
			"whole arguments at the start, and end_turn with a call", []string{msgStart,
				`{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{"path":"a"}}}`,
				blockStop, endTurn, msgStop},
			model.StopToolUse, []model.Block{{Type: model.BlockToolCall, ID: "toolu_1", Name: "read", Arguments: []byte(`{"path":"a"}`)}},
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
		{
			"usage is cumulative: what is there replaces, what is missing stays", []string{msgStart, textStart, textHello, blockStop,
				`{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":10,"input_tokens":90}}`,
				`{"type":"message_delta","delta":{"stop_reason":"stop_sequence"},"usage":{"output_tokens":70,"cache_read_input_tokens":null,"output_tokens_details":{"thinking_tokens":30}}}`, msgStop},
			model.StopEnd, []model.Block{model.Text("Hello")},
			model.Usage{Input: 90, CacheWrite: 20, CacheRead: 1000, Output: 70, Reasoning: 30, Total: 1180},
		},
		{
			"a full context window is a length stop", []string{msgStart, textStart, textHello, blockStop, stopWith("model_context_window_exceeded"), msgStop},
			model.StopLength, []model.Block{model.Text("Hello")},
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
		{
			"an answer without content", []string{msgStart, endTurn, msgStop}, model.StopEnd, nil,
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
		{
			"the stop reason without message_stop is an end", []string{msgStart, textStart, textHello, blockStop, endTurn}, model.StopEnd,
			[]model.Block{model.Text("Hello")},
			model.Usage{Input: 100, CacheWrite: 20, CacheRead: 1000, Output: 50, Total: 1170},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, how := range []http.HandlerFunc{say(tt.events...), dribble(sse(tt.events...))} {
				srv := serve(t, how)
				var d deltas
				resp, err := srv.provider(0).Stream(t.Context(), newRequest(adaptive, ask("hi")), d.emit)
				require.NoError(t, err)
				m := resp.Message
				require.Equal(t, model.RoleAssistant, m.Role)
				require.Equal(t, tt.stop, m.StopReason)
				require.Equal(t, tt.content, m.Content)
				d.requireMatch(t, m)
				tt.usage.Price(adaptive.Prices)
				require.Equal(t, &tt.usage, m.Usage)
				require.Positive(t, m.Usage.Cost.Total)
			}
		})
	}
}

// dribble writes one byte at a time.
func dribble(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		head(w)
		rc := http.NewResponseController(w)
		for i := range len(text) {
			_, _ = io.WriteString(w, text[i:i+1])
			_ = rc.Flush()
		}
	}
}

func TestProvider_Failures(t *testing.T) {
	t.Parallel()
	partial := []model.Block{model.Text("Hello")}
	reply := func(status int, body string, headers ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for i := 0; i < len(headers); i += 2 {
				w.Header().Set(headers[i], headers[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	tests := []struct {
		name    string
		answer  http.HandlerFunc
		want    model.Error
		retry   bool
		content []model.Block
	}{
		{"error in mid-stream", say(msgStart, textStart, textHello, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_9"}`),
			model.Error{Class: model.ClassOverloaded, Message: "Overloaded", Code: "overloaded_error", RequestID: "req_011"}, true, partial},
		{"error after the stop reason", say(msgStart, textStart, textHello, blockStop, endTurn, `{"type":"error","error":{"type":"api_error","message":"Internal"}}`),
			model.Error{Class: model.ClassServerError, Message: "Internal", Code: "api_error", RequestID: "req_011"}, true, partial},
		{"end without terminal event", say(msgStart, textStart, textHello, blockStop),
			model.Error{Class: model.ClassIncompleteStream, Message: "the answer ended without its terminal event", RequestID: "req_011"}, true, partial},
		{"message_stop without a stop reason", say(msgStart, textStart, textHello, blockStop, msgStop),
			model.Error{Class: model.ClassIncompleteStream, Message: "the answer ended without its terminal event", RequestID: "req_011"}, true, partial},
		{"unknown stop reason", say(msgStart, textStart, textHello, blockStop, stopWith("moonrise"), msgStop),
			model.Error{Class: model.ClassProtocol, Message: `unknown stop reason "moonrise"`, Code: "moonrise", RequestID: "req_011", NoRetry: true}, false, partial},
		{"refusal", say(msgStart, textStart, textHello, blockStop,
			`{"type":"message_delta","delta":{"stop_reason":"refusal","stop_details":{"type":"refusal","category":"cyber","explanation":"no"}},"usage":{"output_tokens":5}}`, msgStop),
			model.Error{Class: model.ClassRefusal, Message: "the model refused to answer: cyber no", Code: "refusal", RequestID: "req_011"}, false, partial},
		{"a stop for tools without a call", say(msgStart, textStart, textHello, blockStop, endTools, msgStop),
			model.Error{Class: model.ClassProtocol, Message: "the answer stopped for tools and calls none", RequestID: "req_011"}, true, partial},
		{"pause in content that is not kept", say(msgStart, textStart, textHello, blockStop,
			`{"type":"content_block_start","index":1,"content_block":{"type":"server_tool_use","id":"s","name":"web","input":{}}}`, stopWith("pause_turn"), msgStop),
			model.Error{Class: model.ClassProtocol, Message: "the answer paused in content that cannot be sent back", Code: "pause_turn", RequestID: "req_011", NoRetry: true}, false, partial},
		{"rate limit", reply(429, `{"type":"error","error":{"type":"rate_limit_error","message":"slow"}}`, "Retry-After", "12", "Request-Id", "req_7"),
			model.Error{Class: model.ClassRateLimit, Status: 429, Message: "slow", Code: "rate_limit_error", RequestID: "req_7", RetryAfter: 12 * time.Second}, true, nil},
		{"rate limit in milliseconds", reply(429, ``, "Retry-After-Ms", "1500"),
			model.Error{Class: model.ClassRateLimit, Status: 429, Message: "HTTP 429 Too Many Requests", RetryAfter: 1500 * time.Millisecond}, true, nil},
		{"rate limit until a date", reply(429, ``, "Retry-After", "Wed, 21 Oct 2026 07:28:05 GMT", "Date", "Wed, 21 Oct 2026 07:28:00 GMT"),
			model.Error{Class: model.ClassRateLimit, Status: 429, Message: "HTTP 429 Too Many Requests", RetryAfter: 5 * time.Second}, true, nil},
		{"context overflow", reply(400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 1000001 tokens > 1000000 maximum"},"request_id":"req_8"}`),
			model.Error{Class: model.ClassContextOverflow, Status: 400, Message: "prompt is too long: 1000001 tokens > 1000000 maximum", Code: "invalid_request_error", RequestID: "req_8"}, false, nil},
		{"rejected thinking", reply(400, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"messages.1.content.0: Invalid `signature` in `thinking` block\"}}"),
			model.Error{Class: model.ClassThinkingMismatch, Status: 400, Message: "messages.1.content.0: Invalid `signature` in `thinking` block", Code: "invalid_request_error"}, false, nil},
		{"refused key", reply(401, `{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key `+key+`"}}`),
			model.Error{Class: model.ClassAuth, Status: 401, Message: "invalid x-api-key [masked]", Code: "authentication_error"}, false, nil},
		{"HTML page", reply(502, "<html><title>Bad gateway</title></html>", "Content-Type", "text/html"),
			model.Error{Class: model.ClassServerError, Status: 502, Message: "the server answered with an HTML page: Bad gateway"}, true, nil},
		{"error with status 200", reply(200, `{"type":"error","error":{"type":"overloaded_error","message":"m"}}`, "Content-Type", "application/json"),
			model.Error{Class: model.ClassOverloaded, Status: 200, Message: "m", Code: "overloaded_error"}, true, nil},
		{"redirect", reply(307, ``, "Location", "https://evil.example/v1/messages"),
			model.Error{Class: model.ClassInvalidRequest, Status: 307, Message: "HTTP 307: redirect to https://evil.example refused; set the base URL to the final address"}, false, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, tt.answer)
			var d deltas
			resp, err := srv.provider(0).Stream(t.Context(), newRequest(adaptive, ask("hi")), d.emit)
			e := requireClass(t, err, tt.want.Class)
			require.Equal(t, &tt.want, e)
			require.Equal(t, tt.retry, e.Retryable())
			if tt.content == nil {
				require.Nil(t, resp)
				return
			}
			require.Equal(t, tt.content, resp.Message.Content)
			require.Equal(t, model.StopError, resp.Message.StopReason)
			require.Equal(t, e.Error(), resp.Message.ErrorMessage)
			require.Positive(t, resp.Message.Usage.Input, "what a failed attempt cost is reported")
			d.requireMatch(t, resp.Message)
		})
	}
}

func TestProvider_BadEvents(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"no JSON":                 `{"type":"content_block_del`,
		"wrong type of a field":   `{"type":"content_block_delta","index":"zero"}`,
		"delta for no block":      `{"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}`,
		"start without a block":   `{"type":"content_block_start","index":1}`,
		"delta without its delta": `{"type":"content_block_delta","index":0}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, say(msgStart, textStart, textHello, data, blockStop, endTurn, msgStop))
			_, err := srv.provider(0).Stream(t.Context(), newRequest(adaptive, ask("hi")), func(model.Delta) {})
			requireClass(t, err, model.ClassProtocol)
		})
	}
}

func TestProvider_Connection(t *testing.T) {
	t.Parallel()
	begin := func(w http.ResponseWriter) {
		head(w)
		_, _ = io.WriteString(w, sse(msgStart, textStart, textHello))
		_ = http.NewResponseController(w).Flush()
	}
	t.Run("dropped in mid-stream", func(t *testing.T) {
		t.Parallel()
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			panic(http.ErrAbortHandler)
		})
		resp, err := srv.provider(0).Stream(t.Context(), newRequest(adaptive, ask("hi")), func(model.Delta) {})
		requireClass(t, err, model.ClassNetwork)
		require.Equal(t, "Hello", resp.Message.Text())
	})
	t.Run("stalled", func(t *testing.T) {
		t.Parallel()
		gone := make(chan struct{})
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			<-r.Context().Done()
			close(gone)
		})
		_, err := srv.provider(50*time.Millisecond).Stream(t.Context(), newRequest(adaptive, ask("hi")), func(model.Delta) {})
		requireClass(t, err, model.ClassStalled)
		<-gone // the connection was given up, not left behind
	})
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		srv := serve(t, func(w http.ResponseWriter, r *http.Request) {
			begin(w)
			<-r.Context().Done()
		})
		resp, err := srv.provider(0).Stream(ctx, newRequest(adaptive, ask("hi")), func(model.Delta) { cancel() })
		requireClass(t, err, model.ClassAborted)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, model.StopAborted, resp.Message.StopReason)
	})
}

// A paused turn is sent back as it is and goes on in the same message.
func TestProvider_PauseTurn(t *testing.T) {
	t.Parallel()
	srv := serve(t,
		say(msgStart, textStart, textHello, blockStop, stopWith("pause_turn"), msgStop),
		say(msgStart, textStart, textWorld, blockStop, endTurn, msgStop))
	var d deltas
	resp, err := srv.provider(0).Stream(t.Context(), newRequest(adaptive, ask("hi")), d.emit)
	require.NoError(t, err)
	require.Equal(t, []model.Block{model.Text("Hello"), model.Text(", world")}, resp.Message.Content)
	d.requireMatch(t, resp.Message)
	require.EqualValues(t, 200, resp.Message.Usage.Input)
	require.EqualValues(t, 100, resp.Message.Usage.Output)
	sent := requireAccepted(t, srv.body(1))
	require.Len(t, sent.Messages, 2)
	require.Equal(t, "Hello", sent.Messages[1].Content[0].Text)
	requirePrefix(t, srv.body(0), srv.body(1))

	endless := serve(t, say(msgStart, textStart, textHello, blockStop, stopWith("pause_turn"), msgStop))
	_, err = endless.provider(0).Stream(t.Context(), newRequest(adaptive, ask("hi")), func(model.Delta) {})
	requireClass(t, err, model.ClassServerError)
	require.Len(t, endless.bodies, maxPauses)
}

// Ids that a server leaves out or repeats are told apart (E13).
func TestProvider_CallIDs(t *testing.T) {
	t.Parallel()
	call := func(index, id string) string {
		return `{"type":"content_block_start","index":` + index + `,"content_block":{"type":"tool_use","id":"` + id + `","name":"read","input":{}}}`
	}
	srv := serve(t, say(msgStart, call("0", "a"), call("1", "b"), call("2", "b"), call("3", ""), endTools, msgStop))
	history := append(ask("hi"),
		model.Message{Role: model.RoleAssistant, Content: []model.Block{{Type: model.BlockToolCall, ID: "a", Name: "read", Arguments: []byte("{}")}}},
		model.Message{Role: model.RoleToolResult, ToolCallID: "a", ToolName: "read", Content: []model.Block{model.Text("x")}})
	var d deltas
	resp, err := srv.provider(0).Stream(t.Context(), newRequest(adaptive, history), d.emit)
	require.NoError(t, err)
	d.requireMatch(t, resp.Message)
	ids := map[string]bool{"a": true}
	for _, b := range resp.Message.ToolCalls() {
		require.False(t, ids[b.ID], b.ID)
		require.Regexp(t, validID, b.ID)
		ids[b.ID] = true
	}
	require.Equal(t, "b", resp.Message.Content[1].ID, "a good id is kept")
}

func TestProvider_Credentials(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		opts Options
		want map[string]string
	}{
		{"key", Options{APIKey: key}, map[string]string{"X-Api-Key": key, "Authorization": "", "Anthropic-Beta": ""}},
		{"bearer token", Options{AuthToken: key, APIKey: "other"}, map[string]string{"X-Api-Key": "", "Authorization": "Bearer " + key}},
		{"OAuth token", Options{OAuthToken: key, Headers: http.Header{"anthropic-beta": {"x-1"}, "x-team": {"t"}}},
			map[string]string{"X-Api-Key": "", "Authorization": "Bearer " + key, "Anthropic-Beta": "x-1,oauth-2025-04-20", "X-Team": "t"}},
		{"header", Options{Headers: http.Header{"authorization": {"Bearer " + key}}}, map[string]string{"X-Api-Key": "", "Authorization": "Bearer " + key}},
		{"none wanted", Options{KeyOptional: true}, map[string]string{"X-Api-Key": "", "Authorization": "", "Anthropic-Version": "2023-06-01"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			srv := serve(t, say(msgStart, endTurn, msgStop))
			opts := tt.opts
			opts.BaseURL, opts.HTTPClient = srv.URL+"/", srv.Client()
			p := New(&opts)
			require.NoError(t, p.Available())
			_, err := p.Stream(t.Context(), newRequest(adaptive, ask("hi")), func(model.Delta) {})
			require.NoError(t, err)
			for name, want := range tt.want {
				require.Equal(t, want, srv.heads[0].Get(name), name)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		p := New(nil)
		require.ErrorIs(t, p.Available(), model.ErrMissingCredential)
		_, err := p.Stream(t.Context(), newRequest(adaptive, ask("hi")), nil)
		requireClass(t, err, model.ClassAuth)
		require.ErrorIs(t, err, model.ErrMissingCredential)
	})
}
