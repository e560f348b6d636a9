// Package catalog describes models: their limits, prices, thinking levels and
// the switches that their adapters need. It holds a list of current models,
// and reads the file in which a user adds own ones.
//
// # The numbers
//
// ContextWindow is what a prompt may have: where a provider limits the prompt
// below its window, the limit stands there. Prices are those of the providers'
// standard tier; for Anthropic CacheWrite is that of the 5-minute cache. A
// model whose price depends on the time of day or is not published has none,
// and then what it costs is unknown, not zero.
//
// # The user's file
//
//	{
//	  "providers": {
//	    "local": {"api": "openai-chat", "baseUrl": "http://127.0.0.1:11434/v1"},
//	    "proxy": {"api": "anthropic", "baseUrl": "https://llm.example.com", "keyEnv": "PROXY_KEY",
//	              "headers": {"X-Team": "blue"}}
//	  },
//	  "models": [
//	    {"provider": "local", "id": "qwen3", "contextWindow": 32768, "maxOutput": 8192},
//	    {"provider": "proxy", "id": "claude-opus-5-5", "contextWindow": 1000000, "maxOutput": 128000,
//	     "prices": {"input": 4, "output": 20, "cacheRead": 0.2, "cacheWrite": 5},
//	     "thinkingLevels": ["low", "high"], "images": true, "quirks": {"thinking_off": "always"}}
//	  ]
//	}
//
// A provider without keyEnv needs no key. A model may belong to a provider of
// the file or of the built-in list; one of the same provider and id replaces a
// built-in one as a whole.
//
// This package depends on package model and, for the names of their switches,
// on the adapters.
package catalog

import (
	"bytes"
	_ "embed"
	"sync"

	"github.com/wp-durable/wp-durable/durable/model"
)

//go:embed models.json
var builtin []byte

// Models returns the built-in models. The caller may change the result.
func Models() []model.Info { return Builtin().Models }

// Builtin returns the built-in providers and models. The caller may change the
// result.
func Builtin() *File {
	f, err := read(bytes.NewReader(builtin), nil)
	if err != nil {
		panic("catalog: models.json: " + err.Error()) // it is part of the program
	}
	return f
}

// builtinAPIs returns the API of each built-in provider.
var builtinAPIs = sync.OnceValue(func() map[string]API {
	apis := map[string]API{}
	for id, p := range Builtin().Providers {
		apis[id] = p.API
	}
	return apis
})
