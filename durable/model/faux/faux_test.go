package faux_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func request(texts ...string) *model.Request {
	req := &model.Request{Model: faux.Model(), MaxOutputTokens: 1000, SessionID: "s"}
	for _, t := range texts {
		req.Messages = append(req.Messages, model.UserMessage(t, time.Time{}))
	}
	return req
}

// stream sends req and checks that the deltas add up to the message's blocks.
func stream(t *testing.T, p *faux.Provider, req *model.Request) (*model.Message, []model.Delta, error) {
	t.Helper()
	return streamCtx(t.Context(), t, p, req)
}

func streamCtx(ctx context.Context, t *testing.T, p *faux.Provider, req *model.Request) (*model.Message, []model.Delta, error) {
	t.Helper()
	var deltas []model.Delta
	texts := map[int]string{}
	res, err := p.Stream(ctx, req, func(d model.Delta) {
		deltas = append(deltas, d)
		texts[d.Index] += d.Text
	})
	if res == nil {
		require.Empty(t, deltas)
		return nil, nil, err
	}
	for i, b := range res.Message.Content {
		switch b.Type {
		case model.BlockText:
			require.Equal(t, b.Text, texts[i])
		case model.BlockThinking:
			require.Equal(t, b.Thinking, texts[i])
		case model.BlockToolCall:
			want := b.RawArguments
			if want == "" {
				want = string(b.Arguments)
			}
			require.Equal(t, want, texts[i])
		}
		delete(texts, i)
	}
	require.Empty(t, texts, "deltas of blocks that the message does not have")
	return res.Message, deltas, err
}

func TestProvider_Queue(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	p.Push(
		faux.Step{Text: "one"},
		faux.Step{Thinking: "hm", Text: "two", ToolCalls: []faux.ToolCall{
			{Name: "bash", Arguments: json.RawMessage(`{ "b": 1, "a": 12345678901234567890 }`)},
			{Name: "read"},
			{ID: "mine", Name: "edit", Arguments: json.RawMessage(`"{\"cut"`)},
		}},
		faux.Step{Text: "odd", StopReason: "bored"},
	)
	require.Equal(t, 3, p.Pending())

	m, deltas, err := stream(t, p, request("a"))
	require.NoError(t, err)
	require.Equal(t, []model.Block{model.Text("one")}, m.Content)
	require.Equal(t, model.StopEnd, m.StopReason)
	require.Len(t, deltas, 1)

	m, deltas, err = stream(t, p, request("a"))
	require.NoError(t, err)
	require.Equal(t, model.StopToolUse, m.StopReason)
	require.Len(t, m.Content, 5)
	require.Equal(t, "hm", m.Content[0].Thinking)
	require.NotEmpty(t, m.Content[0].Signature)
	require.JSONEq(t, `{"a":12345678901234567890,"b":1}`, string(m.Content[2].Arguments))
	require.Equal(t, `{"b":1,"a":12345678901234567890}`, string(m.Content[2].Arguments), "key order and numbers are kept")
	require.Equal(t, []string{"call_1", "call_2", "mine"}, []string{m.Content[2].ID, m.Content[3].ID, m.Content[4].ID})
	require.Equal(t, "{}", string(m.Content[3].Arguments))
	require.True(t, m.Content[4].ArgumentsBroken())
	require.Equal(t, `{"cut`, m.Content[4].RawArguments)
	require.Equal(t, "call_1", deltas[2].ToolCallID)
	require.Equal(t, "bash", deltas[2].ToolName)

	m, _, err = stream(t, p, request("a"))
	require.NoError(t, err)
	require.EqualValues(t, "bored", m.StopReason)

	_, _, err = stream(t, p, request("a"))
	require.Equal(t, model.ClassInvalidRequest, model.AsError(err).Class)
	require.Equal(t, "no faux response", model.AsError(err).Message)
	require.EqualValues(t, 4, p.Count())
}

