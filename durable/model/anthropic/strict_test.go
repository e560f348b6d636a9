package anthropic

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"
)

var validID = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// failer is what a test and a property test have in common.
type failer interface {
	require.TestingT
	Helper()
	Fatalf(format string, args ...any)
}

// requireAccepted checks a body against the rules of the API, as a strict
// server does (E2.8, E13).
func requireAccepted(t failer, body []byte) request {
	t.Helper()
	var r request
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	require.True(t, r.Stream)
	require.Positive(t, r.MaxTokens)
	if r.Thinking != nil && r.Thinking.Type == "enabled" {
		require.GreaterOrEqual(t, r.Thinking.BudgetTokens, 1024)
		require.Less(t, r.Thinking.BudgetTokens, r.MaxTokens)
	} else if r.Thinking != nil {
		require.Zero(t, r.Thinking.BudgetTokens)
	}
	marks := 0
	mark := func(c *cacheControl) {
		if c != nil {
			marks++
			require.Equal(t, "ephemeral", c.Type)
		}
	}
	mark(r.CacheControl)
	for _, tl := range r.Tools {
		mark(tl.CacheControl)
		require.True(t, validID.MatchString(tl.Name))
		require.Equal(t, byte('{'), tl.InputSchema[0])
	}
	for _, s := range r.System {
		mark(s.CacheControl)
		require.NotEmpty(t, strings.TrimSpace(s.Text))
	}
	require.NotEmpty(t, r.Messages)
	require.Equal(t, "user", r.Messages[0].Role)
	var open map[string]bool
	seen := map[string]bool{}
	for i, m := range r.Messages {
		require.NotEmpty(t, m.Content)
		last := i == len(r.Messages)-1
		switch m.Role {
		case "system":
			require.Equal(t, "user", r.Messages[i-1].Role, "a system message stands behind a user message")
			require.True(t, last || r.Messages[i+1].Role == "assistant", "and before an assistant message")
			require.Len(t, m.Content, 1)
		case "assistant":
			require.Empty(t, open, "calls without results")
			open = map[string]bool{}
		case "user":
			require.True(t, i == 0 || r.Messages[i-1].Role == "assistant", "sides alternate")
		default:
			t.Fatalf("role %q", m.Role)
		}
		text := false
		for j, c := range m.Content {
			mark(c.CacheControl)
			switch c.Type {
			case "text":
				text = true
				require.NotEmpty(t, strings.TrimSpace(c.Text), "blank text")
			case "image":
				require.NotEmpty(t, c.Source.Data)
				require.Equal(t, "user", m.Role)
			case "thinking", "redacted_thinking":
				require.Nil(t, c.CacheControl, "breakpoint on thinking")
				require.Equal(t, "assistant", m.Role)
				require.True(t, c.Signature != "" || c.Data != "")
				require.True(t, c.Thinking != nil || c.Data != "")
			case "tool_use":
				require.Equal(t, "assistant", m.Role)
				require.True(t, validID.MatchString(c.ID), c.ID)
				require.True(t, validID.MatchString(c.Name), c.Name)
				require.False(t, seen[c.ID], "id used twice")
				seen[c.ID], open[c.ID] = true, true
				require.Equal(t, byte('{'), bytes.TrimSpace(c.Input)[0])
			case "tool_result":
				require.Equal(t, "user", m.Role)
				require.False(t, text, "results come first")
				require.True(t, open[c.ToolUseID], "result without a call in the message before")
				delete(open, c.ToolUseID)
				require.NotEmpty(t, c.Content)
				for _, in := range c.Content {
					require.Nil(t, in.CacheControl)
					require.True(t, in.Type == "image" || strings.TrimSpace(in.Text) != "")
				}
			default:
				t.Fatalf("block %d of message %d: type %q", j, i, c.Type)
			}
		}
		if m.Role == "user" {
			require.Empty(t, open, "results missing")
		}
	}
	require.LessOrEqual(t, marks, 4)
	if r.Thinking != nil && r.Thinking.Type == "enabled" {
		for i := len(r.Messages) - 1; i >= 0; i-- {
			if m := r.Messages[i]; m.Role == "assistant" {
				for _, c := range m.Content {
					require.False(t, c.Type == "tool_use" && !m.Content[0].isThinking(), "a round without thinking")
				}
				break
			}
		}
	}
	return r
}
