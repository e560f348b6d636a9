package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/openai"
)

// begin holds the first piece of an answer for each API, "half" as its text.
var begin = map[string]string{
	"chat": `data: {"choices":[{"index":0,"delta":{"content":"half"},"finish_reason":null}]}` + "\n\n",
	"responses": `data: {"type":"response.output_item.added","output_index":0,"item":{"id":"msg_1","type":"message","content":[]}}` + "\n\n" +
		`data: {"type":"response.output_text.delta","output_index":0,"delta":"half"}` + "\n\n",
}

// whole holds a whole answer for each API, "ok" as its text.
var whole = map[string]string{
	"chat":      `data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}` + "\n\n" + "data: [DONE]\n\n",
	"responses": `data: {"type":"response.completed","response":{"status":"completed","output":[{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"ok"}]}]}}` + "\n\n",
}

var paths = map[string]string{"chat": "/v1/chat/completions", "responses": "/v1/responses"}

// forEachAPI runs a test against both APIs.
func forEachAPI(t *testing.T, f func(t *testing.T, api string, provider newProvider)) {
	t.Helper()
	for api, provider := range apis {
		t.Run(api, func(t *testing.T) {
			t.Parallel()
			f(t, api, provider)
		})
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	forEachAPI(t, func(t *testing.T, api string, provider newProvider) {
		opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != paths[api] || r.URL.RawQuery != "api-version=preview" ||
				r.Header.Get("Authorization") != "Bearer sk-test-key" || r.Header.Get("X-Title") != "test" ||
				r.Header.Get("Content-Type") != "application/json" {
				http.Error(w, "bad request: "+r.URL.String(), http.StatusBadRequest)
				return
			}
			sse(t, whole[api], 0)(w, r)
		})
		opts.BaseURL += "/?api-version=preview"
		opts.Headers = http.Header{"X-Title": {"test"}}
		m, err := stream(t.Context(), t, provider(opts), ask("hi"))
		require.NoError(t, err)
		require.Equal(t, "ok", m.Text())
	})
}

