package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// result returns the only tool result of a conversation.
func (r *rig) result(c *durable.Conversation) (durable.Entry, model.Message) {
	help(r.t)
	var found []durable.Entry
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindToolResult {
			found = append(found, e)
		}
	}
	require.Len(r.t, found, 1, "tool results")
	return found[0], found[0].Model[0]
}

// one makes a rig with a tool, has it called once with the text "a" and
// returns the result.
func one(t *testing.T, x durable.Extension, name string) (*rig, *durable.Conversation, durable.Entry, model.Message) {
	t.Helper()
	r := newRig(t, x).open()
	c := r.conversation()
	r.model.Push(calls(name, "a"), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	e, m := r.result(c)
	return r, c, e, m
}

type nested struct {
	Path  string   `json:"path" jsonschema:"where it is"`
	Lines []int    `json:"lines,omitempty"`
	Deep  *nested2 `json:"deep,omitempty"`
}

type nested2 struct {
	Yes bool `json:"yes"`
}

// The schema of a tool's arguments comes from its type or is given; what the
// model is told is in the request (E10.1).
func TestTool_Schema(t *testing.T) {
	t.Parallel()
	typed := durable.NewTool(durable.ToolSpec{Name: "typed", Description: "Reads."}, func(context.Context, *durable.ToolCall, nested) (durable.ToolResult, error) {
		return durable.TextResult(""), nil
	})
	given, err := durable.NewRawTool(durable.ToolSpec{Name: "given", Parameters: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":3}}}`)},
		func(_ context.Context, _ *durable.ToolCall, args json.RawMessage) (durable.ToolResult, error) {
			return durable.TextResult(string(args)), nil
		})
	require.NoError(t, err)
	r := newRig(t, tools(typed, given)).open()
	c := r.conversation()
	r.model.Push(call("given", `{"n": 4}`), call("given", `{"n": 3}`), call("typed", `{"path": 5}`), call("typed", `{}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	view := faux.NewView(r.model.Requests()[0])
	require.Len(t, view.Tools, 2)
	require.Equal(t, "Reads.", view.Tools[0].Description)
	var schema struct {
		Type       string
		Required   []string
		Properties map[string]struct{ Description string }
	}
	require.NoError(t, json.Unmarshal(view.Tools[0].Parameters, &schema))
	require.Equal(t, "object", schema.Type)
	require.Equal(t, []string{"path"}, schema.Required)
	require.Equal(t, "where it is", schema.Properties["path"].Description)
	var results []string
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindToolResult {
			results = append(results, e.Model[0].Text())
		}
	}
	require.Contains(t, results[0], "[error] Invalid arguments")
	require.Contains(t, results[0], "maximum")
	require.Equal(t, `{"n":3}`, results[1])
	require.Contains(t, results[2], "Invalid arguments")
	require.Contains(t, results[3], "path")
}

// A declaration that cannot work is a mistake of the program, or an error where
// it comes from elsewhere (E10.1).
func TestTool_Declaration(t *testing.T) {
	t.Parallel()
	object := json.RawMessage(`{"type":"object"}`)
	run := func(context.Context, *durable.ToolCall, json.RawMessage) (durable.ToolResult, error) {
		return durable.ToolResult{}, nil
	}
	for name, spec := range map[string]durable.ToolSpec{
		"no name":        {Parameters: object},
		"bad name":       {Name: "a b", Parameters: object},
		"long name":      {Name: strings.Repeat("a", 65), Parameters: object},
		"no schema":      {Name: "a"},
		"not JSON":       {Name: "a", Parameters: json.RawMessage(`{`)},
		"not an object":  {Name: "a", Parameters: json.RawMessage(`{"type":"string"}`)},
		"unknown replay": {Name: "a", Parameters: object, Replay: "maybe"},
		"unknown mode":   {Name: "a", Parameters: object, Mode: "sideways"},
	} {
		_, err := durable.NewRawTool(spec, run)
		require.ErrorIs(t, err, durable.ErrInvalid, name)
	}
	_, err := durable.NewRawTool(durable.ToolSpec{Name: "a", Parameters: object}, nil)
	require.ErrorIs(t, err, durable.ErrInvalid)
	require.Panics(t, func() { tool("a b", nil) })
	same := tool("same", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		return durable.ToolResult{}, nil
	})
	require.ErrorIs(t, durable.NewRegistry().Install(tools(same, same)), durable.ErrInvalid)
}

// Prepare repairs what a model often gets wrong; the transcript keeps what the
// model wrote, and the tool gets what was repaired (E10.1).
func TestTool_Prepare(t *testing.T) {
	t.Parallel()
	repair := toolOf(durable.ToolSpec{Name: "repair", Prepare: func(args json.RawMessage) json.RawMessage {
		return json.RawMessage(strings.ReplaceAll(string(args), "txet", "text"))
	}}, func(_ context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
		return durable.TextResult(arg + " of " + string(call.RawArguments())), nil
	})
	r := newRig(t, tools(repair)).open()
	c := r.conversation()
	r.model.Push(call("repair", `{"txet":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	_, m := r.result(c)
	require.Equal(t, `a of {"txet":"a"}`, m.Text())
	require.Equal(t, `{"txet":"a"}`, string(r.entries(c)[2].Model[0].ToolCalls()[0].Arguments))

	_, _, _, m = one(t, tools(toolOf(durable.ToolSpec{Name: "throws", Prepare: func(json.RawMessage) json.RawMessage { panic("in prepare") }}, nil)), "throws")
	require.Contains(t, m.Text(), "in prepare")
}

// How a call can go wrong, and what the model reads of it; the run goes on
// (E2.10, E10.4, E10.6).
func TestTool_Errors(t *testing.T) {
	t.Parallel()
	fn := func(f func(call *durable.ToolCall) (durable.ToolResult, error)) *durable.Tool {
		return tool("t", func(_ context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) { return f(call) })
	}
	for name, tc := range map[string]struct {
		ext  durable.Extension
		code string
		want string
	}{
		"error": {tools(fn(func(*durable.ToolCall) (durable.ToolResult, error) {
			return durable.TextResult("lost"), errors.New("no luck")
		})),
			durable.CodeToolError, "<harness>\n[error] no luck\n</harness>"},
		"error after output": {tools(fn(func(call *durable.ToolCall) (durable.ToolResult, error) {
			call.Output([]byte("so far\n"))
			return durable.ToolResult{}, errors.New("no\nluck")
		})), durable.CodeToolError, "so far\n<harness>\n[error] no luck\n</harness>"},
		"panic": {tools(fn(func(*durable.ToolCall) (durable.ToolResult, error) { panic("boo") })),
			durable.CodeToolError, "<harness>\n[error] panic in tool t: boo\n</harness>"},
		"unknown": {durable.Extension{Name: "x"}, durable.CodeToolUnavailable, "<harness>\n[error] Tool t is not available\n</harness>"},
		"blocked": {durable.Extension{Name: "x", Tools: []*durable.Tool{fn(nil)}, Hooks: durable.Hooks{
			BeforeTool: func(context.Context, *durable.ToolCall, json.RawMessage) (durable.ToolDecision, error) {
				return durable.ToolDecision{Block: "not on my watch"}, nil
			},
		}}, durable.CodeBlocked, "<harness>\n[error] not on my watch\n</harness>"},
		"blocked by a failing hook": {durable.Extension{Name: "x", Tools: []*durable.Tool{fn(nil)}, Hooks: durable.Hooks{
			BeforeTool: func(context.Context, *durable.ToolCall, json.RawMessage) (durable.ToolDecision, error) {
				return durable.ToolDecision{}, errors.New("cannot tell")
			},
		}}, durable.CodeBlocked, "<harness>\n[error] cannot tell\n</harness>"},
		"blocked by a hook that panics": {durable.Extension{Name: "x", Tools: []*durable.Tool{fn(nil)}, Hooks: durable.Hooks{
			BeforeTool: func(context.Context, *durable.ToolCall, json.RawMessage) (durable.ToolDecision, error) { panic("boo") },
		}}, durable.CodeBlocked, "<harness>\n[error] panic in hook BeforeTool: boo\n</harness>"},
		"spoilt by a hook": {durable.Extension{Name: "x", Tools: []*durable.Tool{fn(nil)}, Hooks: durable.Hooks{
			BeforeTool: func(context.Context, *durable.ToolCall, json.RawMessage) (durable.ToolDecision, error) {
				return durable.ToolDecision{Arguments: json.RawMessage(`{"text":5}`)}, nil
			},
		}}, durable.CodeInvalidArguments, "after a hook changed them"},
		"no environment": {tools(fn(func(call *durable.ToolCall) (durable.ToolResult, error) {
			_, err := call.Env(context.Background())
			if !errors.Is(err, durable.ErrNoEnvironment) {
				return durable.TextResult("there is one"), nil
			}
			return durable.ToolResult{}, err
		})), durable.CodeToolError, "conversation has no environment"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c, e, m := one(t, tc.ext, "t")
			require.True(t, m.IsError)
			require.Contains(t, m.Text(), tc.want)
			var data struct{ Diagnostics []durable.Diagnostic }
			require.NoError(t, json.Unmarshal(e.Data, &data))
			require.Equal(t, tc.code, data.Diagnostics[0].Code)
			require.Equal(t, durable.SeverityError, data.Diagnostics[0].Severity)
			r.wellFormed(c)
		})
	}
}

// A tool that was offered and is gone when it is called, and one that is there
// and was not offered, do not run (E10.6).
func TestTool_OfferedAndThere(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := &puppet{}
		g := newCounter()
		r := newRig(t, tools(g.tool("early"))).provide(p).open()
		c := r.conversation()
		s := r.send(c, "go")
		after(time.Second)
		require.NoError(t, r.opts.Registry.Install(tools(g.tool("late"))))
		p.only(t).end(faux.Step{ToolCalls: append(calls("early", "a").ToolCalls, calls("late", "b").ToolCalls...)})
		after(time.Second)
		require.Empty(t, g.counts())
		req := p.only(t)
		require.Contains(t, string(mustJSON(req.Messages)), "Tool early is not available")
		require.Contains(t, string(mustJSON(req.Messages)), "Tool late is not available")
		req.end(calls("late", "c")) // the next request offered it
		after(time.Second)
		require.Equal(t, map[string]int{"c": 1}, g.counts())
		p.only(t).end(text("done"))
		require.Equal(t, "done", r.answer(s))
		require.NoError(t, p.fault())
	})
}

// Hooks change arguments and results, one after the other in the order of
// their extensions; one that fails is skipped, except before a call (E9.3).
func TestTool_Hooks(t *testing.T) {
	t.Parallel()
	mark := func(name string) durable.Extension {
		return durable.Extension{Name: name, Hooks: durable.Hooks{
			BeforeTool: func(_ context.Context, call *durable.ToolCall, args json.RawMessage) (durable.ToolDecision, error) {
				var a textArgs
				if err := json.Unmarshal(args, &a); err != nil {
					return durable.ToolDecision{}, err
				}
				return durable.ToolDecision{Arguments: mustJSON(textArgs{a.Text + "+" + name})}, nil
			},
			AfterTool: func(_ context.Context, call *durable.ToolCall, res durable.ToolResult) (durable.ToolResult, error) {
				if call.Name() != "echo" {
					return res, errors.New("another tool")
				}
				return durable.TextResult(res.Content[0].Text + "-" + name), nil
			},
		}}
	}
	broken := durable.Extension{Name: "broken", Hooks: durable.Hooks{
		AfterTool: func(context.Context, *durable.ToolCall, durable.ToolResult) (durable.ToolResult, error) { panic("boo") },
		AfterTools: func(_ context.Context, _ *durable.RequestContext, results []model.Message) error {
			return fmt.Errorf("%d results", len(results))
		},
	}}
	r := newRig(t, tools(echoTool()), mark("one"), broken, mark("two")).open()
	c := r.conversation()
	r.model.Push(calls("echo", "a"), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	_, m := r.result(c)
	require.Equal(t, "echo: a+one+two-one-two", m.Text())
	require.JSONEq(t, `{"text":"a"}`, string(r.entries(c)[2].Model[0].ToolCalls()[0].Arguments), "the transcript keeps what the model wrote")
}

// Details are for people, diagnostics for both; both stay with the result
// (E10.3, E10.4).
func TestTool_DetailsAndDiagnostics(t *testing.T) {
	t.Parallel()
	_, _, e, m := one(t, tools(tool("t", func(_ context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) {
		call.Details(map[string]int{"n": 1})
		call.Diagnostic(durable.SeverityWarning, "old", "is old")
		call.Diagnostic(durable.SeverityInfo, "big", "is\nbig")
		call.Details(map[string]int{"n": 2})
		res := durable.TextResult("fine")
		res.Usage = &model.Usage{Cost: model.Cost{Total: 3}}
		return res, nil
	})), "t")
	require.Equal(t, "fine<harness>\n[warning] is old\n[info] is big\n</harness>", m.Text())
	require.JSONEq(t, `{"n":2}`, string(m.Details))
	require.False(t, m.IsError)
	require.JSONEq(t, `{"diagnostics":[{"severity":"warning","code":"old","message":"is old"},{"severity":"info","code":"big","message":"is\nbig"}]}`, string(e.Data))
}

// What a call used is summed under the tool's name (E15).
func TestTool_Usage(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(tool("t", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		res := durable.TextResult("fine")
		res.Usage = &model.Usage{Total: 5, Cost: model.Cost{Total: 3}}
		return res, nil
	}))).open()
	c := r.conversation()
	r.model.Push(calls("t", "a", "b"), text("done"))
	r.answer(r.send(c, "go"))
	u, err := c.Usage(r.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 10, u.Tools["t"].Total)
}

// Running output is shown and stored while the tool runs, at intervals, within
// its bounds, cleaned of what is not text (E10.3).
func TestTool_Output(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		chatty := toolOf(durable.ToolSpec{Name: "chatty", Output: durable.OutputLimit{Lines: 5}}, func(_ context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) {
			for i := range 100 {
				call.Output([]byte(fmt.Sprintf("line %d\x1b\xff\n", i)))
				<-time.After(10 * time.Millisecond)
			}
			require.Equal(t, "line 95\nline 96\nline 97\nline 98\nline 99\n", strings.ReplaceAll(call.OutputText(), "\uFFFD", ""))
			return durable.TextResult("printed"), nil
		})
		r := newRig(t, tools(chatty)).open()
		c := r.conversation()
		w := watch(r, c)
		synctest.Wait()
		r.model.Push(calls("chatty", "a"), text("done"))
		s := r.send(c, "go")
		after(500 * time.Millisecond)
		snap := r.snapshot(c)
		require.Len(t, snap.RunningTools, 1)
		require.True(t, strings.HasSuffix(strings.ReplaceAll(snap.RunningTools[0].Output, "\uFFFD", ""), "\nline 38\nline 39\nline 40\n"), snap.RunningTools[0].Output)
		require.Equal(t, "done", r.answer(s))
		after(time.Second)
		var shown string
		updates := 0
		for _, ev := range w.of(durable.EventToolUpdate) {
			d := ev.Data.(durable.ToolEvent)
			updates++
			if d.Reset {
				shown = ""
			}
			shown += d.Delta
			require.NotContains(t, d.Delta, "\x1b")
		}
		require.InDelta(t, 10, updates, 2, "one commit each 100 ms")
		require.Contains(t, shown, "line 9")
		started, ended := w.of(durable.EventToolStart), w.of(durable.EventToolEnd)
		require.Len(t, started, 1)
		require.JSONEq(t, `{"text":"a"}`, string(started[0].Data.(durable.ToolEvent).Arguments))
		require.Equal(t, "printed", ended[0].Data.(durable.ToolEvent).Result.Text())
	})
}

