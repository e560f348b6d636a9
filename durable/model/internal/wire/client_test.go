package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
)

const key = "sk-secret-123456"

// serve starts a server and returns a client for it and the request to send.
func serve(t *testing.T, idle time.Duration, h http.HandlerFunc) (*Client, *Request) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := NewClient(&Options{IdleTimeout: idle})
	t.Cleanup(c.http.CloseIdleConnections)
	return c, &Request{
		URL:     srv.URL + "/v1/messages",
		Header:  http.Header{"X-Api-Key": {key}},
		Body:    []byte(`{"model":"m"}`),
		Secrets: []string{key},
	}
}

func stream(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Request-Id", "req_7")
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

func requireClass(t *testing.T, err error, class model.Class) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, class, e.Class, e.Message)
	require.Less(t, len(e.Error()), 1000)
	require.NotContains(t, e.Error(), key)
	return e
}

func TestClient_SendsAndStreams(t *testing.T) {
	t.Parallel()
	c, req := serve(t, 0, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Method != http.MethodPost || string(body) != `{"model":"m"}` || r.Header.Get("X-Api-Key") != key ||
			r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Accept") != "text/event-stream" ||
			r.Header.Get("Accept-Encoding") != "" || r.ContentLength != 13 {
			w.WriteHeader(http.StatusTeapot)
			return
		}
		stream(w, "event: a\ndata: 1\n\ndata: 2\n\n")
	})
	s, err := c.Do(t.Context(), req)
	require.NoError(t, err)
	defer s.Close()
	require.Equal(t, "req_7", s.RequestID())
	ev, err := s.Next()
	require.NoError(t, err)
	require.Equal(t, "a", ev.Type)
	_, err = s.Next()
	require.NoError(t, err)
	_, err = s.Next()
	require.Equal(t, io.EOF, err)
	e := requireClass(t, s.Incomplete(), model.ClassIncompleteStream)
	require.Equal(t, "req_7", e.RequestID)
	require.Zero(t, c.http.Timeout)
	require.Equal(t, DefaultIdleTimeout, c.http.Transport.(*http.Transport).ResponseHeaderTimeout)
}

func TestClient_ErrorAnswers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		status int
		header map[string]string
		body   string
		want   model.Error
	}{
		{"rate limit with seconds", 429, map[string]string{"Retry-After": "3", "Request-Id": "req_1"},
			`{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`,
			model.Error{Class: model.ClassRateLimit, Message: "slow down", Code: "rate_limit_error", RequestID: "req_1", RetryAfter: 3 * time.Second}},
		{"rate limit with milliseconds", 429, map[string]string{"Retry-After-Ms": "40", "X-Request-Id": "req_2"}, ``,
			model.Error{Class: model.ClassRateLimit, Message: "HTTP 429 Too Many Requests", RequestID: "req_2", RetryAfter: 40 * time.Millisecond}},
		{"rate limit with a date", 429, map[string]string{"Retry-After": "Wed, 21 Oct 2026 07:28:30 GMT", "Date": "Wed, 21 Oct 2026 07:28:00 GMT"}, `busy`,
			model.Error{Class: model.ClassRateLimit, Message: "busy", RetryAfter: 30 * time.Second}},
		{"not to be retried", 500, map[string]string{"X-Should-Retry": "false"}, `{"error":{"message":"m"}}`,
			model.Error{Class: model.ClassServerError, Message: "m", NoRetry: true}},
		{"the key is masked", 401, nil, `{"error":{"message":"bad key ` + key + `"}}`,
			model.Error{Class: model.ClassAuth, Message: "bad key [masked]"}},
		{"HTML page", 502, map[string]string{"Content-Type": "text/html"}, "<html><head><title>502 Bad Gateway</title>",
			model.Error{Class: model.ClassServerError, Message: "the server answered with an HTML page: 502 Bad Gateway"}},
		{"HTML page with 200", 200, map[string]string{"Content-Type": "text/html; charset=utf-8"}, "<!DOCTYPE html><p>log in</p>",
			model.Error{Class: model.ClassServerError, Message: "the server answered with an HTML page"}},
		{"HTML page with 400", 400, nil, "<html></html>",
			model.Error{Class: model.ClassServerError, Message: "the server answered with an HTML page"}},
		{"HTML page with 404", 404, nil, "<html></html>",
			model.Error{Class: model.ClassNotFound, Message: "the server answered with an HTML page"}},
		{"error with 200", 200, map[string]string{"Content-Type": "application/json"}, `{"error":{"type":"overloaded_error","message":"m"}}`,
			model.Error{Class: model.ClassOverloaded, Message: "m", Code: "overloaded_error"}},
		{"whole answer instead of a stream", 200, map[string]string{"Content-Type": "application/json"}, `{"content":[]}`,
			model.Error{Class: model.ClassProtocol, Message: "the answer is not a stream of events but application/json"}},
		{"only a code", 400, nil, `{"error":{"code":"context_length_exceeded"}}`,
			model.Error{Class: model.ClassContextOverflow, Message: "context_length_exceeded", Code: "context_length_exceeded"}},
		{"redirect", 307, map[string]string{"Location": "https://elsewhere.example/v1?key=" + key}, ``,
			model.Error{Class: model.ClassInvalidRequest, Message: "HTTP 307: redirect to https://elsewhere.example refused; set the base URL to the final address"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, req := serve(t, 0, func(w http.ResponseWriter, r *http.Request) {
				for k, v := range tt.header {
					w.Header().Set(k, v)
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			})
			_, err := c.Do(t.Context(), req)
			tt.want.Status = tt.status
			require.Equal(t, &tt.want, requireClass(t, err, tt.want.Class))
		})
	}
}

