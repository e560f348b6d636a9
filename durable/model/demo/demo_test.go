package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/demo"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func request(text string, tools ...string) *model.Request {
	sys := model.Message{Role: model.RoleSystem, Baseline: true, Sections: []model.Section{{Key: "k", Text: "v"}}}
	for _, name := range tools {
		sys.ToolsAdded = append(sys.ToolsAdded, model.Tool{Name: name, Parameters: json.RawMessage(`{"type":"object"}`)})
	}
	return &model.Request{
		Model: demo.Model(), MaxOutputTokens: 1000,
		Messages: []model.Message{sys, model.UserMessage(text, time.Time{})},
	}
}

func ask(t *testing.T, req *model.Request) *model.Message {
	t.Helper()
	require.NoError(t, faux.Check(req))
	p := demo.New(&demo.Options{WordDelay: -1})
	texts := map[int]string{}
	res, err := p.Stream(t.Context(), req, func(d model.Delta) { texts[d.Index] += d.Text })
	require.NoError(t, err)
	for i, b := range res.Message.Content {
		require.Equal(t, b.Text+string(b.Arguments), texts[i])
	}
	require.Len(t, texts, len(res.Message.Content))
	require.Positive(t, res.Message.Usage.Total)
	again, err := p.Stream(t.Context(), req, func(model.Delta) {})
	require.NoError(t, err)
	require.Equal(t, res, again, "the same request has the same answer")
	return res.Message
}

// withResult appends an answer and the results of its calls.
func withResult(req *model.Request, m *model.Message, isError bool, content ...model.Block) *model.Request {
	next := *req
	next.Messages = append(append([]model.Message(nil), req.Messages...), *m)
	for _, call := range m.ToolCalls() {
		next.Messages = append(next.Messages, model.Message{
			Role: model.RoleToolResult, ToolCallID: call.ID, ToolName: call.Name, Content: content, IsError: isError,
		})
	}
	return &next
}

func TestProvider_UnderstandsCommands(t *testing.T) {
	t.Parallel()
	for text, command := range map[string]string{
		"run `for i in 1 2 3; do echo tick $i; sleep 1; done`": "for i in 1 2 3; do echo tick $i; sleep 1; done",
		"run for i in 1 2; do echo $i; done":                   "for i in 1 2; do echo $i; done",
		"run ls -la":                                           "ls -la",
		"Please run ls.":                                       "ls",
		"can you execute: make test":                           "make test",
		"run find .":                                           "find .",
		"run cd ..":                                            "cd ..",
		"run the command date":                                 "date",
		"run FOO=1 env\nand tell me":                           "FOO=1 env",
		"$ uname -a":                                           "uname -a",
		"!pwd":                                                 "pwd",
		"what does `git status` say?":                          "git status",
		"try this:\n```sh\nset -e\necho \"a < b\"\n```\nthanks": "set -e\necho \"a < b\"",
		"``echo `date` ``":         "echo `date`",
		"an unclosed `` then `id`": "id",
		"run ./x.sh && echo ok":    "./x.sh && echo ok",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			m := ask(t, request(text, "read", "bash"))
			require.Equal(t, model.StopToolUse, m.StopReason)
			calls := m.ToolCalls()
			require.Len(t, calls, 1)
			require.Equal(t, "bash", calls[0].Name)
			var args map[string]string
			require.NoError(t, json.Unmarshal(calls[0].Arguments, &args))
			require.Equal(t, map[string]string{"command": command}, args)
			require.Contains(t, m.Text(), "scripted demo, not a model")
		})
	}
}

func TestProvider_OtherTools(t *testing.T) {
	t.Parallel()
	m := ask(t, request("fetch https://example.org/a?b=1.", "bash", "http_fetch"))
	require.Equal(t, "http_fetch", m.ToolCalls()[0].Name)
	require.JSONEq(t, `{"url":"https://example.org/a?b=1"}`, string(m.ToolCalls()[0].Arguments))
	m = ask(t, request("show me the file notes.txt", "read"))
	require.Equal(t, "read", m.ToolCalls()[0].Name)
	require.JSONEq(t, `{"path":"notes.txt"}`, string(m.ToolCalls()[0].Arguments))
}

func TestProvider_Introduces(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"hello", "run the tests", "run all of it", "who are you?", "```", "run Everything now", "read poem.", "`", "`` `",
	} {
		m := ask(t, request(text, "bash", "read", "http_fetch"))
		require.Equal(t, model.StopEnd, m.StopReason, text)
		require.Empty(t, m.ToolCalls(), text)
		require.Contains(t, m.Text(), "not a model")
		require.Contains(t, m.Text(), "run `ls -la`")
		require.Contains(t, m.Text(), "ANTHROPIC_API_KEY")
	}
	require.NotContains(t, ask(t, request("hello")).Text(), "ls -la", "it offers nothing that it cannot do")
}

