package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// requirePrefix checks that each request begins with the messages of the one
// before it, byte for byte (E11).
func requirePrefix(t require.TestingT, reqs []*model.Request) {
	help(t)
	for i := 1; i < len(reqs); i++ {
		before, now := reqs[i-1].Messages, reqs[i].Messages
		require.GreaterOrEqual(t, len(now), len(before), "request %d", i)
		for j := range before {
			require.JSONEq(t, string(mustJSON(before[j])), string(mustJSON(now[j])), "request %d, message %d", i, j)
		}
	}
}

// What a turn costs in commits, beside those of running output (E18). The first
// turn of a conversation stores its prompt and session as well.
func TestGeneration_Commits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name        string
		tools       bool
		steps       []faux.Step
		first, most int
	}{
		{"plain answer", false, []faux.Step{text("answer")}, 3, 2},
		{"one tool call", true, []faux.Step{call("echo", `{"text":"a"}`), text("answer")}, 6, 5},
		{"three calls in a round", true, []faux.Step{calls("echo", "a", "b", "c"), text("answer")}, 10, 9},
		{"a retry", false, []faux.Step{failure(model.ClassOverloaded), text("answer")}, 5, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				var exts []durable.Extension
				if tc.tools {
					exts = append(exts, tools(echoTool()))
				}
				r := newRig(t, exts...).open()
				c := r.conversation()
				for turn := range 4 {
					before, _ := r.history.counts()
					r.model.Push(tc.steps...)
					r.answer(r.send(c, "go"))
					after(time.Second)
					now, _ := r.history.counts()
					limit := tc.most
					if turn == 0 {
						limit = tc.first
					}
					require.LessOrEqual(t, now-before, limit, "commits of turn %d", turn)
				}
				requirePrefix(t, r.model.Requests())
			})
		})
	}
}

// An answer in pieces is committed piece by piece, the first at once and then
// at intervals, each commit holding only what is new; an answer that comes at
// once costs none of these (E12.2).
func TestGeneration_Partials(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t).open()
		c := r.conversation()
		r.model.Push(text("at once"))
		r.answer(r.send(c, "go"))
		_, outputs := r.history.counts()
		require.Zero(t, outputs)

		answer := strings.Repeat("0123456789", 100)
		r.model.Push(faux.Step{Text: answer, ChunkSize: 10, ChunkMS: 20}) // two seconds
		from := len(r.history.batches)
		r.answer(r.send(c, "go"))
		var stored strings.Builder
		commits := 0
		for _, b := range r.history.batches[from:] {
			for _, p := range b.Partials {
				if len(p.Data) == 0 {
					require.True(t, p.Reset)
					continue
				}
				require.False(t, p.Reset, "nothing is written twice")
				commits++
				var deltas []model.Delta
				require.NoError(t, json.Unmarshal(p.Data, &deltas))
				for _, d := range deltas {
					stored.WriteString(d.Text)
				}
			}
		}
		require.True(t, strings.HasPrefix(answer, stored.String()))
		require.Greater(t, stored.Len(), 900, "all but the last pieces")
		require.InDelta(t, 20, commits, 2)
	})
}

// An answer that the limit cut is an answer, and the submission says so; also
// one that is nothing but thinking (E12.4).
func TestGeneration_Length(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Agent.OutputTokens = 2
	r.open()
	c := r.conversation()
	r.model.Push(text("much too long for that"))
	s := r.send(c, "go")
	require.Equal(t, "much too", r.answer(s))
	require.Equal(t, model.StopLength, r.record(s).StopReason)
	r.model.Push(faux.Step{Thinking: "I think and think and think", Text: "never said"})
	s = r.send(c, "think")
	require.Equal(t, "", r.answer(s))
	require.Equal(t, model.StopLength, r.record(s).StopReason)
	r.model.Push(text("short"))
	require.Equal(t, "short", r.answer(r.send(c, "again")))
	r.wellFormed(c)
}

// The output limit is the agent's, at most what the model can (E12.4).
func TestGeneration_OutputLimit(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ agent, want int }{
		"default": {0, 32000}, "agent's": {1000, 1000}, "more than the model can": {1_000_000, 64_000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.opts.Agent.OutputTokens = tc.agent
			r.open()
			r.model.Push(text("a"))
			r.answer(r.send(r.conversation(), "go"))
			require.Equal(t, tc.want, r.model.Requests()[0].MaxOutputTokens)
		})
	}
}