// After a restart a call runs again only when it said so when it began and says
// so now; else it ends as interrupted with what it had printed (E2.6, E10.2).
func TestTool_Restart(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		before, now durable.Replay // empty: there is no such tool
		again       bool
	}{
		{durable.ReplaySafe, durable.ReplaySafe, true},
		{durable.ReplayNever, durable.ReplayNever, false},
		{durable.ReplaySafe, durable.ReplayNever, false},
		{durable.ReplayNever, durable.ReplaySafe, false},
		{durable.ReplaySafe, "", false},
	} {
		t.Run(fmt.Sprintf("%s then %s", tc.before, tc.now), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				var starts atomic.Int32
				make := func(replay durable.Replay) durable.Extension {
					return tools(toolOf(durable.ToolSpec{Name: "t", Replay: replay}, func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
						n := starts.Add(1)
						var drawn int32
						if err := call.Memo(ctx, "drawn", n, &drawn); err != nil {
							return durable.ToolResult{}, err
						}
						call.Output([]byte(fmt.Sprintf("start %d\n", n)))
						if n == 1 {
							<-ctx.Done()
							return durable.ToolResult{}, ctx.Err()
						}
						return durable.TextResult(fmt.Sprintf("%s%sdrawn %d", call.OutputText(), arg, drawn)), nil
					}))
				}
				r := newRig(t, make(tc.before)).open()
				c := r.conversation()
				r.model.Push(calls("t", "a"), text("done"))
				s := r.send(c, "go")
				after(time.Second)
				r.close()
				if tc.now == "" {
					r.opts.Registry.Uninstall("x")
				} else {
					require.NoError(t, r.opts.Registry.Install(make(tc.now)))
				}
				r.open()
				after(time.Second)
				require.Equal(t, durable.SubmissionDone, r.record(s).Status)
				c = r.again(c)
				e, m := r.result(c)
				if tc.again {
					require.EqualValues(t, 2, starts.Load())
					require.Equal(t, "start 2\nadrawn 1", m.Text(), "the output of the first attempt is dropped, its memo is kept")
					return
				}
				require.EqualValues(t, 1, starts.Load())
				require.True(t, m.IsError)
				require.True(t, strings.HasPrefix(m.Text(), "start 1\n<harness>\n[error] "), m.Text())
				require.Contains(t, string(e.Data), durable.CodeInterrupted)
			})
		})
	}
}

