package openai

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Responses speaks the Responses API. It is safe for concurrent use.
type Responses struct{ *endpoint }

var (
	_ model.Provider     = (*Responses)(nil)
	_ model.Availability = (*Responses)(nil)
)

// NewResponses returns a provider for the Responses API; opts may be nil.
func NewResponses(opts *Options) *Responses { return &Responses{newEndpoint(opts)} }

// Available returns an error when there is no key and one is needed.
func (r *Responses) Available() error { return r.missing }

// Stream sends req. An answer is whole when the event came that ends the
// response.
func (r *Responses) Stream(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	text, err := responsesBody(req, r.own)
	if err != nil {
		return nil, badRequest(err)
	}
	s, err := r.do(ctx, "/responses", text)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d := newResponsesDecoder(req, s, emit)
	for {
		ev, err := s.Next()
		if errors.Is(err, io.EOF) || (err == nil && bytes.Equal(bytes.TrimSpace(ev.Data), doneMarker)) {
			return d.failed(s.Incomplete())
		}
		if err == nil {
			err = d.event(ev)
		}
		if err != nil {
			return d.failed(err)
		}
		if d.final != nil {
			return d.end()
		}
	}
}