// An unknown stop reason is an error that names it, and is not repeated (E12.3).
func TestGeneration_UnknownStopReason(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	r.model.Push(faux.Step{Text: "hm", StopReason: "tired"})
	rec := r.unanswered(r.send(c, "go"), durable.ReasonModelError)
	require.Contains(t, string(rec.Detail), "tired")
	require.EqualValues(t, 1, r.model.Count())
	m := r.entries(c)[1].Model[0]
	require.Equal(t, model.StopError, m.StopReason)
	require.Contains(t, m.ErrorMessage, "tired")
	r.model.Push(text("fine"))
	require.Equal(t, "fine", r.answer(r.send(c, "again")))
}

// A thinking signature that the provider rejects is left out and the request
// sent once more, at once; a second rejection ends the run (E13).
func TestGeneration_ThinkingMismatch(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	r.model.Push(faux.Step{Thinking: "deep", Text: "one"}, failure(model.ClassThinkingMismatch), text("two"))
	r.answer(r.send(c, "first"))
	require.Equal(t, "two", r.answer(r.send(c, "second")))
	reqs := r.model.Requests()
	require.Len(t, reqs, 3)
	require.False(t, reqs[1].DropThinking)
	require.True(t, reqs[2].DropThinking)
	r.model.Push(failure(model.ClassThinkingMismatch), failure(model.ClassThinkingMismatch))
	rec := r.unanswered(r.send(c, "third"), durable.ReasonModelError)
	require.Contains(t, string(rec.Detail), "thinking_mismatch")
	require.EqualValues(t, 5, r.model.Count())
	r.model.Push(text("four"))
	require.Equal(t, "four", r.answer(r.send(c, "fourth")), "the conversation stays usable")
}

// The output limit cuts an answer in the middle of a tool call: that call does
// not run, its result says why, and the whole calls before it do (E13).
func TestGeneration_CutCall(t *testing.T) {
	t.Parallel()
	g := newCounter()
	r := newRig(t, tools(g.tool("count"))).open()
	c := r.conversation()
	cut := faux.Step{StopReason: model.StopLength, ToolCalls: []faux.ToolCall{
		{Name: "count", Arguments: json.RawMessage(`{"text":"whole"}`)},
		{Name: "count", Arguments: json.RawMessage(`"{\"text\":\"rm -rf ./bu"`)},
	}}
	looksWhole := faux.Step{StopReason: model.StopLength, ToolCalls: []faux.ToolCall{{Name: "count", Arguments: json.RawMessage(`{"text":"last"}`)}}}
	r.model.Push(cut, looksWhole, text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.Equal(t, map[string]int{"whole": 1}, g.counts())
	results := map[string]string{}
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindToolResult {
			results[e.Model[0].ToolCallID] = e.Model[0].Text()
		}
	}
	require.Len(t, results, 3)
	require.Equal(t, "ok whole", results["call_1"])
	require.Contains(t, results["call_2"], "cut off by the output limit")
	require.Contains(t, results["call_3"], "cut off by the output limit")
	require.Equal(t, "{}", string(r.model.Requests()[1].Messages[2].Content[1].Arguments))
}

// counter is a tool that counts its calls.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func newCounter() *counter { return &counter{n: map[string]int{}} }

func (c *counter) tool(name string) *durable.Tool {
	return tool(name, func(_ context.Context, _ *durable.ToolCall, arg string) (durable.ToolResult, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n[arg]++
		return durable.TextResult("ok " + arg), nil
	})
}

func (c *counter) counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// Arguments that are no JSON object are never run; the model reads what was
// wrong, and the request that follows is one that providers take (E13).
func TestGeneration_BrokenArguments(t *testing.T) {
	t.Parallel()
	g := newCounter()
	r := newRig(t, tools(g.tool("count"))).open()
	c := r.conversation()
	var step faux.Step
	for _, raw := range []string{`"[1]"`, `"nonsense"`, `"{\"text\":"`, `"null"`} {
		step.ToolCalls = append(step.ToolCalls, faux.ToolCall{Name: "count", Arguments: json.RawMessage(raw)})
	}
	r.model.Push(step, text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.Empty(t, g.counts())
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindToolResult {
			require.Contains(t, string(e.Data), durable.CodeInvalidArguments)
			require.True(t, e.Model[0].IsError)
		}
	}
	require.Equal(t, "nonsense", r.entries(c)[2].Model[0].Content[1].RawArguments, "what the model wrote is kept")
}

