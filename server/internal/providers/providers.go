// Package providers makes the set of models a server offers: the built-in
// catalog, the user's models file, and what the environment says of keys and
// servers (S1.2). It depends on durable/model and the adapters below it, and
// knows nothing of the engine and of HTTP.
package providers

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/anthropic"
	"github.com/wp-durable/wp-durable/durable/model/catalog"
	"github.com/wp-durable/wp-durable/durable/model/demo"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/model/openai"
	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

// Models is what a server offers.
type Models struct {
	Set *model.Set
	// Default is what conversations use that name no model.
	Default model.Ref
	// Faux is the scripted provider of tests, nil without it.
	Faux *faux.Provider
	// Demo says that the default is the demo, because no provider has a key.
	Demo bool

	redact *secrets.Redactor
}

// favourites are the defaults of providers where the user names none.
var favourites = []model.Ref{
	{Provider: "anthropic", ModelID: "claude-sonnet-5-5"},
	{Provider: "openai", ModelID: "gpt-6.2-sol"},
}

// New makes the models of a configuration. lookup finds the keys that
// providers name, and redact learns every credential.
func New(c *config.Config, lookup func(string) (string, bool), redact *secrets.Redactor) (*Models, error) {
	file, err := load(c.ModelsFile)
	if err != nil {
		return nil, err
	}
	b := &builder{config: c, lookup: lookup, redact: redact, set: &model.Set{}, idle: time.Duration(c.Limits.ModelIdleMS) * time.Millisecond}
	builtin := catalog.Builtin()
	order := slices.Sorted(maps.Keys(builtin.Providers))
	for id, p := range file.Providers {
		if _, ok := builtin.Providers[id]; !ok {
			order = append(order, id)
		}
		builtin.Providers[id] = p
	}
	for _, id := range order {
		if err := b.add(id, builtin.Providers[id]); err != nil {
			return nil, fmt.Errorf("model provider %s: %w", id, err)
		}
	}
	b.set.AddModel(builtin.Models...)
	b.set.AddModel(file.Models...)
	m := &Models{Set: b.set, redact: redact}
	if c.Test.Faux {
		if m.Faux, err = newFaux(c.Test.FauxScript); err != nil {
			return nil, err
		}
		b.offer(faux.ProviderID, "", m.Faux)
		b.set.AddModel(faux.Model())
	}
	return m, m.choose(c, file.Models)
}

func load(path string) (*catalog.File, error) {
	if path == "" {
		return &catalog.File{}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("WP_DURABLE_MODELS_FILE: %w", err)
	}
	defer f.Close()
	file, err := catalog.Load(f)
	if err != nil {
		return nil, fmt.Errorf("WP_DURABLE_MODELS_FILE: %s: %w", path, err)
	}
	return file, nil
}