func TestProvider_Rules(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	p.AddRules([]faux.Rule{
		{When: "weather", Step: faux.Step{Text: "rain"}},
		{When: "time", Step: faux.Step{Text: "noon"}},
	}, 2)
	p.AddRules([]faux.Rule{{Step: faux.Step{Text: "anything"}}}, 0)
	p.Push(faux.Step{Text: "queued"})

	answer := func(texts ...string) string {
		req := request(texts...)
		req.Messages = append(req.Messages, model.Message{Role: model.RoleSystem, Sections: []model.Section{{Key: "k", Text: "weather"}}})
		m, _, err := stream(t, p, req)
		require.NoError(t, err)
		return m.Text()
	}
	require.Equal(t, "rain", answer("the time", "the weather at this time"), "the first rule that fits the last message")
	require.Equal(t, "anything", answer("hello"), "a request that fits no rule of a set uses none up")
	require.Equal(t, "noon", answer("time"))
	require.Equal(t, "anything", answer("time"), "the first set is used up")
	require.Equal(t, 1, p.Pending())

	p.Reset()
	_, _, err := stream(t, p, request("time"))
	require.Error(t, err)
}

func TestProvider_Handler(t *testing.T) {
	t.Parallel()
	p := faux.New(&faux.Options{Handler: func(req *model.Request) (faux.Step, bool) {
		text := req.Messages[len(req.Messages)-1].Text()
		return faux.Step{Text: "echo " + text}, text != "no"
	}})
	p.Push(faux.Step{Text: "queued"})
	m, _, err := stream(t, p, request("yes"))
	require.NoError(t, err)
	require.Equal(t, "echo yes", m.Text())
	m, _, err = stream(t, p, request("no"))
	require.NoError(t, err)
	require.Equal(t, "queued", m.Text())
}

func TestProvider_ErrorAfterText(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	p.Push(
		faux.Step{Text: "half", Error: &faux.Error{Class: model.ClassRateLimit, Message: "slow down", RetryAfterMS: 1500}},
		faux.Step{Error: &faux.Error{Class: model.ClassOverloaded, NoRetry: true}},
	)
	m, _, err := stream(t, p, request("a"))
	me := model.AsError(err)
	require.Equal(t, model.ClassRateLimit, me.Class)
	require.Equal(t, 1500*time.Millisecond, me.RetryAfter)
	require.True(t, me.Retryable())
	require.Equal(t, "half", m.Text())
	require.Equal(t, model.StopError, m.StopReason)
	require.Equal(t, "slow down", m.ErrorMessage)
	require.NotNil(t, m.Usage)

	m, _, err = stream(t, p, request("a"))
	require.Nil(t, m)
	require.False(t, model.AsError(err).Retryable())
}

func TestProvider_ChunksKeepCharactersWhole(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	p.Push(faux.Step{Text: "aä€😀b", ChunkSize: 2})
	_, deltas, err := stream(t, p, request("a"))
	require.NoError(t, err)
	var got []string
	for _, d := range deltas {
		got = append(got, d.Text)
	}
	require.Equal(t, []string{"aä", "€😀", "b"}, got)
}

func TestProvider_Delays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := faux.New(nil)
		p.Push(faux.Step{DelayMS: 300, ChunkMS: 20, ChunkSize: 1, Text: "abcd"}, faux.Step{ChunkMS: 5, Text: strings.Repeat("x", 40)})
		start := time.Now()
		_, _, err := stream(t, p, request("a"))
		require.NoError(t, err)
		require.Equal(t, 360*time.Millisecond, time.Since(start))

		_, deltas, err := stream(t, p, request("a"))
		require.NoError(t, err)
		require.Len(t, deltas, 3, "chunkMs alone gives a default chunk size")
	})
}

func TestProvider_CancelDuringDelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := faux.New(nil)
		p.Push(faux.Step{ChunkMS: 10, ChunkSize: 1, Text: "abcd"})
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("stopping")
		time.AfterFunc(15*time.Millisecond, func() { cancel(cause) })
		m, _, err := streamCtx(ctx, t, p, request("a"))
		me := model.AsError(err)
		require.Equal(t, model.ClassAborted, me.Class)
		require.ErrorIs(t, err, cause)
		require.Equal(t, "ab", m.Text())
		require.Equal(t, model.StopAborted, m.StopReason)

		_, _, err = streamCtx(ctx, t, p, request("a"))
		require.Equal(t, model.ClassAborted, model.AsError(err).Class)
		require.EqualValues(t, 1, p.Count(), "a request cancelled before it began takes no step")
	})
}