func TestClient_LongErrorBodyIsCut(t *testing.T) {
	t.Parallel()
	c, req := serve(t, 0, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, strings.Repeat("error ", 1<<20))
	})
	_, err := c.Do(t.Context(), req)
	requireClass(t, err, model.ClassInvalidRequest)
}

// A redirect must not be followed even by a client that the host brought: Go
// would send the key and the prompt along.
func TestClient_RedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("followed") }))
	t.Cleanup(other.Close)
	srv := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(srv.Close)
	host := srv.Client()
	host.Timeout = time.Nanosecond // would end every request
	c := NewClient(&Options{HTTPClient: host})
	_, err := c.Do(t.Context(), &Request{URL: srv.URL, Body: []byte("{}")})
	requireClass(t, err, model.ClassInvalidRequest)
	require.Equal(t, time.Nanosecond, host.Timeout, "the host's client is left alone")
}

func TestClient_Stalls(t *testing.T) {
	t.Parallel()
	const idle = 50 * time.Millisecond
	hang := func(before string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if before != "" {
				stream(w, before)
			}
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
	}
	t.Run("in the middle of an answer", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, idle, hang("data: 1\n\n"))
		s, err := c.Do(t.Context(), req)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(t, err)
		_, err = s.Next()
		e := requireClass(t, err, model.ClassStalled)
		require.Equal(t, "req_7", e.RequestID)
		require.True(t, e.Retryable())
	})
	t.Run("before the headers", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, idle, hang(""))
		_, err := c.Do(t.Context(), req)
		requireClass(t, err, model.ClassTimeout)
	})
	t.Run("before the headers, with the host's client", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewServer(hang(""))
		t.Cleanup(srv.Close)
		c := NewClient(&Options{HTTPClient: srv.Client(), IdleTimeout: idle})
		_, err := c.Do(t.Context(), &Request{URL: srv.URL, Body: []byte("{}")})
		requireClass(t, err, model.ClassTimeout)
	})
	t.Run("in an error body", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, idle, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		})
		_, err := c.Do(t.Context(), req)
		requireClass(t, err, model.ClassOverloaded)
	})
}

// The idle limit is about bytes, not about the whole answer, and comments are
// bytes too.
func TestClient_SlowIsNotStalled(t *testing.T) {
	t.Parallel()
	const idle = 400 * time.Millisecond
	c, req := serve(t, idle, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(idle / 4)
		defer tick.Stop()
		for range 8 {
			stream(w, ": working\n\n")
			<-tick.C
		}
		stream(w, "data: 1\n\n")
	})
	s, err := c.Do(t.Context(), req)
	require.NoError(t, err)
	defer s.Close()
	_, err = s.Next()
	require.NoError(t, err)
}

