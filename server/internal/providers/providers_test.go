package providers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.json")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func newModels(t *testing.T, env map[string]string, change func(*config.Config)) (*Models, *secrets.Redactor, error) {
	t.Helper()
	c := config.Default()
	if change != nil {
		change(c)
	}
	redact := secrets.NewRedactor()
	m, err := New(c, func(name string) (string, bool) { v, ok := env[name]; return v, ok }, redact)
	return m, redact, err
}

// (S1.1) With no key the demo answers; a key makes its models available.
func TestNew_Default(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		env    map[string]string
		change func(*config.Config)
		want   string
		demo   bool
	}{
		{"nothing", nil, nil, "demo/demo", true},
		{"Anthropic key", nil, func(c *config.Config) { c.Providers.AnthropicAPIKey = "sk-12345678" }, "anthropic/claude-sonnet-5-5", false},
		{"Anthropic token", nil, func(c *config.Config) { c.Providers.AnthropicAuthToken = "tk-12345678" }, "anthropic/claude-sonnet-5-5", false},
		{"Anthropic OAuth token", nil, func(c *config.Config) { c.Providers.AnthropicOAuthToken = "oa-12345678" }, "anthropic/claude-sonnet-5-5", false},
		{"OpenAI key", nil, func(c *config.Config) { c.Providers.OpenAIAPIKey = "sk-12345678" }, "openai/gpt-6.2-sol", false},
		{"another provider's key", map[string]string{"DEEPSEEK_API_KEY": "sk-12345678"}, nil, "deepseek/", false},
		{"configured", nil, func(c *config.Config) { c.Model = "openai/gpt-99" }, "openai/gpt-99", false},
		{"configured demo", nil, func(c *config.Config) { c.Model = "demo/demo"; c.Providers.OpenAIAPIKey = "sk-12345678" }, "demo/demo", true},
		{"faux", nil, func(c *config.Config) { c.Test.Faux = true; c.Providers.OpenAIAPIKey = "sk-12345678" }, "faux/faux-1", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m, redact, err := newModels(t, tt.env, tt.change)
			require.NoError(t, err)
			require.Contains(t, m.Default.String(), tt.want)
			require.Equal(t, tt.demo, m.Demo)
			if tt.name != "configured" {
				_, _, err = m.Set.Resolve(m.Default)
				require.NoError(t, err)
			}
			if !tt.demo && tt.want != "openai/gpt-99" {
				for _, prefix := range []string{"sk", "tk", "oa"} {
					if redact.String(prefix+"-12345678") == secrets.Mask {
						return
					}
				}
				t.Fatal("the credential is not known as a secret")
			}
		})
	}
	_, _, err := newModels(t, nil, func(c *config.Config) { c.Model = "nobody/x" })
	require.ErrorContains(t, err, "WP_DURABLE_MODEL")
	_, _, err = newModels(t, map[string]string{"DEEPSEEK_API_KEY": "short"}, nil)
	require.ErrorContains(t, err, "DEEPSEEK_API_KEY")
	m, _, err := newModels(t, nil, nil)
	require.NoError(t, err)
	require.Nil(t, m.Missing())

	// What is missing is named.
	m, _, err = newModels(t, nil, func(c *config.Config) { c.Model = "anthropic/x" })
	require.NoError(t, err)
	require.Equal(t, &MissingKeyError{"anthropic", "ANTHROPIC_API_KEY"}, m.Missing())
	_, _, err = m.Set.Resolve(model.Ref{Provider: "deepseek", ModelID: "x"})
	require.ErrorIs(t, err, model.ErrMissingCredential)
	require.EqualError(t, err, "model deepseek/x: deepseek: set DEEPSEEK_API_KEY")
}

// (S1.2) Providers without a key are shown with the reason.
func TestNew_WithoutKey(t *testing.T) {
	t.Parallel()
	m, _, err := newModels(t, nil, nil)
	require.NoError(t, err)
	_, _, err = m.Set.Resolve(model.Ref{Provider: "anthropic", ModelID: "claude-opus-5-5"})
	require.ErrorIs(t, err, model.ErrMissingCredential)
	require.Greater(t, len(m.Set.Models()), 50)
}

// (S1.2) The user's file adds to and overrides the catalog.
func TestNew_ModelsFile(t *testing.T) {
	t.Parallel()
	path := file(t, `{
		"providers": {
			"local": {"api": "openai-chat", "baseUrl": "http://127.0.0.1:1/v1"},
			"proxy": {"api": "anthropic", "baseUrl": "http://127.0.0.1:1", "keyEnv": "PROXY_KEY", "headers": {"X-Api-Token": "Bearer header-secret", "X-Team": "blue-team"}},
			"responses": {"api": "openai-responses", "baseUrl": "http://127.0.0.1:1/v1", "keyEnv": "OTHER_KEY"}
		},
		"models": [
			{"provider": "local", "id": "qwen", "contextWindow": 1000},
			{"provider": "openai", "id": "gpt-5", "contextWindow": 7}
		]}`)
	require.Subset(t, KeyVariables(path), []string{"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "PROXY_KEY", "OTHER_KEY"})
	require.NotContains(t, KeyVariables("/nowhere"), "PROXY_KEY")
	m, redact, err := newModels(t, map[string]string{"PROXY_KEY": "proxy-secret"}, func(c *config.Config) { c.ModelsFile = path })
	require.NoError(t, err)
	require.Equal(t, "local/qwen", m.Default.String(), "a server that needs no key is available")
	_, info, err := m.Set.Resolve(model.Ref{Provider: "proxy", ModelID: "anything"})
	require.NoError(t, err)
	require.Equal(t, "anything", info.ID)
	_, _, err = m.Set.Resolve(model.Ref{Provider: "responses", ModelID: "x"})
	require.ErrorIs(t, err, model.ErrMissingCredential)
	for _, info := range m.Set.Models() {
		if info.Provider == "openai" && info.ID == "gpt-5" {
			require.Equal(t, 7, info.ContextWindow)
		}
	}
	require.Equal(t, "[redacted] [redacted] blue-team", redact.String("proxy-secret header-secret blue-team"))

	for _, text := range []string{`{`, `{"providers":{"x":{"api":"soap"}}}`} {
		_, _, err = newModels(t, nil, func(c *config.Config) { c.ModelsFile = file(t, text) })
		require.ErrorContains(t, err, "WP_DURABLE_MODELS_FILE")
	}
	_, _, err = newModels(t, nil, func(c *config.Config) { c.ModelsFile = "/nowhere" })
	require.ErrorContains(t, err, "WP_DURABLE_MODELS_FILE")
}

// (S1.2) A script for the faux provider can be given at start.
func TestNew_FauxScript(t *testing.T) {
	t.Parallel()
	m, _, err := newModels(t, nil, func(c *config.Config) {
		c.Test.Faux, c.Test.FauxScript = true, file(t, `{"responses":[{"text":"a"},{"text":"b"}]}`)
	})
	require.NoError(t, err)
	require.Equal(t, 2, m.Faux.Pending())
	_, ok := m.Set.Provider(faux.ProviderID)
	require.True(t, ok)
	for _, script := range []string{"/nowhere", file(t, `{"respones":[]}`)} {
		_, _, err = newModels(t, nil, func(c *config.Config) { c.Test.Faux, c.Test.FauxScript = true, script })
		require.ErrorContains(t, err, "WP_DURABLE_FAUX_SCRIPT")
	}
}