func TestProvider_WaitAndHold(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	wait, hold := make(chan struct{}), make(chan struct{})
	p.Push(faux.Step{Text: "x", Wait: wait, Hold: hold})
	seen, done := make(chan string, 1), make(chan error, 1)
	go func() {
		_, err := p.Stream(t.Context(), request("a"), func(d model.Delta) { seen <- d.Text })
		done <- err
	}()
	select {
	case <-seen:
		require.Fail(t, "text before wait was released")
	case wait <- struct{}{}:
	}
	require.Equal(t, "x", <-seen)
	select {
	case <-done:
		require.Fail(t, "answer ended before hold was released")
	case hold <- struct{}{}:
	}
	require.NoError(t, <-done)

	ctx, cancel := context.WithCancel(t.Context())
	p.Push(faux.Step{Text: "x", Hold: hold})
	res, err := p.Stream(ctx, request("a"), func(model.Delta) { cancel() })
	require.Equal(t, model.ClassAborted, model.AsError(err).Class)
	require.Equal(t, "x", res.Message.Text())
}

func TestProvider_OutputLimit(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	req := request("a")
	req.MaxOutputTokens = 2
	call := []faux.ToolCall{{Name: "bash"}}
	p.Push(
		faux.Step{Text: "12345678", ToolCalls: call},
		faux.Step{Text: "ääääääää9", ToolCalls: call},
		faux.Step{Thinking: "123456789", Text: "x"},
		faux.Step{Text: "123456789", StopReason: model.StopEnd},
	)
	m, _, err := stream(t, p, req)
	require.NoError(t, err)
	require.Equal(t, model.StopToolUse, m.StopReason)

	m, _, err = stream(t, p, req)
	require.NoError(t, err)
	require.Equal(t, model.StopLength, m.StopReason)
	require.Equal(t, []model.Block{model.Text("ääääääää")}, m.Content)

	m, _, err = stream(t, p, req)
	require.NoError(t, err)
	require.Equal(t, model.StopLength, m.StopReason)
	require.Len(t, m.Content, 1)
	require.Equal(t, "12345678", m.Content[0].Thinking)

	m, _, err = stream(t, p, req)
	require.NoError(t, err)
	require.Equal(t, "123456789", m.Text(), "a scripted stop reason keeps the text whole")
}

func TestProvider_Usage(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	p.Push(
		faux.Step{Text: "12345678"},
		faux.Step{Text: "x", Usage: &model.Usage{Input: 1_000_000, Output: 2}},
		faux.Step{Text: "x", Usage: &model.Usage{}},
		faux.Step{Error: &faux.Error{Class: model.ClassServerError}, Usage: &model.Usage{Input: 7}},
	)
	m, _, err := stream(t, p, request("1234"))
	require.NoError(t, err)
	require.EqualValues(t, 1, m.Usage.Input)
	require.EqualValues(t, 2, m.Usage.Output)
	require.EqualValues(t, 3, m.Usage.Total)
	require.Positive(t, m.Usage.Cost.Total)

	m, _, err = stream(t, p, request("1234"))
	require.NoError(t, err)
	require.EqualValues(t, 1_000_002, m.Usage.Total)
	require.InDelta(t, 1.0, m.Usage.Cost.Input, 1e-9)

	m, _, err = stream(t, p, request("1234"))
	require.NoError(t, err)
	require.True(t, m.Usage.IsZero())

	m, _, err = stream(t, p, request("1234"))
	require.Error(t, err)
	require.EqualValues(t, 7, m.Usage.Input, "a failed request may report usage")
}

func TestProvider_CallIDsAvoidThoseOfTheRequest(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	p.Push(faux.Step{ToolCalls: []faux.ToolCall{{Name: "bash"}}})
	req := request("a")
	req.Messages = append(req.Messages, model.Message{Role: model.RoleAssistant, Content: []model.Block{
		{Type: model.BlockToolCall, ID: "call_1", Name: "bash"},
	}})
	m, _, err := stream(t, p, req)
	require.NoError(t, err)
	require.Equal(t, "call_2", m.Content[0].ID)
}