// A call's result that came before the engine closed is stored; one that the
// engine's end cut off is not taken for a result of the tool (E6.3).
func TestTool_CloseWhileRunning(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		quick := tool("quick", func(ctx context.Context, _ *durable.ToolCall, _ string) (durable.ToolResult, error) {
			<-ctx.Done()
			return durable.TextResult("finished in time"), nil
		})
		r := newRig(t, tools(quick)).open()
		c := r.conversation()
		r.model.Push(calls("quick", "a"), text("done"))
		s := r.send(c, "go")
		after(time.Second)
		r.restart()
		after(time.Second)
		require.Equal(t, durable.SubmissionDone, r.record(s).Status)
		_, m := r.result(r.again(c))
		require.Equal(t, "finished in time", m.Text())
	})
}

// The calls of a round run side by side, unless the host or one of the tools
// says otherwise; results are stored as they come and sent in the order of the
// calls (E10.5).
func TestTool_Rounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		host durable.ToolMode
		tool durable.ToolMode
		both int
	}{
		{"side by side", "", "", 3}, {"the host says", durable.ToolSequential, "", 1}, {"a tool says", "", durable.ToolSequential, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				g, special := newGate(), newGate()
				r := newRig(t, tools(g.tool(durable.ToolSpec{Name: "gate"}), special.tool(durable.ToolSpec{Name: "special", Mode: tc.tool})))
				r.opts.ToolMode = tc.host
				r.open()
				c := r.conversation()
				round := calls("gate", "a", "b")
				round.ToolCalls = append(round.ToolCalls, calls("special", "c").ToolCalls...)
				r.model.Push(round, text("done"))
				s := r.send(c, "go")
				after(time.Second)
				if tc.both == 3 {
					require.Len(t, g.calls(), 2)
					require.Len(t, special.calls(), 1)
					special.calls()[0].end <- durable.TextResult("third")
					after(time.Second)
					g.calls()[1].end <- durable.TextResult("second")
					after(time.Second)
					g.calls()[0].end <- durable.TextResult("first")
				} else {
					for _, text := range []string{"first", "second"} {
						require.Len(t, g.calls(), 1)
						require.Empty(t, special.calls())
						g.calls()[0].end <- durable.TextResult(text)
						after(time.Second)
					}
					special.calls()[0].end <- durable.TextResult("third")
				}
				require.Equal(t, "done", r.answer(s))
				var stored, sent []string
				for _, e := range r.entries(c) {
					if e.Kind == durable.KindToolResult {
						stored = append(stored, e.Model[0].Text())
					}
				}
				for _, m := range r.model.Requests()[1].Messages {
					if m.Role == model.RoleToolResult {
						sent = append(sent, m.Text())
					}
				}
				if tc.both == 3 {
					require.Equal(t, []string{"third", "second", "first"}, stored)
				} else {
					require.Equal(t, []string{"first", "second", "third"}, stored)
				}
				require.Equal(t, []string{"first", "second", "third"}, sent)
			})
		})
	}
}