func TestProvider_WithoutTheTool(t *testing.T) {
	t.Parallel()
	m := ask(t, request("run `ls`", "read"))
	require.Equal(t, model.StopEnd, m.StopReason)
	require.Contains(t, m.Text(), "does not offer me the tool bash")
}

func TestProvider_ReportsResults(t *testing.T) {
	t.Parallel()
	req := request("run ls", "bash")
	call := ask(t, req)

	m := ask(t, withResult(req, call, false, model.Text("a.txt\nb.txt\n")))
	require.Equal(t, model.StopEnd, m.StopReason)
	require.Contains(t, m.Text(), "The command has finished. It said:\n\n```\na.txt\nb.txt\n```")

	m = ask(t, withResult(req, call, true, model.Text("exit status 2 ```")))
	require.Contains(t, m.Text(), "The command did not succeed. It said:\n\n````\nexit status 2 ```\n````")

	m = ask(t, withResult(req, call, false, model.Text(strings.Repeat("é line\n", 500))))
	require.Contains(t, m.Text(), "The end of what it said:")
	require.Equal(t, 20, strings.Count(m.Text(), "é line"))

	m = ask(t, withResult(req, call, false, model.Text("x"+strings.Repeat("é", 5000))))
	require.Less(t, len(m.Text()), 2500)

	m = ask(t, withResult(req, call, false, model.Block{Type: model.BlockImage, MimeType: "image/png", Data: []byte("x")}))
	require.Contains(t, m.Text(), "1 image(s), which I cannot look at")

	next := withResult(req, call, false, model.Text("ok"))
	next.Messages = append(next.Messages, *m, model.UserMessage("run pwd", time.Time{}))
	again := ask(t, next)
	require.Equal(t, "demo_1", call.ToolCalls()[0].ID)
	require.Equal(t, "demo_2", again.ToolCalls()[0].ID)
}

func TestProvider_ReportsAnEmptyResult(t *testing.T) {
	t.Parallel()
	req := request("run true", "bash")
	call := ask(t, req)
	res, err := demo.New(&demo.Options{WordDelay: -1}).Stream(t.Context(), withResult(req, call, false), func(model.Delta) {})
	require.NoError(t, err)
	require.Contains(t, res.Message.Text(), "printed nothing")
}

func TestProvider_Summarises(t *testing.T) {
	t.Parallel()
	m := ask(t, request("Summarise this conversation:\nuser: run `ls`\nassistant: ok"))
	require.Contains(t, m.Text(), "assistant: ok")
	require.Contains(t, m.Text(), "not by a model")
}

// S8: a small output limit ends in length.
func TestProvider_OutputLimit(t *testing.T) {
	t.Parallel()
	req := request("hello", "bash")
	req.MaxOutputTokens = 40
	m := ask(t, req)
	require.Equal(t, model.StopLength, m.StopReason)
	require.Len(t, strings.Fields(m.Text()), 40)
	require.EqualValues(t, 40, m.Usage.Output)

	req = request("run ls", "bash")
	req.MaxOutputTokens = 3
	m = ask(t, req)
	require.Equal(t, model.StopLength, m.StopReason)
	require.Empty(t, m.ToolCalls(), "a call behind the limit is not made")
}

func TestProvider_StreamsWordsAndYields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := demo.New(nil)
		start, words := time.Now(), 0
		res, err := p.Stream(t.Context(), request("hello"), func(model.Delta) { words++ })
		require.NoError(t, err)
		require.Equal(t, len(strings.Fields(res.Message.Text())), words)
		require.Equal(t, time.Duration(words-1)*15*time.Millisecond, time.Since(start))

		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("stopping")
		n := 0
		res, err = p.Stream(ctx, request("hello"), func(model.Delta) {
			if n++; n == 2 {
				cancel(cause)
			}
		})
		require.Equal(t, model.ClassAborted, model.AsError(err).Class)
		require.ErrorIs(t, err, cause)
		require.Equal(t, "I am", res.Message.Text())
		require.Equal(t, model.StopAborted, res.Message.StopReason)

		ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
		defer stop()
		_, err = p.Stream(ctx, request("hello"), func(model.Delta) {})
		require.Equal(t, model.ClassTimeout, model.AsError(err).Class)
	})
}