// KeyVariables returns the names of the variables that hold providers' keys:
// those of the catalog and of the user's file, as far as it can be read.
func KeyVariables(modelsFile string) []string {
	providers := catalog.Builtin().Providers
	if file, err := load(modelsFile); err == nil {
		maps.Copy(providers, file.Providers)
	}
	var names []string
	for _, p := range providers {
		if p.KeyEnv != "" {
			names = append(names, p.KeyEnv)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// builder adds providers to a set.
type builder struct {
	config *config.Config
	lookup func(string) (string, bool)
	redact *secrets.Redactor
	set    *model.Set
	idle   time.Duration
}

// offer adds a provider, whose answers are masked; variable is where its key
// comes from, empty when it needs none.
func (b *builder) offer(id, variable string, p model.Provider) {
	if variable != "" {
		p = &keyed{p, id, variable}
	}
	b.set.AddProvider(id, &masked{p, b.redact})
}

// key returns the value of a variable and makes it known as a secret.
func (b *builder) key(name, configured string) (string, error) {
	key := configured
	if key == "" && name != "" {
		key, _ = b.lookup(name)
	}
	return key, b.redact.Add(name, key)
}

func (b *builder) add(id string, p catalog.Provider) error {
	own := b.config.Providers
	configured, base := "", p.BaseURL
	switch id {
	case "anthropic":
		configured, base = own.AnthropicAPIKey, cmp.Or(own.AnthropicBaseURL, base)
	case "openai":
		configured, base = own.OpenAIAPIKey, cmp.Or(own.OpenAIBaseURL, base)
	}
	key, err := b.key(p.KeyEnv, configured)
	if err != nil {
		return err
	}
	headers := http.Header{}
	for name, value := range p.Headers {
		headers.Set(name, value)
		if err := b.headerSecret(name, value); err != nil {
			return err
		}
	}
	keyless := p.KeyEnv == ""
	switch p.API {
	case catalog.Anthropic:
		o := &anthropic.Options{APIKey: key, KeyOptional: keyless, BaseURL: base, IdleTimeout: b.idle, Headers: headers}
		if id == "anthropic" {
			o.AuthToken, o.OAuthToken = own.AnthropicAuthToken, own.AnthropicOAuthToken
			err = errors.Join(b.redact.Add("ANTHROPIC_AUTH_TOKEN", o.AuthToken), b.redact.Add("ANTHROPIC_OAUTH_TOKEN", o.OAuthToken))
		}
		b.offer(id, p.KeyEnv, anthropic.New(o))
	case catalog.OpenAIResponses:
		b.offer(id, p.KeyEnv, openai.NewResponses(b.openai(key, keyless, base, headers)))
	case catalog.OpenAIChat:
		b.offer(id, p.KeyEnv, openai.NewChat(b.openai(key, keyless, base, headers)))
	default:
		return fmt.Errorf("api %q is unknown", p.API)
	}
	return err
}

func (b *builder) openai(key string, keyless bool, base string, headers http.Header) *openai.Options {
	return &openai.Options{APIKey: key, KeyOptional: keyless, BaseURL: base, IdleTimeout: b.idle, Headers: headers}
}

// headerSecret makes the value of a header that holds a credential known, by
// the header's name.
func (b *builder) headerSecret(name, value string) error {
	for _, sign := range []string{"authorization", "key", "token", "secret", "cookie"} {
		if strings.Contains(strings.ToLower(name), sign) {
			_, credential, found := strings.Cut(value, " ")
			if !found {
				credential = value
			}
			return b.redact.Add("header "+name, credential)
		}
	}
	return nil
}

func newFaux(script string) (*faux.Provider, error) {
	p := faux.New(&faux.Options{Strict: true})
	if script == "" {
		return p, nil
	}
	data, err := os.ReadFile(script)
	if err != nil {
		return nil, fmt.Errorf("WP_DURABLE_FAUX_SCRIPT: %w", err)
	}
	s, err := faux.ParseScript(data)
	if err != nil {
		return nil, fmt.Errorf("WP_DURABLE_FAUX_SCRIPT: %w", err)
	}
	return p, p.Load(s)
}

// choose finds the default model: the configured one, the scripted one of
// tests, one whose provider has a key, or the demo.
func (m *Models) choose(c *config.Config, own []model.Info) error {
	if c.Model != "" {
		ref, err := model.ParseRef(c.Model)
		if err != nil {
			return fmt.Errorf("WP_DURABLE_MODEL: %w", err)
		}
		if _, ok := m.Set.Provider(ref.Provider); !ok {
			if ref.Provider != demo.ProviderID {
				return fmt.Errorf("WP_DURABLE_MODEL: there is no provider %q", ref.Provider)
			}
			m.addDemo()
		}
		m.Default = ref
		return nil
	}
	if m.Faux != nil {
		m.Default = model.Ref{Provider: faux.ProviderID, ModelID: faux.ModelID}
		return nil
	}
	candidates := slices.Clone(favourites)
	for _, info := range slices.Concat(own, m.Set.Models()) {
		candidates = append(candidates, model.Ref{Provider: info.Provider, ModelID: info.ID})
	}
	for _, ref := range candidates {
		if _, _, err := m.Set.Resolve(ref); err == nil {
			m.Default = ref
			return nil
		}
	}
	m.addDemo()
	return nil
}

func (m *Models) addDemo() {
	m.Set.AddProvider(demo.ProviderID, &masked{demo.New(nil), m.redact})
	m.Set.AddModel(demo.Model())
	m.Default, m.Demo = model.Ref{Provider: demo.ProviderID, ModelID: demo.ModelID}, true
}