// When all results of a round say so the run ends with the text of the answer
// that called; one that does not say so keeps it going. A handoff ends the run
// and begins a new context (E10.5).
func TestTool_Control(t *testing.T) {
	t.Parallel()
	control := tool("control", func(_ context.Context, _ *durable.ToolCall, arg string) (durable.ToolResult, error) {
		res := durable.TextResult("did " + arg)
		switch arg {
		case "terminate":
			res.Terminate = true
		case "handoff":
			res.Handoff = "go on with the tea"
		}
		return res, nil
	})
	said := func(args ...string) faux.Step {
		s := calls("control", args...)
		s.Text = "calling"
		return s
	}
	t.Run("all terminate", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tools(control)).open()
		c := r.conversation()
		r.model.Push(said("terminate", "terminate"))
		s := r.send(c, "go")
		require.Equal(t, "calling", r.answer(s))
		require.Equal(t, model.StopToolUse, r.record(s).StopReason)
		require.EqualValues(t, 1, r.model.Count())
		r.model.Push(text("next"))
		require.Equal(t, "next", r.answer(r.send(c, "and")))
		require.Len(t, r.model.Requests()[1].Messages, 6)
	})
	t.Run("one does not", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tools(control)).open()
		r.model.Push(said("terminate", "go on"), text("done"))
		require.Equal(t, "done", r.answer(r.send(r.conversation(), "go")))
	})
	t.Run("handoff", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, tools(control)).open()
		c := r.conversation()
		r.model.Push(said("handoff", "go on"))
		require.Equal(t, "calling", r.answer(r.send(c, "go")))
		r.idle(c)
		require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.tool-result", "pi.reset"}, r.kinds(c))
		r.model.Push(text("with milk"))
		require.Equal(t, "with milk", r.answer(r.send(c, "how?")))
		view := faux.NewView(r.model.Requests()[1])
		require.Len(t, view.Messages, 2)
		require.Equal(t, "go on with the tea", view.Messages[0].Text())
		r.sameAsFresh(c)
	})
}

