package aimocktest

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/anthropic"
	"github.com/wp-durable/wp-durable/durable/model/openai"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-test-0123456789"

// api is one of the wire formats.
type api struct {
	name string
	info model.Info
	make func(url string, client *http.Client, headers http.Header) model.Provider
}

var apis = []api{
	{
		"anthropic", model.Info{Provider: "anthropic", ID: "claude-opus-5-5", MaxOutput: 128_000, ThinkingLevels: []model.ThinkingLevel{"high"}},
		func(url string, client *http.Client, headers http.Header) model.Provider {
			return anthropic.New(&anthropic.Options{APIKey: key, BaseURL: url, HTTPClient: client, Headers: headers})
		},
	},
	{
		"openai-chat", model.Info{Provider: "openai", ID: "gpt-6.2-sol", MaxOutput: 128_000, ThinkingLevels: []model.ThinkingLevel{"high"}},
		func(url string, client *http.Client, headers http.Header) model.Provider {
			return openai.NewChat(&openai.Options{APIKey: key, BaseURL: url + "/v1", HTTPClient: client, Headers: headers})
		},
	},
	{
		"openai-responses", model.Info{Provider: "openai", ID: "gpt-6.2-sol", MaxOutput: 128_000, ThinkingLevels: []model.ThinkingLevel{"high"}},
		func(url string, client *http.Client, headers http.Header) model.Provider {
			return openai.NewResponses(&openai.Options{APIKey: key, BaseURL: url + "/v1", HTTPClient: client, Headers: headers})
		},
	},
}

// serverURL returns where aimock is.
func serverURL(t *testing.T) string {
	t.Helper()
	url := os.Getenv("AIMOCK_URL")
	switch {
	case url != "":
	case os.Getenv("CI") != "":
		t.Fatal("AIMOCK_URL is not set: in CI these tests must run; see .ci/aimock")
	default:
		t.Skip("SKIPPED: AIMOCK_URL is not set, the adapters are NOT tested against aimock; run them with .ci/aimock")
	}
	return url
}

// each runs a test for every API.
func each(t *testing.T, f func(t *testing.T, c *conversation)) {
	url := serverURL(t)
	for _, a := range apis {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			f(t, newConversation(t, url, a, nil))
		})
	}
}

// conversation sends what was said so far.
type conversation struct {
	provider model.Provider
	info     model.Info
	level    model.ThinkingLevel
	messages []model.Message
}

