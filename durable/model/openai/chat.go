package openai

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// Chat speaks Chat Completions. It is safe for concurrent use.
type Chat struct{ *endpoint }

var (
	_ model.Provider     = (*Chat)(nil)
	_ model.Availability = (*Chat)(nil)
)

// NewChat returns a provider for Chat Completions; opts may be nil.
func NewChat(opts *Options) *Chat { return &Chat{newEndpoint(opts)} }

// Available returns an error when there is no key and one is needed.
func (c *Chat) Available() error { return c.missing }

// Stream sends req. An answer is whole when a chunk named a finish reason;
// what the connection does after that no longer matters.
func (c *Chat) Stream(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	text, err := chatBody(req, c.own)
	if err != nil {
		return nil, badRequest(err)
	}
	s, err := c.do(ctx, "/chat/completions", text)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	d := newChatDecoder(req, s, emit)
	for {
		ev, err := s.Next()
		if errors.Is(err, io.EOF) || (err == nil && bytes.Equal(bytes.TrimSpace(ev.Data), doneMarker)) {
			return d.end()
		}
		if err == nil {
			err = d.event(ev)
		}
		if err != nil {
			if d.finish != "" && ctx.Err() == nil && !d.refused(err) {
				return d.end()
			}
			return d.failed(err)
		}
	}
}

var doneMarker = []byte("[DONE]")

// failure makes the error of an error object inside an answer.
func failure(s *wire.Stream, data []byte) *model.Error {
	f, ok := wire.ParseFailure(data)
	if !ok {
		f.Message = "the server reported an error without a description"
	}
	return s.Failed(f)
}

// isNull reports whether a field is absent, null, or an empty object, string
// or list.
func isNull(data []byte) bool {
	switch string(bytes.TrimSpace(data)) {
	case "", "null", "{}", `""`, "[]", "false":
		return true
	}
	return false
}
