package durable_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func named(name string, toolNames ...string) durable.Extension {
	x := durable.Extension{Name: name}
	for _, n := range toolNames {
		x.Tools = append(x.Tools, tool(n, func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
			return durable.TextResult(n + " of " + name), nil
		}))
	}
	return x
}

// Unset fields follow the host; extensions are a list or a change to the
// host's; tools are filtered last; unknown names are skipped (E9.2).
func TestAgent_Resolve(t *testing.T) {
	t.Parallel()
	change := func(add, remove []string) *durable.Choice {
		return &durable.Choice{Changes: true, Add: add, Remove: remove}
	}
	for name, tc := range map[string]struct {
		host, set  durable.Agent
		extensions []string
		tools      []string
	}{
		"all":                  {durable.Agent{}, durable.Agent{}, []string{"a", "b", "c"}, []string{"a1", "a2", "b1", "c1"}},
		"host's list":          {durable.Agent{Extensions: durable.List("c", "a")}, durable.Agent{}, []string{"c", "a"}, []string{"c1", "a1", "a2"}},
		"own list":             {durable.Agent{Extensions: durable.List("c")}, durable.Agent{Extensions: durable.List("b")}, []string{"b"}, []string{"b1"}},
		"empty list":           {durable.Agent{}, durable.Agent{Extensions: durable.List()}, nil, nil},
		"change of all":        {durable.Agent{}, durable.Agent{Extensions: change(nil, []string{"b"})}, []string{"a", "c"}, []string{"a1", "a2", "c1"}},
		"change of the host's": {durable.Agent{Extensions: durable.List("a", "b")}, durable.Agent{Extensions: change([]string{"c", "a"}, []string{"b"})}, []string{"a", "c"}, []string{"a1", "a2", "c1"}},
		"unknown names":        {durable.Agent{}, durable.Agent{Extensions: durable.List("nobody", "a"), Tools: durable.List("a2", "nothing")}, []string{"nobody", "a"}, []string{"a2"}},
		"tools left out":       {durable.Agent{}, durable.Agent{Tools: change(nil, []string{"a1", "c1"})}, []string{"a", "b", "c"}, []string{"a2", "b1"}},
		"host's tool filter":   {durable.Agent{Tools: durable.List("b1", "a1")}, durable.Agent{}, []string{"a", "b", "c"}, []string{"a1", "b1"}},
		"own over the host's":  {durable.Agent{Tools: durable.List("b1")}, durable.Agent{Tools: durable.List("c1")}, []string{"a", "b", "c"}, []string{"c1"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, named("a", "a1", "a2"), named("b", "b1"), named("c", "c1"))
			tc.host.Model = r.opts.Agent.Model
			r.opts.Agent = tc.host
			r.open()
			c := r.conversation()
			require.NoError(t, c.ChangeAgent(r.ctx, &durable.AgentChange{Extensions: &tc.set.Extensions, Tools: &tc.set.Tools}))
			a, err := c.Agent(r.ctx)
			require.NoError(t, err)
			require.Equal(t, tc.extensions, append([]string(nil), a.Extensions.List...))
			require.ElementsMatch(t, tc.tools, a.Tools.List)
			require.Equal(t, 32000, a.OutputTokens)
			require.Equal(t, model.ThinkingOff, a.ThinkingLevel)
			r.model.Push(text("ok"))
			r.answer(r.send(c, "go"))
			var offered []string
			for _, tl := range faux.NewView(r.model.Requests()[0]).Tools {
				offered = append(offered, tl.Name)
			}
			require.Equal(t, a.Tools.List, append([]string{}, offered...))
		})
	}
}

