package wire

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
)

// DefaultIdleTimeout is how long a connection may move no byte.
const DefaultIdleTimeout = 180 * time.Second

// Options configure a [Client]. The zero value is ready.
type Options struct {
	// HTTPClient replaces the default one. Its Timeout and CheckRedirect are
	// not used: an answer may take as long as it moves, and a redirect is
	// refused, because the key and the prompt would follow it.
	HTTPClient *http.Client
	// IdleTimeout is how long a request may send nothing and receive nothing,
	// headers included; default [DefaultIdleTimeout].
	IdleTimeout time.Duration
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	http *http.Client
	idle time.Duration
}

// NewClient returns a client; opts may be nil.
func NewClient(opts *Options) *Client {
	if opts == nil {
		opts = &Options{}
	}
	c := &Client{idle: opts.IdleTimeout}
	if c.idle <= 0 {
		c.idle = DefaultIdleTimeout
	}
	if opts.HTTPClient != nil {
		h := *opts.HTTPClient
		c.http = &h
	} else {
		c.http = &http.Client{Transport: newTransport(c.idle)}
	}
	c.http.Timeout = 0
	c.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return c
}

// newTransport never compresses, because a compressed stream is buffered on its
// way, and finds a dead HTTP/2 connection by pings before the idle limit does.
func newTransport(idle time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dialer.DialContext,
		ForceAttemptHTTP2:     true,
		HTTP2:                 &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConns:          100,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   15 * time.Second,
		ExpectContinueTimeout: time.Second,
		ResponseHeaderTimeout: idle,
		DisableCompression:    true,
	}
}

// Request is one request.
type Request struct {
	Method string      // default POST
	URL    string      // whole, with path and query
	Header http.Header // credentials and the provider's own headers
	Body   []byte      // JSON; nil sends none
	// Secrets are masked in every error text. Put the key in here as well as
	// in Header.
	Secrets []string
}

// Stream is a running answer. It belongs to one goroutine and must be closed.
type Stream struct {
	header  http.Header
	body    io.ReadCloser
	events  *Reader
	conn    *conn
	secrets []string
}

// conn is what one request and its answer share.
type conn struct {
	parent  context.Context // the caller's
	ctx     context.Context // cancelled by errIdle, or when the stream is closed
	cancel  context.CancelCauseFunc
	idle    time.Duration
	timer   *time.Timer
	answers atomic.Bool // headers have arrived
}

var errIdle = errors.New("no byte was moved within the idle limit")

// Do sends the request and waits for the headers. It returns a stream for a
// 2xx answer that is a stream of events, else an [*model.Error].
func (c *Client) Do(ctx context.Context, req *Request) (*Stream, error) {
	u, err := url.Parse(req.URL)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, &model.Error{Class: model.ClassInvalidRequest, Message: "base URL is not an http or https URL"}
	}
	cn := &conn{parent: ctx, idle: c.idle}
	cn.ctx, cn.cancel = context.WithCancelCause(ctx)
	cn.timer = time.AfterFunc(c.idle, func() { cn.cancel(errIdle) })
	stream, err := c.do(cn, req)
	if err != nil {
		cn.close()
		return nil, err
	}
	return stream, nil
}

func (c *Client) do(cn *conn, req *Request) (*Stream, error) {
	hr, err := http.NewRequestWithContext(cn.ctx, cmp.Or(req.Method, http.MethodPost), req.URL, http.NoBody)
	if err != nil {
		return nil, &model.Error{Class: model.ClassInvalidRequest, Message: clean("build request: "+err.Error(), req.Secrets), Err: err}
	}
	if req.Body != nil {
		hr.GetBody = func() (io.ReadCloser, error) {
			return io.NopCloser(&movingReader{r: bytes.NewReader(req.Body), cn: cn}), nil
		}
		hr.Body, _ = hr.GetBody()
		hr.ContentLength = int64(len(req.Body))
		hr.Header.Set("Content-Type", "application/json")
	}
	hr.Header.Set("Accept", "text/event-stream")
	for name, values := range req.Header {
		hr.Header[http.CanonicalHeaderKey(name)] = values
	}
	resp, err := c.http.Do(hr)
	if err != nil {
		return nil, cn.failed(err, req.Secrets)
	}
	cn.answers.Store(true)
	cn.timer.Stop()
	s := &Stream{header: resp.Header, body: resp.Body, conn: cn, secrets: req.Secrets}
	if err := s.check(resp, hr.URL); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	s.events = NewReader(&answerReader{r: resp.Body, cn: cn})
	return s, nil
}

// Next returns the next event. It returns io.EOF when the body ended as HTTP
// says it should, and an [*model.Error] for everything else.
func (s *Stream) Next() (Event, error) {
	ev, err := s.events.Next()
	switch {
	case err == nil:
		return ev, nil
	case errors.Is(err, ErrEventTooLarge):
		return Event{}, s.Protocol(err)
	case errors.Is(err, io.EOF) && s.conn.ctx.Err() == nil:
		return Event{}, io.EOF
	}
	e := s.conn.failed(err, s.secrets)
	e.RequestID = s.RequestID()
	return Event{}, e
}

// Close releases the connection. It may be called more than once.
func (s *Stream) Close() {
	s.conn.close()
	_ = s.body.Close()
}

// Header returns the headers of the answer.
func (s *Stream) Header() http.Header { return s.header }

// RequestID returns the provider's id of the request, "" when it gave none.
func (s *Stream) RequestID() string { return requestID(s.header) }

func (cn *conn) close() {
	cn.timer.Stop()
	cn.cancel(context.Canceled)
}

// failed says what an error of the connection means.
func (cn *conn) failed(err error, secrets []string) *model.Error {
	if perr := cn.parent.Err(); perr != nil {
		e := &model.Error{Class: model.ClassAborted, Message: "request was cancelled", Err: context.Cause(cn.parent)}
		if errors.Is(perr, context.DeadlineExceeded) {
			e.Class, e.Message = model.ClassTimeout, "deadline of the request passed"
		}
		return e
	}
	if errors.Is(context.Cause(cn.ctx), errIdle) {
		if cn.answers.Load() {
			return &model.Error{Class: model.ClassStalled, Message: fmt.Sprintf("answer stalled: no byte for %s", cn.idle), Err: errIdle}
		}
		return &model.Error{Class: model.ClassTimeout, Message: fmt.Sprintf("no answer within %s", cn.idle), Err: errIdle}
	}
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err // without the URL, which may hold a credential
	}
	e := &model.Error{Class: model.ClassNetwork, Message: clean(err.Error(), secrets), Err: err}
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		e.Class = model.ClassTimeout
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		e.NoRetry = true
	}
	return e
}

// movingReader reads a request body and counts each read as life.
type movingReader struct {
	r  io.Reader
	cn *conn
}

func (r *movingReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if !r.cn.answers.Load() {
		r.cn.timer.Reset(r.cn.idle)
	}
	return n, err
}

// answerReader reads a response body. Only the time spent in Read counts as
// idle, not the time the caller takes between reads.
type answerReader struct {
	r  io.Reader
	cn *conn
}

func (r *answerReader) Read(p []byte) (int, error) {
	r.cn.timer.Reset(r.cn.idle)
	n, err := r.r.Read(p)
	r.cn.timer.Stop()
	return n, err
}
