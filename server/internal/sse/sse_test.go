package sse

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// script is a source that yields what it is given until the channel is closed.
type script chan item

func (s script) source(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			select {
			case it, ok := <-s:
				if !ok || !yield(it.event, it.err) {
					return
				}
			case <-ctx.Done():
				yield(Event{}, ctx.Err())
				return
			}
		}
	}
}

func event(id, data string) item { return item{event: Event{ID: id, Name: "text", Data: []byte(data)}} }

// serve starts a server with one stream; failed receives what Serve returned.
func serve(t *testing.T, o Options, s script) (srv *httptest.Server, failed chan error) {
	t.Helper()
	failed = make(chan error, 10)
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := Serve(w, r, o, s.source)
		if err != nil {
			http.Error(w, err.Error(), http.StatusTeapot)
		}
		failed <- err
	}))
	t.Cleanup(srv.Close)
	return srv, failed
}

func get(t *testing.T, srv *httptest.Server, method string) *http.Response {
	t.Helper()
	// A stream that is silent for ever fails instead of hanging.
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, srv.URL, nil)
	require.NoError(t, err)
	res, err := srv.Client().Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func TestServe(t *testing.T) {
	t.Parallel()
	s := make(script, 3)
	srv, failed := serve(t, Options{}, s)
	s <- event("1", `{"a":1}`)
	s <- item{event: Event{Data: []byte("two\nlines\n")}}
	s <- event("2", "x")
	close(s)
	res := get(t, srv, http.MethodGet)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	require.Equal(t, "no-store", res.Header.Get("Cache-Control"))
	require.Equal(t, "no", res.Header.Get("X-Accel-Buffering"))
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	require.Equal(t, "id: 1\nevent: text\ndata: {\"a\":1}\n\ndata: two\ndata: lines\n\nid: 2\nevent: text\ndata: x\n\n", string(body))
	require.NoError(t, <-failed)
}

func TestServe_EventsAreSentAtOnce(t *testing.T) {
	t.Parallel()
	s := make(script)
	srv, _ := serve(t, Options{Patience: time.Hour}, s)
	go func() { s <- event("1", "a") }()
	lines := bufio.NewReader(get(t, srv, http.MethodGet).Body)
	for _, id := range []string{"1", "2", "3"} {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, "id: "+id+"\n", line)
		for range 3 {
			_, err = lines.ReadString('\n')
			require.NoError(t, err)
		}
		if id != "3" {
			s <- event(string(id[0]+1), "a")
		}
	}
}

// (S2) An edge that cuts silent responses never cuts a stream.
func TestServe_Heartbeat(t *testing.T) {
	t.Parallel()
	s := make(script)
	srv, _ := serve(t, Options{Heartbeat: 5 * time.Millisecond, Patience: time.Millisecond}, s)
	lines := bufio.NewReader(get(t, srv, http.MethodGet).Body)
	for range 3 {
		line, err := lines.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, ": hb\n", line)
		_, err = lines.ReadString('\n')
		require.NoError(t, err)
	}
}

func TestServe_ErrorBeforeTheFirstByte(t *testing.T) {
	t.Parallel()
	s := make(script, 1)
	srv, failed := serve(t, Options{Patience: time.Hour}, s)
	s <- item{err: errors.New("no such thing")}
	res := get(t, srv, http.MethodGet)
	require.Equal(t, http.StatusTeapot, res.StatusCode)
	require.ErrorContains(t, <-failed, "no such thing")
}

func TestServe_LaterErrorCutsTheStream(t *testing.T) {
	t.Parallel()
	s := make(script, 2)
	srv, _ := serve(t, Options{}, s)
	s <- event("1", "a")
	s <- item{err: errors.New("lost")}
	body, err := io.ReadAll(get(t, srv, http.MethodGet).Body)
	require.Error(t, err, "a cut stream must not look complete")
	require.Contains(t, string(body), "id: 1")
}

// (S1.4)
func TestServe_Bye(t *testing.T) {
	t.Parallel()
	closing := make(chan struct{})
	bye := &Event{ID: "b", Name: "bye", Data: []byte("{}")}
	s := make(script, 1)
	srv, failed := serve(t, Options{Closing: closing, Bye: bye}, s)
	s <- event("1", "a")
	lines := bufio.NewReader(get(t, srv, http.MethodGet).Body)
	_, err := lines.ReadString('\n')
	require.NoError(t, err)
	close(closing)
	rest, err := io.ReadAll(lines)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(rest), "id: b\nevent: bye\ndata: {}\n\n"), "%q", rest)
	require.NoError(t, <-failed)

	// A source that ends with the engine says bye too, also as the first event.
	s <- item{err: errors.New("engine is closed")}
	body, err := io.ReadAll(get(t, srv, http.MethodGet).Body)
	require.NoError(t, err)
	require.Contains(t, string(body), "event: bye")
}

func TestServe_Head(t *testing.T) {
	t.Parallel()
	srv, failed := serve(t, Options{}, make(script))
	res := get(t, srv, http.MethodHead)
	require.Equal(t, "text/event-stream", res.Header.Get("Content-Type"))
	require.NoError(t, <-failed)
}

func TestServe_ClientLeaves(t *testing.T) {
	t.Parallel()
	s := make(script)
	srv, failed := serve(t, Options{Patience: time.Millisecond}, s)
	res := get(t, srv, http.MethodGet)
	require.NoError(t, res.Body.Close())
	require.NoError(t, <-failed)
}

// (S8) A client that does not read is given up, and its source with it.
func TestServe_SlowClient(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		big := Event{Data: []byte(strings.Repeat("x", 1<<20))}
		ended <- Serve(w, r, Options{WriteTimeout: 20 * time.Millisecond}, func(context.Context) iter.Seq2[Event, error] {
			return func(yield func(Event, error) bool) {
				for yield(big, nil) {
				}
			}
		})
	}))
	t.Cleanup(srv.Close)
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = io.WriteString(c, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
	require.NoError(t, err)
	require.NoError(t, <-ended)
}

// Why a stream that has begun is cut off is told.
func TestServe_Cut(t *testing.T) {
	t.Parallel()
	cause := errors.New("disk on fire")
	cut := make(chan error, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = Serve(w, r, Options{Cut: func(err error) { cut <- err }}, func(context.Context) iter.Seq2[Event, error] {
			return func(yield func(Event, error) bool) {
				_ = yield(Event{Name: "text", Data: []byte("x")}, nil) && yield(Event{}, cause)
			}
		})
	}))
	t.Cleanup(srv.Close)
	_, err := io.ReadAll(get(t, srv, http.MethodGet).Body)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, cause, <-cut)
}