// A change sets, leaves or clears each field; what cannot be is refused; it
// counts from the next request on and is there after a restart (E9.2).
func TestAgent_Change(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Agent.Instructions = "the host's"
	r.open()
	high, cwd, own, tokens := model.ThinkingHigh, "/work", "my own", 77
	c, err := r.engine.NewConversation(r.ctx, &durable.ConversationParams{Agent: &durable.AgentChange{ThinkingLevel: &high, Cwd: &cwd, Instructions: &own, OutputTokens: &tokens}})
	require.NoError(t, err)
	a, err := c.Agent(r.ctx)
	require.NoError(t, err)
	require.Equal(t, []any{high, cwd, own, tokens}, []any{a.ThinkingLevel, a.Cwd, a.Instructions, a.OutputTokens})
	none := ""
	require.NoError(t, c.ChangeAgent(r.ctx, &durable.AgentChange{Instructions: &none}))
	r.restart()
	c = r.again(c)
	a, err = c.Agent(r.ctx)
	require.NoError(t, err)
	require.Equal(t, []any{high, "the host's"}, []any{a.ThinkingLevel, a.Instructions})
	s, err := c.Settings(r.ctx)
	require.NoError(t, err)
	require.Equal(t, durable.Agent{ThinkingLevel: high, Cwd: cwd, OutputTokens: tokens}, s)
	r.model.Push(text("ok"))
	r.answer(r.send(c, "go"))
	require.Equal(t, high, r.model.Requests()[0].ThinkingLevel)

	bad, minus := model.ThinkingLevel("hard"), -1
	noID, adds := &model.Ref{Provider: "x"}, &durable.Choice{Changes: true, Add: []string{"a"}}
	for name, ch := range map[string]*durable.AgentChange{
		"thinking level": {ThinkingLevel: &bad}, "limit": {OutputTokens: &minus}, "model": {Model: &noID}, "tools": {Tools: &adds},
	} {
		require.ErrorIs(t, c.ChangeAgent(r.ctx, ch), durable.ErrInvalid, name)
		_, err := r.engine.NewConversation(r.ctx, &durable.ConversationParams{Agent: ch})
		require.ErrorIs(t, err, durable.ErrInvalid, name)
	}
}

// A conversation owned by a task begins with its owner's agent (E9.2).
func TestAgent_Owned(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		kind := sleeper()
		r := newRig(t, kinds(kind), tools(echoTool())).open()
		high, said := model.ThinkingHigh, "you are mine"
		c, err := r.engine.NewConversation(r.ctx, &durable.ConversationParams{Agent: &durable.AgentChange{ThinkingLevel: &high, Instructions: &said}})
		require.NoError(t, err)
		task := r.start(c, kind, 0, durable.TaskOptions{})
		var below durable.ConversationID
		r.update(c, func(tx *durable.Tx) (err error) { below, err = tx.CreateConversation(task); return err })
		owned, err := r.engine.Conversation(r.ctx, below)
		require.NoError(t, err)
		require.Equal(t, &durable.Owner{ConversationID: c.ID(), TaskID: task}, owned.Record().Owner)
		require.Equal(t, c.ID(), owned.Record().TreeID)
		a, err := owned.Agent(r.ctx)
		require.NoError(t, err)
		require.Equal(t, said, a.Instructions)
		require.Equal(t, high, a.ThinkingLevel)
		other := "your own now"
		require.NoError(t, owned.ChangeAgent(r.ctx, &durable.AgentChange{Instructions: &other}))
		a, err = c.Agent(r.ctx)
		require.NoError(t, err)
		require.Equal(t, said, a.Instructions)
		r.model.Push(text("here"))
		require.Equal(t, "here", r.answer(r.send(owned, "go")))
		list, err := r.engine.Conversations(r.ctx, durable.ConversationQuery{Parent: c.ID(), Limit: 10})
		require.NoError(t, err)
		require.Len(t, list, 1)
	})
}

// Choices are an array or an object in JSON (E9.2).
func TestAgent_JSON(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{`{"extensions":["a"],"tools":{"remove":["b"]}}`, `{"extensions":[]}`, `{"extensions":{"add":["x"],"remove":["y"]}}`, `{}`} {
		var a durable.Agent
		require.NoError(t, json.Unmarshal([]byte(raw), &a))
		out, err := json.Marshal(a)
		require.NoError(t, err)
		require.JSONEq(t, raw, string(out))
	}
	var a durable.Agent
	require.Error(t, json.Unmarshal([]byte(`{"extensions":"a"}`), &a))
}

// A later extension's tool of the same name replaces the earlier one in its
// place; wraps apply after that, to all or to one (E9.2).
func TestRegistry_ReplaceAndWrap(t *testing.T) {
	t.Parallel()
	wrap := func(name, which string) durable.Extension {
		return durable.Extension{Name: name, Wraps: []durable.Wrap{{Tool: which, Wrap: func(tl *durable.Tool) *durable.Tool {
			return tl.WithFunc(func(next durable.ToolFunc) durable.ToolFunc {
				return func(ctx context.Context, call *durable.ToolCall, args json.RawMessage) (durable.ToolResult, error) {
					res, err := next(ctx, call, args)
					res.Content[0].Text += " by " + name
					return res, err
				}
			})
		}}}}
	}
	r := newRig(t, wrap("w1", "*"), named("a", "t", "u"), named("b", "t"), wrap("w2", "u")).open()
	c := r.conversation()
	r.model.Push(calls("t", "x"), calls("u", "x"), text("done"))
	r.answer(r.send(c, "go"))
	var results []string
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindToolResult {
			results = append(results, e.Model[0].Text())
		}
	}
	require.Equal(t, []string{"t of b by w1", "u of a by w1 by w2"}, results)
	view := faux.NewView(r.model.Requests()[0])
	require.Equal(t, []string{"t", "u"}, []string{view.Tools[0].Name, view.Tools[1].Name}, "in the place of the first")
}