// A tool may bring others that the agent had left out (E10.4).
func TestTool_AddTools(t *testing.T) {
	t.Parallel()
	g := newCounter()
	finder := tool("find", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		res := durable.TextResult("found it")
		res.AddTools = []string{"hidden", "nobody knows"}
		return res, nil
	})
	r := newRig(t, tools(finder, g.tool("hidden"), g.tool("other"))).open()
	c := r.conversation()
	only := durable.List("find")
	require.NoError(t, c.ChangeAgent(r.ctx, &durable.AgentChange{Tools: &only}))
	r.model.Push(calls("find", "a"), calls("hidden", "b"), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.Equal(t, map[string]int{"b": 1}, g.counts())
	var names []string
	for _, tl := range faux.NewView(r.model.Requests()[2]).Tools {
		names = append(names, tl.Name)
	}
	require.Equal(t, []string{"find", "hidden"}, names)
	require.Len(t, faux.NewView(r.model.Requests()[0]).Tools, 1)
	requirePrefix(t, r.model.Requests())
}

// Images that no model takes do not get into a transcript (E13).
func TestTool_Content(t *testing.T) {
	t.Parallel()
	_, _, _, m := one(t, tools(tool("t", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		return durable.ToolResult{Content: []model.Block{
			model.Text("fine"), {Type: model.BlockImage, MimeType: "image/tiff", Data: []byte("x")}, {Type: model.BlockThinking, Thinking: "hm"}, model.Text("a\xffb"),
		}}, nil
	})), "t")
	require.Len(t, m.Content, 4)
	require.Contains(t, m.Content[1].Text, "image left out")
	require.Contains(t, m.Content[2].Text, "left out")
	require.Equal(t, "a\uFFFDb", m.Content[3].Text)
	_, _, _, m = one(t, tools(tool("t", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
		return durable.ToolResult{}, nil
	})), "t")
	require.Empty(t, m.Content, "nothing was said")
}

// A call may write to its conversation's tree while it runs.
func TestTool_Commit(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	_, c, _, _ := one(t, tools(tool("t", func(ctx context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) {
		for i := range 5 { // from several goroutines
			wg.Go(func() {
				_ = call.Commit(ctx, func(_ context.Context, tx *durable.Tx) error {
					_, err := tx.AppendEntry(call.Conversation().ID(), *note(fmt.Sprint(i)))
					return err
				})
			})
		}
		wg.Wait()
		return durable.TextResult("fine"), nil
	})), "t")
	entries, err := c.Entries(context.Background(), durable.EntryQuery{})
	require.NoError(t, err)
	notes := 0
	for _, e := range entries {
		if e.Kind == "test.note" {
			notes++
			require.NotZero(t, e.ByTaskID)
		}
	}
	require.Equal(t, 5, notes)
}