// A provider that repeats call ids, within an answer, over answers, or gives
// none: each call has its own result, and ids are unique in every request (E13).
func TestGeneration_RepeatedCallIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(echoTool())).provide(sameIDs{}).open()
	c := r.conversation()
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	texts := map[string]int{}
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindToolResult {
			texts[e.Model[0].Text()]++
		}
	}
	require.Equal(t, map[string]int{"echo: a": 4, "echo: b": 4, "echo: c": 4}, texts)
	r.wellFormed(c)
	r.sameAsFresh(c)
}

// sameIDs is a provider that calls three tools, twice for each input, under the
// same two ids and none. It takes only what a strict provider takes.
type sameIDs struct{}

func (sameIDs) Stream(_ context.Context, req *model.Request, _ func(model.Delta)) (*model.Response, error) {
	if err := faux.Check(req); err != nil {
		return nil, err
	}
	rounds := 0
	for _, m := range req.Messages {
		switch m.Role {
		case model.RoleUser:
			rounds = 0
		case model.RoleAssistant:
			rounds++
		}
	}
	m := &model.Message{Role: model.RoleAssistant, StopReason: model.StopEnd, Content: []model.Block{model.Text("done")}}
	if rounds < 2 {
		m.StopReason = model.StopToolUse
		m.Content = nil
		for i, id := range []string{"same", "same", ""} {
			b := model.Block{Type: model.BlockToolCall, ID: id, Name: "echo"}
			b.SetArguments(fmt.Sprintf(`{"text":%q}`, string(rune('a'+i))))
			m.Content = append(m.Content, b)
		}
	}
	return &model.Response{Message: m}, nil
}

// Three failing rounds in a row that are the same end the run with a reason; a
// round that differs, in what is called or in what came of it, begins the count
// anew (E13).
func TestGeneration_Stuck(t *testing.T) {
	t.Parallel()
	fails := tool("fails", func(_ context.Context, _ *durable.ToolCall, arg string) (durable.ToolResult, error) {
		return durable.ErrorResult("no " + arg), nil
	})
	n := 0
	varies := tool("varies", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		n++
		return durable.ErrorResult(fmt.Sprint("no ", n)), nil
	})
	a, b := calls("fails", "a"), calls("fails", "b")
	for name, tc := range map[string]struct {
		steps []faux.Step
		stuck bool
	}{
		"three times the same":    {[]faux.Step{a, a, a}, true},
		"after others":            {[]faux.Step{b, a, a, a}, true},
		"two calls":               {[]faux.Step{calls("fails", "a", "b"), calls("fails", "a", "b"), calls("fails", "a", "b")}, true},
		"unknown tool":            {[]faux.Step{calls("none", "a"), calls("none", "a"), calls("none", "a")}, true},
		"another call in between": {[]faux.Step{a, a, b, a, a, text("done")}, false},
		"success in between":      {[]faux.Step{a, a, calls("echo", "a"), a, a, text("done")}, false},
		"one of two succeeds": {[]faux.Step{
			{ToolCalls: append(a.ToolCalls, calls("echo", "a").ToolCalls...)}, {ToolCalls: append(a.ToolCalls, calls("echo", "a").ToolCalls...)},
			{ToolCalls: append(a.ToolCalls, calls("echo", "a").ToolCalls...)}, text("done"),
		}, false},
		"other results": {[]faux.Step{calls("varies", "a"), calls("varies", "a"), calls("varies", "a"), text("done")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, tools(fails, varies, echoTool())).open()
			c := r.conversation()
			r.model.Push(tc.steps...)
			s := r.send(c, "go")
			next := r.send(c, "next")
			if !tc.stuck {
				require.Equal(t, "done", r.answer(s))
			} else {
				rec := r.unanswered(s, durable.ReasonStuck)
				require.Contains(t, string(rec.Detail), "3 times")
			}
			require.Zero(t, r.model.Pending())
			// The boundary at the end places what waited (E8.2), here without an answer.
			r.unanswered(next, durable.ReasonModelError)
			r.wellFormed(c)
		})
	}
}

