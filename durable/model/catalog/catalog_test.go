package catalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/catalog"
)

func TestBuiltin(t *testing.T) {
	t.Parallel()
	f := catalog.Builtin()
	require.Equal(t, f.Models, catalog.Models())
	require.Len(t, f.Models, 63)
	byID := map[string]model.Info{}
	for _, m := range f.Models {
		name := m.Provider + "/" + m.ID
		byID[name] = m
		require.NotEmpty(t, m.Name, name)
		p, ok := f.Providers[m.Provider]
		require.True(t, ok, name)
		require.NotEmpty(t, p.KeyEnv)
		require.NotEmpty(t, p.BaseURL)
		if m.Prices == nil {
			continue
		}
		for p := m.Prices; p != nil; p = p.Long {
			require.Positive(t, p.Input, name)
			require.Greater(t, p.Output, p.Input, name)
			// The two prices of a cache must not be mixed up.
			require.LessOrEqual(t, p.CacheRead, p.Input, name)
			require.Less(t, p.CacheRead, p.Output, name)
			require.Positive(t, p.CacheRead, name)
			require.LessOrEqual(t, p.CacheRead, p.CacheWrite, name)
			if m.Provider == "anthropic" {
				require.InDelta(t, 1.25*p.Input, p.CacheWrite, 1e-9, name)
				require.LessOrEqual(t, p.CacheRead, 0.1*p.Input+1e-9, name)
			}
		}
	}
	require.Equal(t, "budget", byID["anthropic/claude-haiku-4-5"].Quirks["thinking"])
	require.Empty(t, byID["anthropic/claude-opus-4-7"].Quirks["thinking"])
	require.Equal(t, "inline", byID["anthropic/claude-opus-5-5"].Quirks["system_updates"])
	require.EqualValues(t, 100_000, byID["anthropic/claude-haiku-5-5"].Prices.LongAbove)

	f.Models[0].ID = "changed"
	f.Providers["anthropic"] = catalog.Provider{}
	require.NotEqual(t, f, catalog.Builtin(), "each caller has its own copy")
}