func TestProvider_Requests(t *testing.T) {
	t.Parallel()
	p := faux.New(&faux.Options{KeepRequests: 2})
	p.AddRules([]faux.Rule{{Step: faux.Step{Text: "ok"}}}, 0)
	for i := range 3 {
		_, _, err := stream(t, p, request(fmt.Sprint(i)))
		require.NoError(t, err)
	}
	got := p.Requests()
	require.Len(t, got, 2)
	require.Equal(t, "1", got[0].Messages[0].Text())
	require.Equal(t, "2", got[1].Messages[0].Text())
	got[1].Messages[0].Content[0].Text = "changed"
	require.Equal(t, "2", p.Requests()[1].Messages[0].Text())

	req := request("hello")
	req.Messages = append([]model.Message{{
		Role: model.RoleSystem, Baseline: true, Sections: []model.Section{{Key: "role", Text: "help"}},
		ToolsAdded: []model.Tool{{Name: "bash", Parameters: json.RawMessage(`{"type":"object"}`)}},
	}}, req.Messages...)
	text, err := json.Marshal(faux.NewView(req))
	require.NoError(t, err)
	require.JSONEq(t, `{
		"model": {"provider": "faux", "modelId": "faux-1"},
		"system": "<role>\nhelp\n</role>",
		"messages": [{"role": "user", "content": [{"type": "text", "text": "hello"}], "timestamp": "0001-01-01T00:00:00Z"}],
		"tools": [{"name": "bash", "description": "", "parameters": {"type": "object"}}],
		"options": {"maxOutputTokens": 1000, "sessionId": "s"}
	}`, string(text))

	none := faux.New(&faux.Options{KeepRequests: -1})
	none.Push(faux.Step{Text: "x"})
	_, _, err = stream(t, none, request("a"))
	require.NoError(t, err)
	require.Empty(t, none.Requests())
}

func TestProvider_Concurrent(t *testing.T) {
	t.Parallel()
	p := faux.New(nil)
	const n = 64
	for i := range n {
		p.Push(faux.Step{Text: fmt.Sprint(i), ToolCalls: []faux.ToolCall{{Name: "bash"}}})
	}
	var mu sync.Mutex
	texts, ids := map[string]bool{}, map[string]bool{}
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			res, err := p.Stream(t.Context(), request("a"), func(model.Delta) {})
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			texts[res.Message.Text()] = true
			ids[res.Message.ToolCalls()[0].ID] = true
		})
	}
	wg.Wait()
	require.Len(t, texts, n, "each step answers one request")
	require.Len(t, ids, n)
}

func TestParseScript(t *testing.T) {
	t.Parallel()
	s, err := faux.ParseScript([]byte(`{"rules": [{"when": "x", "text": "y", "toolCalls": [{"name": "bash", "arguments": {"command": "ls"}}], "delayMs": 1}], "count": 3}`))
	require.NoError(t, err)
	require.Equal(t, "x", s.Rules[0].When)
	require.Equal(t, "y", s.Rules[0].Text)
	require.Equal(t, 3, s.Count)
	p := faux.New(nil)
	require.NoError(t, p.Load(s))

	s, err = faux.ParseScript([]byte(`{"responses": [{"error": {"class": "overloaded", "message": "m", "retryAfterMs": 5}}]}`))
	require.NoError(t, err)
	require.NoError(t, p.Load(s))
	_, _, err = stream(t, p, request("a"))
	require.Equal(t, model.ClassOverloaded, model.AsError(err).Class)

	for name, text := range map[string]string{
		"not JSON":            `{`,
		"unknown field":       `{"responses": [{"txt": "x"}]}`,
		"text after":          `{} x`,
		"unknown class":       `{"responses": [{"error": {"class": "bad_luck"}}]}`,
		"negative delay":      `{"responses": [{"delayMs": -1}]}`,
		"negative count":      `{"rules": [], "count": -1}`,
		"both":                `{"responses": [{}], "rules": [{"when": "x"}]}`,
		"call without name":   `{"rules": [{"when": "x", "toolCalls": [{"arguments": {}}]}]}`,
		"arguments a list":    `{"responses": [{"toolCalls": [{"name": "x", "arguments": []}]}]}`,
		"negative retryAfter": `{"responses": [{"error": {"class": "quota", "retryAfterMs": -1}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := faux.ParseScript([]byte(text))
			require.ErrorContains(t, err, "faux script")
		})
	}
}

func BenchmarkStream(b *testing.B) {
	p := faux.New(&faux.Options{Handler: func(*model.Request) (faux.Step, bool) {
		return faux.Step{Text: "an answer", Usage: &model.Usage{}}, true
	}})
	req := request("a question")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Stream(b.Context(), req, func(model.Delta) {}); err != nil {
			b.Fatal(err)
		}
	}
}
