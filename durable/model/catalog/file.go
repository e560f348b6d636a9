package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/anthropic"
	"github.com/wp-durable/wp-durable/durable/model/openai"
)

// API names the wire format of a provider, and so its adapter.
type API string

// The APIs.
const (
	Anthropic       API = "anthropic"        // anthropic.New
	OpenAIResponses API = "openai-responses" // openai.NewResponses
	OpenAIChat      API = "openai-chat"      // openai.NewChat
)

// File is a list of providers and models.
type File struct {
	Providers map[string]Provider `json:"providers"` // by id
	Models    []model.Info        `json:"models"`
}

// Provider says where a provider is and how it is spoken to.
type Provider struct {
	API     API    `json:"api"`
	BaseURL string `json:"baseUrl,omitempty"` // default that of the adapter
	// KeyEnv is the name of the environment variable that holds the key;
	// empty when no key is needed.
	KeyEnv  string            `json:"keyEnv,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// maxFile bounds what is read of a file.
const maxFile = 4 << 20

// Load reads a user's models file. Unknown fields, and values that cannot be
// meant, are errors that name the field.
func Load(r io.Reader) (*File, error) {
	f, err := read(r, builtinAPIs())
	if err != nil {
		return nil, fmt.Errorf("models file: %w", err)
	}
	return f, nil
}

// read reads a file whose models may also belong to the providers of known.
func read(r io.Reader, known map[string]API) (*File, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("larger than %d bytes", maxFile)
	}
	var raw struct {
		Providers map[string]json.RawMessage `json:"providers"`
		Models    []json.RawMessage          `json:"models"`
	}
	if err := strict(data, &raw); err != nil {
		return nil, err
	}
	f := &File{Providers: map[string]Provider{}, Models: []model.Info{}}
	apis := maps.Clone(known)
	if apis == nil {
		apis = map[string]API{}
	}
	for _, id := range slices.Sorted(maps.Keys(raw.Providers)) {
		var p Provider
		if err := strict(raw.Providers[id], &p); err != nil {
			return nil, fmt.Errorf("providers.%s: %w", id, err)
		}
		if err := checkProvider(id, &p); err != nil {
			return nil, fmt.Errorf("providers.%s: %w", id, err)
		}
		f.Providers[id], apis[id] = p, p.API
	}
	seen := map[model.Ref]bool{}
	for i, data := range raw.Models {
		var m model.Info
		if err := strict(data, &m); err != nil {
			return nil, fmt.Errorf("models[%d]: %w", i, err)
		}
		if err := checkModel(&m, apis); err != nil {
			return nil, fmt.Errorf("models[%d]: %w", i, err)
		}
		ref := model.Ref{Provider: m.Provider, ModelID: m.ID}
		if seen[ref] {
			return nil, fmt.Errorf("models[%d]: id: %s is there twice", i, ref)
		}
		seen[ref] = true
		f.Models = append(f.Models, m)
	}
	return f, nil
}

// strict decodes one JSON value that must fill v and hold nothing else.
func strict(data []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if te, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return errors.New(strings.TrimPrefix(te.Field+": a JSON "+te.Value+" does not fit", ": "))
		}
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF {
		return errors.New("more follows after the end of the object")
	}
	return nil
}

var (
	idPattern     = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)
	envPattern    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	headerPattern = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")
)

func checkProvider(id string, p *Provider) error {
	if !idPattern.MatchString(id) {
		return errors.New("the id may hold only letters, digits and . _ -")
	}
	switch p.API {
	case Anthropic, OpenAIResponses, OpenAIChat:
	case "":
		return errors.New("api: missing")
	default:
		return fmt.Errorf("api: %q is not one of %s, %s, %s", p.API, Anthropic, OpenAIResponses, OpenAIChat)
	}
	if p.BaseURL != "" {
		u, err := url.Parse(p.BaseURL)
		switch {
		case err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "":
			return errors.New("baseUrl: not an http or https URL")
		case u.User != nil:
			return errors.New("baseUrl: holds a user; name the key's variable in keyEnv")
		case u.Fragment != "":
			return errors.New("baseUrl: holds a fragment")
		}
	}
	if p.KeyEnv != "" && !envPattern.MatchString(p.KeyEnv) {
		return errors.New("keyEnv: not the name of an environment variable")
	}
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		if !headerPattern.MatchString(name) {
			return fmt.Errorf("headers: %q is not the name of a header", name)
		}
		if strings.ContainsAny(p.Headers[name], "\r\n\x00") {
			return fmt.Errorf("headers.%s: the value holds a line end", name)
		}
		if canonical := http.CanonicalHeaderKey(name); seen[canonical] {
			return fmt.Errorf("headers.%s: is there twice", name)
		} else {
			seen[canonical] = true
		}
	}
	return nil
}

func checkModel(m *model.Info, apis map[string]API) error {
	api, known := apis[m.Provider]
	switch {
	case m.Provider == "":
		return errors.New("provider: missing")
	case !known:
		return fmt.Errorf("provider: %q is not among the providers", m.Provider)
	case m.ID == "":
		return errors.New("id: missing")
	case strings.TrimSpace(m.ID) != m.ID || strings.ContainsAny(m.ID, "\r\n\t\x00"):
		return fmt.Errorf("id: %q holds white space", m.ID)
	case m.ContextWindow <= 0:
		return errors.New("contextWindow: must be above 0")
	case m.MaxOutput < 0:
		return errors.New("maxOutput: must not be below 0")
	case m.MaxOutput > m.ContextWindow:
		return errors.New("maxOutput: is above contextWindow")
	}
	if m.Prices != nil {
		if err := checkPrices(m.Prices); err != nil {
			return fmt.Errorf("prices.%w", err)
		}
	}
	seen := map[model.ThinkingLevel]bool{}
	for i, l := range m.ThinkingLevels {
		switch {
		case !l.Valid() || l == model.ThinkingOff:
			return fmt.Errorf("thinkingLevels[%d]: %q is not one of minimal, low, medium, high, xhigh, max", i, l)
		case seen[l]:
			return fmt.Errorf("thinkingLevels[%d]: %q is there twice", i, l)
		}
		seen[l] = true
	}
	check := openai.CheckQuirks
	if api == Anthropic {
		check = anthropic.CheckQuirks
	}
	if err := check(m.Quirks); err != nil {
		return fmt.Errorf("quirks: %w", err)
	}
	return nil
}

func checkPrices(p *model.Prices) error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"input", p.Input}, {"output", p.Output}, {"cacheRead", p.CacheRead}, {"cacheWrite", p.CacheWrite}} {
		if f.value < 0 {
			return fmt.Errorf("%s: must not be below 0", f.name)
		}
	}
	switch {
	case p.LongAbove < 0 || (p.LongAbove > 0) != (p.Long != nil):
		return errors.New("longAbove: long and longAbove belong together, longAbove above 0")
	case p.Long == nil:
		return nil
	case p.Long.Long != nil:
		return errors.New("long.long: only one level")
	}
	if err := checkPrices(p.Long); err != nil {
		return fmt.Errorf("long.%w", err)
	}
	return nil
}