// A part of an answer that a restart cut off becomes an aborted entry, and the
// same request is sent again (E12.1).
func TestGeneration_Recover(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, tools(echoTool())).open()
		c := r.conversation()
		r.model.Push(call("echo", `{"text":"a"}`), faux.Step{Thinking: "hm", Text: "half", Hold: make(chan struct{}), Usage: &model.Usage{}}, text("whole"))
		s := r.send(c, "go")
		after(time.Second)
		r.restart()
		s, err := r.engine.Submission(r.ctx, s.ID())
		require.NoError(t, err)
		require.Equal(t, "whole", r.answer(s))
		reqs := r.model.Requests()
		require.Len(t, reqs, 3)
		require.Equal(t, string(mustJSON(reqs[1])), string(mustJSON(reqs[2])), "the same request")
		c = r.again(c)
		require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.assistant", "pi.assistant"}, r.kinds(c))
		cut := r.entries(c)[4]
		require.Equal(t, model.StopAborted, cut.Model[0].StopReason)
		require.Equal(t, "half", cut.Model[0].Text())
		require.JSONEq(t, `{"void":true}`, string(cut.Data))
		total, err := c.Usage(r.ctx)
		require.NoError(t, err)
		var want model.Usage
		for _, e := range r.entries(c) {
			for i := range e.Model {
				want.Add(e.Model[i].Usage)
			}
		}
		require.Equal(t, want.Total, total.Models["faux/faux-1"].Total, "counted once (E15)")
	})
}

// No more requests are under way at once than the option says.
func TestGeneration_ConcurrentRuns(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := &puppet{}
		r := newRig(t).provide(p)
		r.opts.ConcurrentRuns = 3
		r.open()
		var subs []*durable.Submission
		for range 10 {
			subs = append(subs, r.send(r.conversation(), "go"))
		}
		after(time.Second)
		for left := 10; left > 0; left-- {
			require.Len(t, p.asked(), min(3, left))
			p.asked()[0].end(text("done"))
			after(time.Second)
		}
		for _, s := range subs {
			require.Equal(t, "done", r.answer(s))
		}
		// One that waits for its turn heeds an abort.
		for range 4 {
			r.send(r.conversation(), "go")
		}
		c := r.conversation()
		last := r.send(c, "last")
		after(time.Second)
		_, err := c.Abort(r.ctx, nil)
		require.NoError(t, err)
		r.unanswered(last, durable.ReasonAborted)
	})
}

