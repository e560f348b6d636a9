package anthropic

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// DefaultBaseURL is where Anthropic serves the API.
const DefaultBaseURL = "https://api.anthropic.com"

const (
	apiVersion = "2023-06-01"
	oauthBeta  = "oauth-2025-04-20"
	maxPauses  = 8 // how often one answer may ask to be continued
)

// Options configure a [Provider]. Of several credentials the first in this
// order is used.
type Options struct {
	OAuthToken string // sent as a bearer token with the beta header for OAuth
	AuthToken  string // sent as a bearer token
	APIKey     string // sent as x-api-key
	// KeyOptional says that the server works without a credential, as local
	// ones do.
	KeyOptional bool

	// BaseURL is the server without the path /v1/messages; default
	// [DefaultBaseURL].
	BaseURL string
	// HTTPClient replaces the default client. Its Timeout and CheckRedirect
	// are not used: answers may be long, redirects are refused.
	HTTPClient *http.Client
	// IdleTimeout is how long a connection may move no byte before the request
	// fails as stalled; default 180 s.
	IdleTimeout time.Duration
	// Headers are added to every request. Values of Anthropic-Beta are joined
	// with those the adapter sends. A header that holds a credential
	// (Authorization, X-Api-Key) stands for the options above.
	Headers http.Header
}

// Provider sends requests to one server. It is safe for concurrent use.
type Provider struct {
	client  *wire.Client
	url     string
	header  http.Header
	secrets []string
	usable  bool
}

var (
	_ model.Provider     = (*Provider)(nil)
	_ model.Availability = (*Provider)(nil)
)

// New returns a provider; opts may be nil. A missing credential is reported by
// [Provider.Available] and by every request, so that a host may offer the
// provider before it has one.
func New(opts *Options) *Provider {
	if opts == nil {
		opts = &Options{}
	}
	p := &Provider{
		client: wire.NewClient(&wire.Options{HTTPClient: opts.HTTPClient, IdleTimeout: opts.IdleTimeout}),
		url:    strings.TrimRight(cmp.Or(opts.BaseURL, DefaultBaseURL), "/") + "/v1/messages",
		header: http.Header{},
		usable: opts.KeyOptional,
	}
	for name, values := range opts.Headers {
		name = http.CanonicalHeaderKey(name)
		p.header[name] = slices.Clone(values)
		if name == "Authorization" || name == "X-Api-Key" {
			p.usable = true
			for _, v := range values {
				p.secrets = append(p.secrets, v, strings.TrimPrefix(v, "Bearer "))
			}
		}
	}
	betas := p.header.Values("Anthropic-Beta")
	if p.header.Get("Anthropic-Version") == "" {
		p.header.Set("Anthropic-Version", apiVersion)
	}
	secret := cmp.Or(opts.OAuthToken, opts.AuthToken, opts.APIKey)
	switch {
	case opts.OAuthToken != "":
		p.header.Set("Authorization", "Bearer "+secret)
		betas = append(betas, oauthBeta)
	case opts.AuthToken != "":
		p.header.Set("Authorization", "Bearer "+secret)
	case opts.APIKey != "":
		p.header.Set("X-Api-Key", secret)
	}
	if secret != "" {
		p.usable, p.secrets = true, append(p.secrets, secret)
	}
	if len(betas) > 0 {
		p.header.Set("Anthropic-Beta", strings.Join(betas, ","))
	}
	return p
}

// Available returns an error that wraps [model.ErrMissingCredential] when the
// provider has no credential.
func (p *Provider) Available() error {
	if !p.usable {
		return fmt.Errorf("anthropic: %w", model.ErrMissingCredential)
	}
	return nil
}

// Stream implements [model.Provider].
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	if err := p.Available(); err != nil {
		return nil, &model.Error{Class: model.ClassAuth, Message: err.Error(), Err: err}
	}
	d := newDecoder(req, emit)
	messages := req.Messages
	for range maxPauses {
		body, err := encode(req, messages)
		if err != nil {
			return d.failed(&model.Error{Class: model.ClassInvalidRequest, Message: err.Error(), Err: err})
		}
		paused, err := p.once(ctx, body, d)
		if err != nil {
			return d.failed(err)
		}
		if !paused {
			return d.response()
		}
		// The server wants the turn sent back as it is, and goes on with it.
		messages = append(req.Messages[:len(req.Messages):len(req.Messages)], d.soFar())
	}
	return d.failed(&model.Error{Class: model.ClassServerError, Message: fmt.Sprintf("the answer paused %d times", maxPauses)})
}

// once sends one request and reads its answer into d. It reports whether the
// server paused the turn.
func (p *Provider) once(ctx context.Context, body []byte, d *decoder) (paused bool, err error) {
	stream, err := p.client.Do(ctx, &wire.Request{URL: p.url, Header: p.header, Body: body, Secrets: p.secrets})
	if err != nil {
		return false, err
	}
	defer stream.Close()
	return d.read(stream)
}
