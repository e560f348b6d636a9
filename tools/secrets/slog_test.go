package secrets

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type valuer struct{ v any }

func (v valuer) LogValue() slog.Value { return slog.AnyValue(v.v) }

type node struct {
	Name string
	Next *node
}

// (S1.3) No part of a log record shows a secret, in either format.
func TestRedactor_Handler(t *testing.T) {
	t.Parallel()
	r := newTestRedactor(t, apiKey)
	link, err := url.Parse("http://localhost/?key=" + url.QueryEscape(apiKey))
	require.NoError(t, err)
	for name, make := range map[string]func(*bytes.Buffer) slog.Handler{
		"text": func(b *bytes.Buffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"json": func(b *bytes.Buffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			log := slog.New(r.Handler(make(&out)))
			log = log.With("with", apiKey).WithGroup("group " + apiKey)
			log.Info("message "+apiKey, "string", apiKey, "error", errors.New("refused: "+apiKey),
				"bytes", []byte(apiKey), "url", link, "strings", []string{"a", apiKey},
				"map", map[string]any{apiKey: apiKey}, "pointer", &node{Next: &node{Name: apiKey}},
				"valuer", valuer{valuer{apiKey}}, slog.Group("g", slog.String(apiKey, apiKey)),
				"key "+apiKey, 1, "nil", nil, "number", 42, "duration", time.Second)
			require.NotContains(t, out.String(), "api03")
			require.NotContains(t, out.String(), "MTJhcGkwMy") // base64 of it
			require.Contains(t, out.String(), "42")
			require.Contains(t, out.String(), Mask)
		})
	}
	require.False(t, slog.New(r.Handler(slog.NewTextHandler(&bytes.Buffer{}, nil))).Enabled(context.Background(), slog.LevelDebug))
}
