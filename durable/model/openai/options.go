package openai

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// DefaultBaseURL is where requests go without [Options.BaseURL].
const DefaultBaseURL = "https://api.openai.com/v1"

// Options are the settings of [Chat] and [Responses]; nil is the zero value,
// which has no key.
type Options struct {
	// APIKey is sent as a bearer token.
	APIKey string
	// KeyOptional says that the server needs no key, as local ones do not.
	KeyOptional bool
	// BaseURL ends in /v1; a query it holds goes with every request. Default
	// [DefaultBaseURL].
	BaseURL string
	// HTTPClient replaces the default one. Its Timeout and CheckRedirect are
	// not used.
	HTTPClient *http.Client
	// IdleTimeout is how long a request may move no byte. Default 180 s.
	IdleTimeout time.Duration
	// Headers go with every request and win over the package's own. One that
	// holds a credential (Authorization, Api-Key) stands for APIKey.
	Headers http.Header
}

// endpoint is what both APIs share: where requests go and with what right.
type endpoint struct {
	client  *wire.Client
	base    string
	own     bool // base is at OpenAI's host
	header  http.Header
	secrets []string
	missing error // no credential
}

func newEndpoint(opts *Options) *endpoint {
	if opts == nil {
		opts = &Options{}
	}
	e := &endpoint{
		client: wire.NewClient(&wire.Options{HTTPClient: opts.HTTPClient, IdleTimeout: opts.IdleTimeout}),
		base:   cmp.Or(opts.BaseURL, DefaultBaseURL),
		header: http.Header{},
	}
	if u, err := url.Parse(e.base); err == nil {
		e.own = u.Hostname() == "api.openai.com"
		if u.User != nil {
			if p, ok := u.User.Password(); ok {
				e.secrets = append(e.secrets, p)
			}
		}
	}
	hasKey := opts.APIKey != ""
	if hasKey {
		e.header.Set("Authorization", "Bearer "+opts.APIKey)
		e.secrets = append(e.secrets, opts.APIKey)
	}
	for name, values := range opts.Headers {
		name = http.CanonicalHeaderKey(name)
		e.header[name] = slices.Clone(values)
		if !secretHeader(name) {
			continue
		}
		for _, v := range values {
			e.secrets = append(e.secrets, v, strings.TrimPrefix(v, "Bearer "))
			hasKey = hasKey || v != ""
		}
	}
	if !hasKey && !opts.KeyOptional {
		e.missing = fmt.Errorf("openai: no API key: %w", model.ErrMissingCredential)
	}
	return e
}

// secretHeader reports whether a header holds a credential, by its name.
func secretHeader(name string) bool {
	name = strings.ToLower(name)
	for _, sign := range []string{"authorization", "key", "token", "secret", "cookie"} {
		if strings.Contains(name, sign) {
			return true
		}
	}
	return false
}

// do posts body to a path below the base.
func (e *endpoint) do(ctx context.Context, path string, body []byte) (*wire.Stream, error) {
	if e.missing != nil {
		return nil, &model.Error{Class: model.ClassAuth, Message: e.missing.Error(), Err: e.missing}
	}
	target := e.base + path
	if u, err := url.Parse(e.base); err == nil {
		u.Path = strings.TrimRight(u.Path, "/") + path
		u.RawPath = ""
		target = u.String()
	}
	return e.client.Do(ctx, &wire.Request{URL: target, Header: e.header, Body: body, Secrets: e.secrets})
}

// cacheKey returns the session id as prompt_cache_key, which may have 64
// characters.
func cacheKey(session string) string {
	if len(session) <= 64 {
		return session
	}
	sum := sha256.Sum256([]byte(session))
	return hex.EncodeToString(sum[:])
}

// maxOutput returns the output limit, within what the model can do.
func maxOutput(req *model.Request) int {
	if m := req.Model.MaxOutput; m > 0 {
		return min(req.MaxOutputTokens, m)
	}
	return req.MaxOutputTokens
}

func badRequest(err error) *model.Error {
	return &model.Error{Class: model.ClassInvalidRequest, Message: err.Error(), Err: err}
}