// Installing replaces the same name in its place, after the whole was checked;
// uninstalling says whether there was one (E9.1).
func TestRegistry_Install(t *testing.T) {
	t.Parallel()
	reg := durable.NewRegistry(named("a", "a1"), named("b", "b1"))
	require.NoError(t, reg.Install(named("a", "a2")))
	require.Equal(t, []string{"a", "b"}, reg.Names())
	sel := reg.Select([]string{"b", "a", "nobody"})
	require.Nil(t, sel.Tool("a1"))
	require.NotNil(t, sel.Tool("a2"))
	require.Equal(t, "a", sel.ToolExtension("a2"))
	for name, x := range map[string]durable.Extension{
		"no name":         {},
		"nil tool":        {Name: "x", Tools: []*durable.Tool{nil}},
		"section key":     {Name: "x", Sections: []durable.Section{{Key: "a b", Render: func(context.Context, *durable.RequestContext) (string, error) { return "", nil }}}},
		"no render":       {Name: "x", Sections: []durable.Section{{Key: "a"}}},
		"wrap of nothing": {Name: "x", Wraps: []durable.Wrap{{}}},
	} {
		require.ErrorIs(t, reg.Install(x), durable.ErrInvalid, name)
	}
	require.Equal(t, []string{"a", "b"}, reg.Names())
	require.True(t, reg.Uninstall("a"))
	require.False(t, reg.Uninstall("a"))
	require.Equal(t, []string{"b"}, reg.Names())
	require.Panics(t, func() { durable.NewRegistry(durable.Extension{}) })
}

// A hook may go on with the run, change a request, and see every answer; one
// that fails or panics is skipped (E9.3).
func TestHooks_Run(t *testing.T) {
	t.Parallel()
	var answers []string
	var rounds [][]string
	x := tools(echoTool())
	x.Hooks = durable.Hooks{
		BeforeRequest: func(_ context.Context, rc *durable.RequestContext, req *model.Request) error {
			req.MaxOutputTokens = 99
			req.Messages = append(req.Messages, model.UserMessage("psst", req.Messages[0].Timestamp))
			return nil
		},
		AfterResponse: func(_ context.Context, _ *durable.RequestContext, m *model.Message) error {
			answers = append(answers, m.Text())
			return nil
		},
		AfterTools: func(_ context.Context, _ *durable.RequestContext, results []model.Message) error {
			var texts []string
			for i := range results {
				texts = append(texts, results[i].Text())
			}
			rounds = append(rounds, texts)
			return nil
		},
		OnYield: func(_ context.Context, _ *durable.RequestContext, m *model.Message) ([]model.Block, error) {
			if m.Text() == "lazy" {
				return []model.Block{model.Text("go on")}, nil
			}
			return nil, nil
		},
	}
	broken := durable.Extension{Name: "broken", Hooks: durable.Hooks{
		BeforeRequest: func(context.Context, *durable.RequestContext, *model.Request) error { panic("boo") },
		AfterResponse: func(context.Context, *durable.RequestContext, *model.Message) error { panic("boo") },
		OnYield:       func(context.Context, *durable.RequestContext, *model.Message) ([]model.Block, error) { panic("boo") },
	}}
	r := newRig(t, broken, x).open()
	c := r.conversation()
	r.model.Push(calls("echo", "a", "b"), text("lazy"), text("done"))
	s := r.send(c, "go")
	require.Equal(t, "done", r.answer(s))
	require.Equal(t, []string{"", "lazy", "done"}, answers)
	require.Equal(t, [][]string{{"echo: a", "echo: b"}}, rounds)
	require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.tool-result", "pi.assistant", "pi.user", "pi.assistant"}, r.kinds(c))
	require.Equal(t, r.record(s).TaskID, r.entries(c)[6].ByTaskID, "the run wrote it")
	for _, req := range r.model.Requests() {
		require.Equal(t, 99, req.MaxOutputTokens)
		require.Equal(t, "psst", req.Messages[len(req.Messages)-1].Text())
	}
	for _, e := range r.entries(c) {
		require.NotContains(t, string(mustJSON(e)), "psst", "what a hook adds to a request is not stored")
	}
}
