package providers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server/internal/config"
	"github.com/wp-durable/wp-durable/tools/secrets"
)

const apiKey = `sk-very"secret\key`

// scripted answers with deltas and a message.
type scripted struct {
	deltas []model.Delta
	msg    *model.Message
	err    error
}

func (s *scripted) Stream(_ context.Context, _ *model.Request, emit func(model.Delta)) (*model.Response, error) {
	for _, d := range s.deltas {
		emit(d)
	}
	return &model.Response{Message: s.msg}, s.err
}

// cut returns the deltas of a block, cut where draw says.
func cut(b *model.Block, index int, draw func(most int) int) []model.Delta {
	d := model.Delta{Kind: model.DeltaText, Index: index}
	text := b.Text
	switch b.Type {
	case model.BlockThinking:
		d.Kind, text = model.DeltaThinking, b.Thinking
	case model.BlockToolCall:
		d.Kind, d.ToolCallID, d.ToolName, text = model.DeltaToolCall, b.ID, b.Name, string(b.Arguments)
		if b.RawArguments != "" {
			text = b.RawArguments
		}
	}
	var out []model.Delta
	for text != "" || d.ToolCallID != "" {
		n := 0
		if text != "" {
			n = draw(len(text))
		}
		d.Text, text = text[:n], text[n:]
		out = append(out, d)
		d.ToolCallID, d.ToolName = "", ""
	}
	return out
}

func quoted(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

// (S1.3, E17.5) However an answer is cut, no piece of it and no part of the
// message holds a secret, and the pieces add up to the message.
func TestMasked_Property(t *testing.T) {
	t.Parallel()
	redact := secrets.NewRedactor()
	require.NoError(t, redact.Add("key", apiKey))
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{apiKey, apiKey[:9], apiKey[9:], "s", "ordinary text ", "\n"}), 0, 5).Draw(t, "parts"), "")
		})
		msg := &model.Message{Role: model.RoleAssistant}
		for i, kind := range rapid.SliceOfN(rapid.IntRange(0, 3), 1, 4).Draw(t, "kinds") {
			s := text.Draw(t, "text")
			b := model.Block{Type: model.BlockText, Text: s}
			switch kind {
			case 1:
				b = model.Block{Type: model.BlockThinking, Thinking: s, Signature: "sig"}
			case 2, 3:
				b = model.Block{Type: model.BlockToolCall, ID: fmt.Sprint("call-", i), Name: "bash", Arguments: json.RawMessage(`{"command":` + quoted(s) + `}`)}
				if kind == 3 {
					b.RawArguments = `{ "command": ` + quoted(s) + `}`
				}
			}
			msg.Content = append(msg.Content, b)
		}
		p := &scripted{msg: msg}
		before := msg.Clone()
		for i := range msg.Content {
			p.deltas = append(p.deltas, cut(&msg.Content[i], i, func(most int) int { return rapid.IntRange(1, most).Draw(t, "cut") })...)
		}
		shown := map[int]string{}
		var order strings.Builder
		calls := 0
		resp, err := (&masked{p, redact}).Stream(context.Background(), &model.Request{}, func(d model.Delta) {
			shown[d.Index] += d.Text
			if d.Kind == model.DeltaText {
				order.WriteString(d.Text)
			}
			if d.ToolCallID != "" {
				calls++
			}
		})
		require.NoError(t, err)
		require.Equal(t, before, *msg, "the provider's own is left alone")
		require.Len(t, resp.Message.Content, len(msg.Content))
		require.Equal(t, resp.Message.Text(), order.String())
		require.Equal(t, len(msg.ToolCalls()), calls)
		for i, b := range resp.Message.Content {
			was := msg.Content[i]
			want := b.Text + b.Thinking + string(b.Arguments)
			if b.RawArguments != "" {
				want = b.RawArguments
			}
			require.Equal(t, want, shown[i])
			require.NotContains(t, shown[i], apiKey)
			require.Equal(t, strings.ReplaceAll(was.Text, apiKey, secrets.Mask), b.Text)
			require.Equal(t, strings.ReplaceAll(was.Thinking, apiKey, secrets.Mask), b.Thinking)
			if b.Thinking != was.Thinking {
				require.Empty(t, b.Signature, "it proves another text")
			}
			if was.Type == model.BlockToolCall {
				require.Equal(t, strings.ReplaceAll(string(was.Arguments), strings.Trim(quoted(apiKey), `"`), secrets.Mask), string(b.Arguments))
				require.True(t, json.Valid(b.Arguments))
			}
		}
	})
}