func newConversation(t *testing.T, url string, a api, headers http.Header) *conversation {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &conversation{
		provider: a.make(url, &http.Client{Transport: tr}, headers), info: a.info, level: model.ThinkingOff,
		messages: []model.Message{{
			Role: model.RoleSystem, Baseline: true, Sections: []model.Section{{Key: "identity", Text: "You are a test."}},
			ToolsAdded: []model.Tool{
				{Name: "read", Description: "Reads a file.", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"lines":{"type":"integer"}}}`)},
				{Name: "list", Description: "Lists files.", Parameters: json.RawMessage(`{"type":"object","properties":{}}`)},
			},
		}},
	}
}

// send says text, if there is any, and returns the answer after checking that
// the deltas were those of the answer. What failed was not said.
func (c *conversation) send(t *testing.T, text string) (*model.Message, error) {
	t.Helper()
	before := c.messages
	if text != "" {
		c.messages = append(c.messages, model.UserMessage(text, time.Now()))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var deltas []model.Delta
	resp, err := c.provider.Stream(ctx, &model.Request{
		Model: c.info, Messages: c.messages, ThinkingLevel: c.level, MaxOutputTokens: 32_000, SessionID: "s",
	}, func(d model.Delta) { deltas = append(deltas, d) })
	if err != nil {
		c.messages = before
	}
	if resp == nil {
		require.Empty(t, deltas)
		return nil, err
	}
	m := resp.Message
	m.Provider, m.Model = c.info.Provider, c.info.ID
	joined := map[int]string{}
	for _, d := range deltas {
		require.Less(t, d.Index, len(m.Content))
		joined[d.Index] += d.Text
	}
	for i, b := range m.Content {
		switch b.Type {
		case model.BlockText:
			require.Equal(t, b.Text, joined[i])
		case model.BlockThinking:
			require.Equal(t, b.Thinking, joined[i])
		case model.BlockToolCall:
			if joined[i] != "" {
				require.JSONEq(t, string(b.Arguments), joined[i])
			}
		}
	}
	if err == nil {
		c.messages = append(c.messages, *m)
	}
	return m, err
}

func requireClass(t *testing.T, err error, classes ...model.Class) *model.Error {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	require.True(t, ok, "%v", err)
	require.Contains(t, classes, e.Class, e.Message)
	require.NotContains(t, e.Error(), key)
	return e
}

func TestText(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *conversation) {
		m, err := c.send(t, "Please say hello")
		require.NoError(t, err)
		require.Equal(t, model.StopEnd, m.StopReason)
		require.Equal(t, "Hello, world. This is a longer text, ünïcödé included, so that it comes in pieces.", m.Text())
		require.EqualValues(t, 120, m.Usage.Input)
		require.EqualValues(t, 30, m.Usage.Output)
	})
}

func TestToolRound(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *conversation) {
		m, err := c.send(t, "Please read the file")
		require.NoError(t, err)
		require.Equal(t, model.StopToolUse, m.StopReason)
		require.Equal(t, "I read it.", m.Text())
		calls := m.ToolCalls()
		require.Len(t, calls, 2)
		require.Equal(t, "read", calls[0].Name)
		require.Equal(t, `{"path":"/etc/hosts","lines":20}`, string(calls[0].Arguments))
		require.Equal(t, "list", calls[1].Name)
		require.Equal(t, `{}`, string(calls[1].Arguments))
		require.NotEqual(t, calls[0].ID, calls[1].ID)
		for _, call := range calls {
			c.messages = append(c.messages, model.Message{
				Role: model.RoleToolResult, ToolCallID: call.ID, ToolName: call.Name, Content: []model.Block{model.Text("")},
			})
		}
		m, err = c.send(t, "")
		require.NoError(t, err)
		require.Equal(t, model.StopEnd, m.StopReason)
		require.Equal(t, "The file is empty.", m.Text())
	})
}

func TestReasoning(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *conversation) {
		c.level = "high"
		for range 2 { // the second time with the first thinking sent back
			m, err := c.send(t, "Please think hard")
			require.NoError(t, err)
			require.Equal(t, model.StopEnd, m.StopReason)
			require.Equal(t, "Forty-two.", m.Text())
			require.Equal(t, model.BlockThinking, m.Content[0].Type)
			require.Equal(t, "First this, then that.", m.Content[0].Thinking)
			if c.info.Provider == "anthropic" {
				require.Equal(t, "c2lnbmF0dXJl", m.Content[0].Signature)
			}
		}
	})
}

func TestLength(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *conversation) {
		m, err := c.send(t, "go on until the limit")
		require.NoError(t, err)
		require.Equal(t, model.StopLength, m.StopReason)
		require.Equal(t, "It was a dark and stormy", m.Text())
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *conversation) {
		_, err := c.send(t, "too many requests")
		e := requireClass(t, err, model.ClassRateLimit)
		require.Equal(t, 7*time.Second, e.RetryAfter)
		require.Equal(t, "Slow down, please.", e.Message)
		require.NotEmpty(t, e.RequestID)
		require.True(t, e.Retryable())

		_, err = c.send(t, "far too long")
		e = requireClass(t, err, model.ClassContextOverflow)
		require.Equal(t, 400, e.Status)
		require.False(t, e.Retryable())

		_, err = c.send(t, "be overloaded")
		require.True(t, requireClass(t, err, model.ClassOverloaded).Retryable())

		_, err = c.send(t, "nothing matches this")
		require.Error(t, err)
	})
}

// A stream that is cut is never an answer, wherever it is cut.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, c *conversation) {
		for text, whole := range map[string]string{
			"stop in the middle":  "This text never comes to its end because the server stops",
			"lose the connection": "This text never comes to its end because the connection is lost while it is on its way. It would be much longer, if only the connection held, and nobody",
		} {
			m, err := c.send(t, text)
			e := requireClass(t, err, model.ClassNetwork, model.ClassIncompleteStream)
			require.True(t, e.Retryable())
			require.NotNil(t, m, "what came before the cut is there")
			require.Equal(t, model.StopError, m.StopReason)
			require.NotEmpty(t, m.Text())
			require.True(t, strings.HasPrefix(whole, m.Text()), m.Text())
		}
	})
}

func TestChaos(t *testing.T) {
	t.Parallel()
	url := serverURL(t)
	for header, class := range map[string]model.Class{
		"X-Aimock-Chaos-Malformed":  model.ClassProtocol,
		"X-Aimock-Chaos-Disconnect": model.ClassNetwork,
		"X-Aimock-Chaos-Ratelimit":  model.ClassRateLimit,
		"X-Aimock-Chaos-Drop":       model.ClassServerError,
	} {
		for _, a := range apis {
			t.Run(strings.TrimPrefix(header, "X-Aimock-Chaos-")+"/"+a.name, func(t *testing.T) {
				t.Parallel()
				c := newConversation(t, url, a, http.Header{header: {"1"}})
				m, err := c.send(t, "Please say hello")
				require.True(t, requireClass(t, err, class).Retryable())
				require.Nil(t, m)
			})
		}
	}
}
