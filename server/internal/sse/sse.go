// Package sse writes server-sent events: with string ids, comments against
// silence, a deadline for each event, and an end that says whether to come
// back. It knows nothing of the engine.
package sse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"
)

// Event is one event of a stream.
type Event struct {
	ID   string // empty for none
	Name string
	Data []byte // one line
}

// Options say how a stream is served. Zero fields have the default they name.
type Options struct {
	// Heartbeat is the longest silence. Default 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long the client may take to accept what is written.
	// Default 30 s.
	WriteTimeout time.Duration
	// Patience is how long the first event may take before the headers are
	// sent without it. Default 100 ms.
	Patience time.Duration
	// Closing, when closed, ends the stream.
	Closing <-chan struct{}
	// Cut, when not nil, is told why a stream that has begun is cut off.
	Cut func(error)
	// Bye, when not nil, is the last event of a stream that Closing ended.
	Bye *Event
}

// Serve writes the events of source to w until they end, the client leaves or
// the server closes. The context of source ends with the stream, and Serve
// waits for source to return.
//
// An error of source before anything was written is returned; the response is
// then still the caller's. Later ones cut the stream off, so that the client
// comes back.
func Serve(w http.ResponseWriter, r *http.Request, o Options, source func(ctx context.Context) iter.Seq2[Event, error]) error {
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 30 * time.Second
	}
	if o.Patience == 0 {
		o.Patience = 100 * time.Millisecond
	}
	s := &stream{outer: w, inner: innermost(w), rc: http.NewResponseController(w), timeout: o.WriteTimeout}
	if r.Method == http.MethodHead {
		s.begin()
		return nil
	}
	ctx, cancel := context.WithCancel(r.Context())
	items := make(chan item, queue)
	go produce(ctx, source(ctx), items)
	defer func() {
		cancel()
		for range items { // closed when the producer has returned
		}
	}()
	return s.run(ctx, o, items)
}

// queue is how many events may be ready before they are written.
const queue = 64

type item struct {
	event Event
	err   error
}

// produce passes events on until they or ctx end, and closes items.
func produce(ctx context.Context, events iter.Seq2[Event, error], items chan<- item) {
	defer close(items)
	for ev, err := range events {
		select {
		case items <- item{ev, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// stream is a response under way.
type stream struct {
	outer, inner http.ResponseWriter
	rc           *http.ResponseController
	timeout      time.Duration
	begun        bool
}

// innermost returns the writer whose errors are not hidden.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = u.Unwrap()
	}
}

// errLost: the client is gone, or too slow.
var errLost = errors.New("client lost")

func (s *stream) run(ctx context.Context, o Options, items <-chan item) error {
	first := time.NewTimer(o.Patience)
	defer first.Stop()
	silence := time.NewTimer(o.Heartbeat)
	defer silence.Stop()
	for {
		var err error
		select {
		case it, ok := <-items:
			text, ended, cause := gather(it, ok, items)
			if text != "" {
				err = s.write(text)
			}
			if cause != nil && err == nil {
				return s.failed(ctx, o, cause)
			}
			if ended {
				return nil
			}
		case <-first.C:
			err = s.flush()
		case <-silence.C:
			err = s.write(": hb\n\n")
		case <-o.Closing:
			s.bye(o)
			return nil
		case <-ctx.Done():
			return nil
		}
		if err != nil {
			return nil
		}
		silence.Reset(o.Heartbeat)
	}
}

// gather returns the text of an item and of those that are ready behind it,
// and whether the source has ended, and how.
func gather(it item, ok bool, items <-chan item) (text string, ended bool, err error) {
	const enough = 32 << 10
	for ok && it.err == nil {
		text += encode(it.event)
		if len(text) >= enough {
			return text, false, nil
		}
		select {
		case it, ok = <-items:
		default:
			return text, false, nil
		}
	}
	return text, true, it.err
}

// failed ends a stream whose source has failed.
func (s *stream) failed(ctx context.Context, o Options, cause error) error {
	select {
	case <-o.Closing:
		s.bye(o)
		return nil
	default:
	}
	if ctx.Err() != nil {
		return nil // the client left
	}
	if !s.begun {
		return cause
	}
	if o.Cut != nil {
		o.Cut(cause)
	}
	panic(http.ErrAbortHandler)
}

func (s *stream) bye(o Options) {
	if o.Bye != nil {
		_ = s.write(encode(*o.Bye)) // the stream is over either way
	}
}

func encode(ev Event) string {
	var b strings.Builder
	if ev.ID != "" {
		fmt.Fprintf(&b, "id: %s\n", ev.ID)
	}
	if ev.Name != "" {
		fmt.Fprintf(&b, "event: %s\n", ev.Name)
	}
	fmt.Fprintf(&b, "data: %s\n\n", bytes.ReplaceAll(bytes.TrimRight(ev.Data, "\n"), []byte("\n"), []byte("\ndata: ")))
	return b.String()
}

func (s *stream) begin() {
	h := s.outer.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	s.outer.WriteHeader(http.StatusOK)
	s.begun = true
}

func (s *stream) write(text string) error {
	if !s.begun {
		s.begin()
	}
	// Writers without deadlines, as tests have, wait as long as they like.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.timeout))
	if _, err := io.WriteString(s.inner, text); err != nil {
		return errLost
	}
	return s.flush()
}

func (s *stream) flush() error {
	if !s.begun {
		s.begin()
	}
	if err := s.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errLost
	}
	return nil
}