// What providers are told of a conversation is stable: its session id, over
// turns and restarts, another one for each conversation (E5.5).
func TestGeneration_Session(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.model.AddRules([]faux.Rule{{Step: text("a")}}, 0)
	r.open()
	c, other := r.conversation(), r.conversation()
	r.answer(r.send(c, "one"))
	r.answer(r.send(other, "one"))
	r.restart()
	r.answer(r.send(r.again(c), "two"))
	reqs := r.model.Requests()
	require.Regexp(t, regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`), reqs[0].SessionID)
	require.Equal(t, reqs[0].SessionID, reqs[2].SessionID)
	require.NotEqual(t, reqs[0].SessionID, reqs[1].SessionID)
}

// Thinking goes only to the model that made it (E13), and a change of the
// model is one of the few things that may change what was sent.
func TestGeneration_ModelChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := faux.Model()
	other.ID = "faux-2"
	r.opts.Models.AddModel(other)
	r.open()
	c := r.conversation()
	r.model.Push(faux.Step{Thinking: "deep", Text: "one"}, text("two"), text("three"))
	r.answer(r.send(c, "a"))
	ref := &model.Ref{Provider: "faux", ModelID: "faux-2"}
	require.NoError(t, c.ChangeAgent(r.ctx, &durable.AgentChange{Model: &ref}))
	r.answer(r.send(c, "b"))
	var none *model.Ref
	require.NoError(t, c.ChangeAgent(r.ctx, &durable.AgentChange{Model: &none}))
	r.answer(r.send(c, "c"))
	thinks := func(i int) bool {
		for _, b := range r.model.Requests()[i].Messages[1].Content {
			if b.Type == model.BlockThinking {
				return true
			}
		}
		return false
	}
	require.False(t, thinks(1))
	require.True(t, thinks(2), "back at the model that made it")
	require.Equal(t, "faux-2", r.model.Requests()[1].Model.ID)
	total, err := c.Usage(r.ctx)
	require.NoError(t, err)
	require.Len(t, total.Models, 2, "usage is kept by model (E15)")
}

// Usage is counted in the commit of what it belongs to, for failed attempts
// too, and summed over the store (E15).
func TestGeneration_Usage(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t).open()
		use := func(n int64) *model.Usage {
			return &model.Usage{Input: n, Output: n, Total: 2 * n, Cost: model.Cost{Total: float64(n)}}
		}
		failed := failure(model.ClassOverloaded)
		failed.Text, failed.Usage = "x", use(10)
		c, other := r.conversation(), r.conversation()
		r.model.Push(faux.Step{Text: "a", Usage: use(1)}, failed, faux.Step{Text: "b", Usage: use(100)}, faux.Step{Text: "c", Usage: use(1000)})
		r.answer(r.send(c, "a"))
		r.answer(r.send(c, "b"))
		r.answer(r.send(other, "c"))
		mine, err := c.Usage(r.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 222, mine.Models["faux/faux-1"].Total)
		require.EqualValues(t, 111, mine.Models["faux/faux-1"].Input)
		require.InDelta(t, 111, mine.Total().Cost.Total, 0.001)
		all, err := r.engine.Usage(r.ctx)
		require.NoError(t, err)
		require.EqualValues(t, 2222, all.Total().Total)
	})
}

// anything is a provider that answers with whatever is drawn, and takes only
// what a strict provider takes.
type anything struct {
	draw func() *model.Message
	mu   sync.Mutex
	bad  error
}

func (p *anything) Stream(_ context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := faux.Check(req); err != nil && p.bad == nil {
		p.bad = fmt.Errorf("%w: %s", err, mustJSON(req.Messages))
	}
	m := p.draw()
	for i, b := range m.Content {
		if b.Type == model.BlockText {
			emit(model.Delta{Kind: model.DeltaText, Index: i, Text: b.Text})
		}
	}
	return &model.Response{Message: m}, nil
}

// TestGeneration_AnyAnswer has a provider that answers with all kinds of
// nonsense: no history makes a conversation unusable (E2.8, E13).
func TestGeneration_AnyAnswer(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		bubble(t, func(t *testing.T) {
			junk := []string{"", " ", "\n", "fine", "a\xffb", "\xf0\x28", `{"a":"\ud800"}`, "{}", "null", "[1]", `{"text":"a"}`, `{"text":5}`, "\x00", "\u2028"}
			some := func(what string) string { return rapid.SampledFrom(junk).Draw(rt, what) }
			p := &anything{draw: func() *model.Message {
				m := &model.Message{
					StopReason: rapid.SampledFrom([]model.StopReason{
						model.StopEnd, model.StopEnd, model.StopToolUse, model.StopToolUse, model.StopLength, model.StopError, model.StopDeferred, "", "odd",
					}).Draw(rt, "stop"),
				}
				for range rapid.IntRange(0, 4).Draw(rt, "blocks") {
					b := model.Block{Type: rapid.SampledFrom([]model.BlockType{model.BlockText, model.BlockThinking, model.BlockToolCall, model.BlockToolCall, model.BlockImage, "odd"}).Draw(rt, "type")}
					switch b.Type {
					case model.BlockText:
						b.Text = some("text")
					case model.BlockThinking:
						b.Thinking, b.Signature = some("thinking"), some("signature")
					case model.BlockToolCall:
						b.ID = rapid.SampledFrom([]string{"", "x", "x", "y", "a b/c", "\xff"}).Draw(rt, "id")
						b.Name = rapid.SampledFrom([]string{"echo", "echo", "", "none", "a b", "\xff"}).Draw(rt, "name")
						b.SetArguments(some("arguments"))
					case model.BlockImage:
						b.MimeType, b.Data = some("mime"), []byte(some("data"))
					}
					m.Content = append(m.Content, b)
				}
				return m
			}}
			r := makeRig(rt, t.Context(), tools(echoTool())).provide(p)
			r.open()
			defer r.finish()
			c := r.conversation()
			for range rapid.IntRange(1, 6).Draw(rt, "inputs") {
				s := r.send(c, "go")
				ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
				rec, err := s.Wait(ctx)
				cancel()
				if err != nil { // it calls tools for ever
					_, err = c.Abort(r.ctx, nil)
					require.NoError(rt, err)
					rec = r.record(s)
				}
				require.NotNil(rt, rec.SettledAt)
				require.NoError(rt, p.bad)
			}
			r.wellFormed(c)
			r.sameAsFresh(c)
		})
	})
}