// Nor is a request whose body takes long to send.
func TestClient_SlowUploadIsNotStalled(t *testing.T) {
	t.Parallel()
	const idle = 400 * time.Millisecond
	c, req := serve(t, idle, func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(idle / 10)
		defer tick.Stop()
		for {
			if _, err := io.CopyN(io.Discard, r.Body, 1<<20); err != nil {
				break
			}
			<-tick.C
		}
		stream(w, "data: 1\n\n")
	})
	req.Body = make([]byte, 32<<20)
	s, err := c.Do(t.Context(), req)
	require.NoError(t, err)
	s.Close()
}

func TestClient_ConnectionLost(t *testing.T) {
	t.Parallel()
	t.Run("in the middle of an answer", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, 0, func(w http.ResponseWriter, r *http.Request) {
			stream(w, "data: 1\n\n")
			panic(http.ErrAbortHandler)
		})
		s, err := c.Do(t.Context(), req)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(t, err)
		_, err = s.Next()
		requireClass(t, err, model.ClassNetwork)
	})
	t.Run("before the headers", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, 0, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		_, err := c.Do(t.Context(), req)
		requireClass(t, err, model.ClassNetwork)
	})
	t.Run("refused", func(t *testing.T) {
		t.Parallel()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addr := l.Addr().String()
		require.NoError(t, l.Close())
		_, err = NewClient(nil).Do(t.Context(), &Request{URL: "http://" + addr + "/?key=" + key, Body: []byte("{}")})
		e := requireClass(t, err, model.ClassNetwork)
		require.True(t, e.Retryable())
		require.NotContains(t, e.Err.Error(), key)
	})
	t.Run("certificate that is not trusted", func(t *testing.T) {
		t.Parallel()
		srv := httptest.NewUnstartedServer(http.NotFoundHandler())
		srv.Config.ErrorLog = quiet()
		srv.StartTLS()
		t.Cleanup(srv.Close)
		c := NewClient(nil)
		t.Cleanup(c.http.CloseIdleConnections)
		_, err := c.Do(t.Context(), &Request{URL: srv.URL, Body: []byte("{}")})
		require.False(t, requireClass(t, err, model.ClassNetwork).Retryable())
	})
}

func TestClient_Cancel(t *testing.T) {
	t.Parallel()
	hang := func(w http.ResponseWriter, r *http.Request) {
		stream(w, "data: 1\n\n")
		<-r.Context().Done()
	}
	t.Run("while the answer runs", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, 0, hang)
		cause := errors.New("user pressed stop")
		ctx, cancel := context.WithCancelCause(t.Context())
		s, err := c.Do(ctx, req)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(t, err)
		cancel(cause)
		_, err = s.Next()
		requireClass(t, err, model.ClassAborted)
		require.ErrorIs(t, err, cause)
	})
	t.Run("before it is sent", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, 0, hang)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.Do(ctx, req)
		requireClass(t, err, model.ClassAborted)
	})
	t.Run("by its deadline", func(t *testing.T) {
		t.Parallel()
		c, req := serve(t, 0, hang)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		s, err := c.Do(ctx, req)
		require.NoError(t, err)
		defer s.Close()
		_, err = s.Next()
		require.NoError(t, err)
		_, err = s.Next()
		requireClass(t, err, model.ClassTimeout)
	})
}

func TestClient_BaseURLIsChecked(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{"", "api.example.com/v1", "ftp://example.com", "http://", "http://exa mple.com", "http://user:" + key + "@exa mple"} {
		_, err := NewClient(nil).Do(t.Context(), &Request{URL: bad})
		requireClass(t, err, model.ClassInvalidRequest)
	}
}

func TestStream_Errors(t *testing.T) {
	t.Parallel()
	c, req := serve(t, 0, func(w http.ResponseWriter, r *http.Request) { stream(w, "data: 1\n\n") })
	s, err := c.Do(t.Context(), req)
	require.NoError(t, err)
	s.Close()
	s.Close()
	e := requireClass(t, s.Failed(Failure{Type: "overloaded_error", Message: key}), model.ClassOverloaded)
	require.Equal(t, &model.Error{Class: model.ClassOverloaded, Message: "[masked]", Code: "overloaded_error", RequestID: "req_7"}, e)
	e = requireClass(t, s.Protocol(io.ErrUnexpectedEOF), model.ClassProtocol)
	require.ErrorIs(t, e, io.ErrUnexpectedEOF)
	require.Equal(t, "req_7", e.RequestID)
}