func TestErrors_HTTP(t *testing.T) {
	t.Parallel()
	answer := func(status int, body string, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			for i := 0; i < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		class   model.Class
		want    func(t *testing.T, e *model.Error)
	}{
		"429 with a wait is a rate limit": {
			answer(429, `{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}`, "Retry-After", "7", "X-Request-Id", "req_9"),
			model.ClassRateLimit, func(t *testing.T, e *model.Error) {
				require.Equal(t, 7*time.Second, e.RetryAfter)
				require.Equal(t, 429, e.Status)
				require.Equal(t, "req_9", e.RequestID)
				require.Equal(t, "rate_limit_exceeded", e.Code)
			},
		},
		"429 without money is a quota": {
			answer(429, `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`), model.ClassQuota, nil,
		},
		"400 of a long context is an overflow": {
			answer(400, `{"error":{"message":"This model's maximum context length is 8192 tokens.","code":"context_length_exceeded"}}`), model.ClassContextOverflow, nil,
		},
		"400 of encrypted reasoning is a thinking mismatch": {
			answer(400, `{"error":{"message":"The encrypted content could not be verified.","code":"invalid_encrypted_content"}}`), model.ClassThinkingMismatch, nil,
		},
		"401 masks the key": {
			answer(401, `{"error":{"message":"Incorrect API key provided: sk-test-key"}}`), model.ClassAuth, func(t *testing.T, e *model.Error) {
				require.Contains(t, e.Message, "[masked]")
			},
		},
		"503 of a loading model is overloaded": {
			answer(503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`), model.ClassOverloaded, nil,
		},
		"200 with an error body is an error": {
			answer(200, `{"error":{"message":"Rate limit reached","code":"rate_limit_exceeded"}}`, "Content-Type", "application/json"), model.ClassRateLimit, nil,
		},
		"200 without a stream is no answer": {
			answer(200, `{"choices":[{"message":{"content":"hi"}}]}`, "Content-Type", "application/json"), model.ClassProtocol, nil,
		},
		"a redirect is not followed": {
			answer(307, "", "Location", "http://example.invalid/v1"), model.ClassInvalidRequest, nil,
		},
		"x-should-retry false wins": {
			answer(500, `{"error":{"message":"no"}}`, "X-Should-Retry", "false"), model.ClassServerError, func(t *testing.T, e *model.Error) {
				require.False(t, e.Retryable())
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			forEachAPI(t, func(t *testing.T, api string, provider newProvider) {
				m, err := stream(t.Context(), t, provider(serve(t, c.handler)), ask("hi"))
				require.Nil(t, m)
				e := model.AsError(err)
				require.Equal(t, c.class, e.Class, "%v", e)
				if c.want != nil {
					c.want(t, e)
				}
			})
		})
	}
}

func TestErrors_Connection(t *testing.T) {
	t.Parallel()
	forEachAPI(t, func(t *testing.T, api string, provider newProvider) {
		// The connection is dropped behind half an answer.
		dropped := serve(t, func(w http.ResponseWriter, r *http.Request) {
			sse(t, begin[api], 0)(w, r)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
		m, err := stream(t.Context(), t, provider(dropped), ask("hi"))
		require.Equal(t, model.ClassNetwork, model.AsError(err).Class)
		require.Equal(t, "half", m.Text())
		require.Equal(t, model.StopError, m.StopReason)

		// The server says nothing more.
		silent := serve(t, func(w http.ResponseWriter, r *http.Request) {
			sse(t, begin[api], 0)(w, r)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		silent.IdleTimeout = 50 * time.Millisecond
		m, err = stream(t.Context(), t, provider(silent), ask("hi"))
		require.Equal(t, model.ClassStalled, model.AsError(err).Class)
		require.Equal(t, "half", m.Text())

		// We cancel.
		silent.IdleTimeout = 0
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("stopping")
		res, err := provider(silent).Stream(ctx, ask("hi"), func(model.Delta) { cancel(cause) })
		require.Equal(t, model.ClassAborted, model.AsError(err).Class)
		require.ErrorIs(t, err, cause)
		require.Equal(t, "half", res.Message.Text())
		require.Equal(t, model.StopAborted, res.Message.StopReason)

		// Nobody is there.
		gone := *silent
		gone.BaseURL = "http://127.0.0.1:1/v1"
		_, err = stream(t.Context(), t, provider(&gone), ask("hi"))
		require.Equal(t, model.ClassNetwork, model.AsError(err).Class)
		gone.BaseURL = "localhost:1/v1"
		_, err = stream(t.Context(), t, provider(&gone), ask("hi"))
		require.Equal(t, model.ClassInvalidRequest, model.AsError(err).Class)
	})
}

// A Chat answer whose finish reason was seen is whole, whatever the connection
// does then; one that was cancelled is not.
func TestChat_ConnectionLostAfterTheFinishReason(t *testing.T) {
	t.Parallel()
	const text = `data: {"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":"stop"}]}` + "\n\n"
	opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sse(t, text, 0)(w, r)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	m, err := stream(t.Context(), t, newChat(opts), ask("hi"))
	require.NoError(t, err)
	require.Equal(t, "ok", m.Text())

	silent := serve(t, func(w http.ResponseWriter, r *http.Request) {
		sse(t, text, 0)(w, r)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	_, err = newChat(silent).Stream(ctx, ask("hi"), func(model.Delta) { cancel() })
	require.Equal(t, model.ClassAborted, model.AsError(err).Class)
}

func TestAvailable(t *testing.T) {
	t.Parallel()
	forEachAPI(t, func(t *testing.T, api string, provider newProvider) {
		available := func(o *openai.Options) error { return provider(o).(model.Availability).Available() }
		require.ErrorIs(t, available(nil), model.ErrMissingCredential)
		require.ErrorIs(t, available(&openai.Options{Headers: http.Header{"X-Title": {"x"}}}), model.ErrMissingCredential)
		require.NoError(t, available(&openai.Options{APIKey: "k"}))
		require.NoError(t, available(&openai.Options{KeyOptional: true}))
		require.NoError(t, available(&openai.Options{Headers: http.Header{"api-key": {"k"}}}))

		_, err := stream(t.Context(), t, provider(nil), ask("hi"))
		require.Equal(t, model.ClassAuth, model.AsError(err).Class)
		require.ErrorIs(t, err, model.ErrMissingCredential)
	})
}

// A header that holds a credential is masked as the key is.
func TestHeaders_AreSecret(t *testing.T) {
	t.Parallel()
	opts := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": "no such key: " + r.Header.Get("Api-Key") + r.Header.Get("Authorization")})
	})
	opts.APIKey = ""
	opts.Headers = http.Header{"api-key": {"azure-secret"}, "Authorization": {"Bearer other-secret"}}
	_, err := stream(t.Context(), t, newResponses(opts), ask("hi"))
	require.Equal(t, "no such key: [masked][masked]", model.AsError(err).Message)
}
