package chat

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/server"
)

// (S1.1) The token goes only to the server that wrote server.json, also when
// something else has its port in the middle of a session.
func TestDialer(t *testing.T) {
	t.Parallel()
	key := []byte("the key of this start")
	var mu sync.Mutex
	proving, status, tokens := key, http.StatusOK, []string{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/healthz" {
			w.Header().Set("Wp-Durable-Proof", server.Proof(proving, r.Header.Get("Wp-Durable-Challenge")))
			w.WriteHeader(status)
		} else {
			w.Header().Set("Connection", "close")
		}
		if a := r.Header.Get("Authorization"); a != "" {
			tokens = append(tokens, r.URL.Path)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer srv.Close()
	at := &Address{Addr: strings.TrimPrefix(srv.URL, "http://"), Key: key}
	d := &Dialer{Find: func() (*Address, error) { return at, nil }}
	c := &Client{Base: "http://localhost", Token: "the-token", HTTP: &http.Client{Transport: d.Transport()}}
	require.NoError(t, c.call(t.Context(), "GET", "/v1/usage", nil, &struct{}{}))
	require.Equal(t, []string{"/v1/usage"}, tokens, "the health check has no token")

	mu.Lock()
	proving = []byte("another key")
	mu.Unlock()
	require.ErrorIs(t, c.call(t.Context(), "GET", "/v1/usage", nil, &struct{}{}), errImpostor)
	at = &Address{Addr: at.Addr}
	require.ErrorIs(t, c.call(t.Context(), "GET", "/v1/usage", nil, &struct{}{}), errImpostor)
	at = &Address{Addr: at.Addr, Key: key}
	mu.Lock()
	proving, status = key, http.StatusServiceUnavailable
	mu.Unlock()
	var refused *Error
	require.ErrorAs(t, c.call(t.Context(), "GET", "/v1/usage", nil, &struct{}{}), &refused)
	require.Equal(t, 503, refused.Status)
	require.Len(t, tokens, 1)
}