func ExampleLoad() {
	f, err := catalog.Load(strings.NewReader(`{
		"providers": {"local": {"api": "openai-chat", "baseUrl": "http://127.0.0.1:11434/v1"}},
		"models": [{"provider": "local", "id": "qwen3", "contextWindow": 32768, "maxOutput": 8192}]
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	var set model.Set
	set.AddModel(catalog.Models()...)
	set.AddModel(f.Models...)
	fmt.Println(f.Providers["local"].API, f.Models[0].ID)
	// Output: openai-chat qwen3
}

func ExampleModels() {
	for _, m := range catalog.Models() {
		if m.ID == "claude-opus-5-5" {
			fmt.Println(m.Name, m.ContextWindow, m.Prices.Output)
		}
	}
	// Output: Claude Opus 5.5 1000000 20
}

func TestLoad(t *testing.T) {
	t.Parallel()
	f, err := catalog.Load(strings.NewReader(`{
		"providers": {"proxy": {"api": "anthropic", "baseUrl": "https://llm.example.com/x", "keyEnv": "PROXY_KEY", "headers": {"X-Team": "blue"}}},
		"models": [
			{"provider": "proxy", "id": "a/b:c", "name": "N", "contextWindow": 10, "maxOutput": 5, "prices": {"input": 1, "output": 2, "long": {"input": 2, "output": 4}, "longAbove": 5},
			 "thinkingLevels": ["low", "max"], "images": true, "quirks": {"thinking": "budget"}},
			{"provider": "openai", "id": "own", "contextWindow": 10, "quirks": {"effort_off": "none"}}
		]}`))
	require.NoError(t, err)
	require.Equal(t, &catalog.File{
		Providers: map[string]catalog.Provider{"proxy": {API: catalog.Anthropic, BaseURL: "https://llm.example.com/x", KeyEnv: "PROXY_KEY", Headers: map[string]string{"X-Team": "blue"}}},
		Models: []model.Info{
			{Provider: "proxy", ID: "a/b:c", Name: "N", ContextWindow: 10, MaxOutput: 5, Images: true,
				Prices:         &model.Prices{Input: 1, Output: 2, Long: &model.Prices{Input: 2, Output: 4}, LongAbove: 5},
				ThinkingLevels: []model.ThinkingLevel{"low", "max"}, Quirks: map[string]string{"thinking": "budget"}},
			{Provider: "openai", ID: "own", ContextWindow: 10, Quirks: map[string]string{"effort_off": "none"}},
		},
	}, f)

	empty, err := catalog.Load(strings.NewReader(`{}`))
	require.NoError(t, err)
	require.Empty(t, empty.Models)
}

func TestLoad_NamesTheField(t *testing.T) {
	t.Parallel()
	provider := func(body string) string { return `{"providers": {"p": {"api": "openai-chat"` + body + `}}}` }
	aModel := func(body string) string {
		return `{"providers": {"p": {"api": "anthropic"}}, "models": [{"provider": "p", "id": "m", "contextWindow": 10` + body + `}]}`
	}
	tests := []struct{ in, want string }{
		{``, "models file: EOF"},
		{`[]`, "array does not fit"},
		{`{} {}`, "more follows"},
		{`{"model": []}`, `unknown field "model"`},
		{`{"models": {}}`, "models: a JSON object does not fit"},
		{`{"providers": {"p": {}}}`, "providers.p: api: missing"},
		{`{"providers": {"p": {"api": "soap"}}}`, `providers.p: api: "soap" is not one of anthropic, openai-responses, openai-chat`},
		{`{"providers": {"a/b": {"api": "anthropic"}}}`, "providers.a/b: the id may hold only"},
		{`{"providers": {"": {"api": "anthropic"}}}`, "the id may hold only"},
		{provider(`, "key": "x"`), `providers.p: unknown field "key"`},
		{provider(`, "baseUrl": 5`), "providers.p: baseUrl: a JSON number does not fit"},
		{provider(`, "baseUrl": "localhost:1"`), "providers.p: baseUrl: not an http or https URL"},
		{provider(`, "baseUrl": "http://u:secret@h"`), "providers.p: baseUrl: holds a user"},
		{provider(`, "baseUrl": "http://h/#x"`), "providers.p: baseUrl: holds a fragment"},
		{provider(`, "keyEnv": "MY KEY"`), "providers.p: keyEnv: not the name"},
		{provider(`, "headers": {"a b": "c"}`), `providers.p: headers: "a b" is not the name of a header`},
		{provider(`, "headers": {"a": "b\nc"}`), "providers.p: headers.a: the value holds a line end"},
		{provider(`, "headers": {"x-a": "b", "X-A": "c"}`), "is there twice"},
		{`{"models": [{"id": "m", "contextWindow": 1}]}`, "models[0]: provider: missing"},
		{`{"models": [{"provider": "none", "id": "m", "contextWindow": 1}]}`, `models[0]: provider: "none" is not among the providers`},
		{`{"models": [{"provider": "openai", "contextWindow": 1}]}`, "models[0]: id: missing"},
		{`{"models": [{"provider": "openai", "id": "m ", "contextWindow": 1}]}`, "models[0]: id:"},
		{`{"models": [{"provider": "openai", "id": "m"}]}`, "models[0]: contextWindow: must be above 0"},
		{aModel(`, "maxOutput": -1`), "models[0]: maxOutput: must not be below 0"},
		{aModel(`, "maxOutput": 11`), "models[0]: maxOutput: is above contextWindow"},
		{aModel(`, "maxOutput": "1"`), "models[0]: maxOutput: a JSON string does not fit"},
		{aModel(`, "window": 1`), `models[0]: unknown field "window"`},
		{aModel(`, "prices": {"input": -1, "output": 1}`), "models[0]: prices.input: must not be below 0"},
		{aModel(`, "prices": {"in": 1}`), `models[0]: unknown field "in"`},
		{aModel(`, "prices": {"longAbove": 1}`), "models[0]: prices.longAbove"},
		{aModel(`, "prices": {"long": {}}`), "models[0]: prices.longAbove"},
		{aModel(`, "prices": {"longAbove": 1, "long": {"output": -1}}`), "models[0]: prices.long.output"},
		{aModel(`, "prices": {"longAbove": 1, "long": {"longAbove": 1, "long": {}}}`), "models[0]: prices.long.long"},
		{aModel(`, "thinkingLevels": ["low", "off"]`), `models[0]: thinkingLevels[1]: "off"`},
		{aModel(`, "thinkingLevels": ["low", "low"]`), "models[0]: thinkingLevels[1]"},
		{aModel(`, "quirks": {"max_tokens": "max_tokens"}`), `models[0]: quirks: quirk "max_tokens" is unknown`},
		{aModel(`, "quirks": {"thinking": "lots"}`), "models[0]: quirks: quirk thinking"},
		{`{"models": [{"provider": "openai", "id": "m", "contextWindow": 1}, {"provider": "openai", "id": "m", "contextWindow": 1}]}`, "models[1]: id: openai/m is there twice"},
		{strings.Repeat(" ", 5<<20), "larger than"},
	}
	for _, tt := range tests {
		_, err := catalog.Load(strings.NewReader(tt.in))
		require.ErrorContains(t, err, tt.want, "%.200s", tt.in)
		require.NotContains(t, err.Error(), "secret")
	}
	broken := errors.New("broken")
	_, err := catalog.Load(iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
}

func FuzzLoad(f *testing.F) {
	f.Add([]byte(`{"providers": {"p": {"api": "anthropic"}}, "models": [{"provider": "p", "id": "m", "contextWindow": 10}]}`))
	f.Add([]byte(`{"models": [{"provider": "openai", "id": "m", "contextWindow": 1, "prices": {"long": {}}}]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		file, err := catalog.Load(bytes.NewReader(in))
		require.Equal(t, err == nil, file != nil)
	})
}