// Tool calls whose pieces come side by side are masked as well.
func TestMasked_SideBySide(t *testing.T) {
	t.Parallel()
	redact := secrets.NewRedactor()
	require.NoError(t, redact.Add("key", "sk-very-secret"))
	p := &scripted{msg: &model.Message{Content: []model.Block{{Type: model.BlockText, Text: "look: s", Raw: `{"text":"look: s"}`}}}}
	for i, b := range []model.Block{
		{Type: model.BlockText, Text: "look: s"},
		{Type: model.BlockToolCall, ID: "a", Arguments: json.RawMessage(`{"k":"sk-very-secret"}`)},
		{Type: model.BlockToolCall, ID: "b", Arguments: json.RawMessage(`{"k":"\u0073k-very-\u0073ecret"}`)},
	} {
		for n, d := range cut(&b, i, func(int) int { return 1 }) {
			at := len(p.deltas)
			if i == 2 {
				at = min(len(p.deltas), 8+2*n)
			}
			p.deltas = append(p.deltas[:at], append([]model.Delta{d}, p.deltas[at:]...)...)
		}
	}
	shown := map[int]string{}
	resp, err := (&masked{p, redact}).Stream(t.Context(), &model.Request{}, func(d model.Delta) { shown[d.Index] += d.Text })
	require.NoError(t, err)
	require.Equal(t, map[int]string{0: "look: s", 1: `{"k":"[redacted]"}`, 2: `{"k":"[redacted]"}`}, shown)
	require.Same(t, p.msg, resp.Message, "nothing is copied")
	p.msg = &model.Message{Content: []model.Block{{Type: model.BlockToolCall, Arguments: json.RawMessage(`{"k":"\u0073k-very-\u0073ecret"}`)}}}
	resp, err = (&masked{p, redact}).Stream(t.Context(), &model.Request{}, func(model.Delta) {})
	require.NoError(t, err)
	require.JSONEq(t, `{"k":"[redacted]"}`, string(resp.Message.Content[0].Arguments))
}

// (S1.3) A provider that repeats the key in its error, or in a block as it
// sent it.
func TestMasked_Errors(t *testing.T) {
	t.Parallel()
	redact := secrets.NewRedactor()
	require.NoError(t, redact.Add("key", apiKey))
	plain := &model.Error{Class: model.ClassQuota, Message: "no money"}
	p := &scripted{err: plain, msg: &model.Message{
		ErrorMessage: "wrong: " + apiKey, Content: []model.Block{{Type: model.BlockText, Text: "x", Raw: `{"text":` + quoted(apiKey) + `}`}},
	}}
	m := &masked{p, redact}
	resp, err := m.Stream(t.Context(), &model.Request{}, func(model.Delta) {})
	require.Same(t, plain, err)
	require.Equal(t, "wrong: [redacted]", resp.Message.ErrorMessage)
	require.Empty(t, resp.Message.Content[0].Raw)
	p.err = fmt.Errorf("ask: %w", &model.Error{Class: model.ClassAuth, Status: 401, Message: "wrong key " + apiKey, Err: errors.New(apiKey)})
	_, err = m.Stream(t.Context(), &model.Request{}, func(model.Delta) {})
	failure := model.AsError(err)
	require.Equal(t, model.ClassAuth, failure.Class)
	require.Equal(t, 401, failure.Status)
	require.Equal(t, "wrong key [redacted]", failure.Message)
	require.NotContains(t, fmt.Sprint(failure.Err), apiKey)
}

// Every provider of a server is masked.
func TestNew_Masked(t *testing.T) {
	t.Parallel()
	m, redact, err := newModels(t, map[string]string{"DEEPSEEK_API_KEY": "sk-12345678"}, func(c *config.Config) {
		c.Test.Faux = true
		c.Model = "demo/demo"
	})
	require.NoError(t, err)
	for _, info := range m.Set.Models() {
		p, ok := m.Set.Provider(info.Provider)
		require.True(t, ok)
		require.Equal(t, redact, p.(*masked).r, info.Provider)
	}
	m.Faux.Push(faux.Step{Text: "it is sk-12345678.", ChunkSize: 1})
	p, info, err := m.Set.Resolve(model.Ref{Provider: faux.ProviderID, ModelID: faux.ModelID})
	require.NoError(t, err)
	var shown string
	resp, err := p.Stream(t.Context(), &model.Request{Model: info, MaxOutputTokens: 100, Messages: []model.Message{model.UserMessage("hi", time.Time{})}}, func(d model.Delta) { shown += d.Text })
	require.NoError(t, err)
	require.Equal(t, "it is [redacted].", shown)
	require.Equal(t, shown, resp.Message.Text())
}
