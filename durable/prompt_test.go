package durable_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// says is an extension with one section whose text may be changed.
type says struct {
	key      string
	text     string
	err      error
	untagged bool
}

func (s *says) extension() durable.Extension {
	return durable.Extension{Name: s.key, Sections: []durable.Section{{Key: s.key, Untagged: s.untagged, Render: func(context.Context, *durable.RequestContext) (string, error) {
		return s.text, s.err
	}}}}
}

// systems lists the system entries of a conversation.
func (r *rig) systems(c *durable.Conversation) (out []model.Message) {
	help(r.t)
	for _, e := range r.entries(c) {
		if e.Kind == durable.KindSystem {
			out = append(out, e.Model...)
		}
	}
	return out
}

// The prompt is the sections in the order of their extensions and the agent's
// instructions, each in its tag unless it says otherwise; an empty one is left
// out. What was shown is in the transcript, first complete, then what changed
// (E11).
func TestPrompt_Sections(t *testing.T) {
	t.Parallel()
	a, b, free := &says{key: "rules", text: "be kind"}, &says{key: "place"}, &says{key: "free", text: "no tag", untagged: true}
	r := newRig(t, a.extension(), b.extension(), free.extension(), tools(echoTool()))
	r.opts.Agent.Instructions = "you make tea"
	r.model.AddRules([]faux.Rule{{Step: text("ok")}}, 0)
	r.open()
	c := r.conversation()
	ask := func() string {
		t.Helper()
		r.answer(r.send(c, "go"))
		reqs := r.model.Requests()
		return faux.NewView(reqs[len(reqs)-1]).System
	}
	require.Equal(t, "<rules>\nbe kind\n</rules>\n\nno tag\n\n<instructions>\nyou make tea\n</instructions>", ask())
	require.Len(t, r.systems(c), 1)
	require.True(t, r.systems(c)[0].Baseline)
	require.Len(t, r.systems(c)[0].ToolsAdded, 1)

	ask()
	require.Len(t, r.systems(c), 1, "nothing changed, nothing is written")

	free.text = "still no tag"
	require.Contains(t, ask(), "still no tag")
	m := r.systems(c)[1]
	require.False(t, m.Baseline)
	require.Equal(t, []model.Section{{Key: "free", Text: "still no tag", Untagged: true}}, m.Sections)
	require.Empty(t, m.ToolsAdded)

	free.text = ""
	require.NotContains(t, ask(), "no tag")
	require.Equal(t, []model.Section{{Key: "free"}}, r.systems(c)[2].Sections)

	r.opts.Registry.Uninstall("x")
	ask()
	require.Equal(t, []string{"echo"}, r.systems(c)[3].ToolsRemoved)
	require.Empty(t, faux.NewView(r.model.Requests()[4]).Tools)

	// A section between others changes the order: a new baseline is written.
	b.text = "the kitchen"
	require.Equal(t, "<rules>\nbe kind\n</rules>\n\n<place>\nthe kitchen\n</place>\n\n<instructions>\nyou make tea\n</instructions>", ask())
	require.True(t, r.systems(c)[4].Baseline)
	requirePrefix(t, r.model.Requests())

	r.restart()
	c = r.again(c)
	ask()
	require.Len(t, r.systems(c), 5, "a restart changes nothing")
	requirePrefix(t, r.model.Requests())
}

// A section that fails, or panics, keeps what was shown of it (E11).
func TestPrompt_FailingSection(t *testing.T) {
	t.Parallel()
	a := &says{key: "rules", text: "be kind"}
	panics := durable.Extension{Name: "panics", Sections: []durable.Section{{Key: "never", Render: func(context.Context, *durable.RequestContext) (string, error) { panic("boo") }}}}
	r := newRig(t, a.extension(), panics)
	r.model.AddRules([]faux.Rule{{Step: text("ok")}}, 0)
	r.open()
	c := r.conversation()
	r.answer(r.send(c, "go"))
	a.text, a.err = "be cruel", errors.New("no answer")
	r.answer(r.send(c, "go"))
	require.Len(t, r.systems(c), 1)
	require.Equal(t, "<rules>\nbe kind\n</rules>", faux.NewView(r.model.Requests()[1]).System)
	a.err = nil
	r.answer(r.send(c, "go"))
	require.Equal(t, "<rules>\nbe cruel\n</rules>", faux.NewView(r.model.Requests()[2]).System)
}

// What a section may look at is what the request will have (E9.3, E11).
func TestPrompt_RequestContext(t *testing.T) {
	t.Parallel()
	var seen durable.RequestContext
	x := tools(echoTool())
	x.Sections = []durable.Section{{Key: "s", Render: func(ctx context.Context, rc *durable.RequestContext) (string, error) {
		seen = *rc
		_, err := rc.Env(ctx)
		require.ErrorIs(t, err, durable.ErrNoEnvironment)
		return "", nil
	}}}
	r := newRig(t, x)
	r.opts.Agent.Cwd, r.opts.Agent.Instructions = "/home", "be brief"
	r.open()
	c := r.conversation()
	r.model.Push(text("ok"))
	r.answer(r.send(c, "go"))
	require.Equal(t, c.ID(), seen.Conversation.ID())
	require.Equal(t, "/home", seen.Agent.Cwd)
	require.Equal(t, "faux-1", seen.Model.ID)
	require.True(t, seen.Offers("echo"))
	require.False(t, seen.Offers("other"))
}

// Whatever changes of the prompt, tools and agent come between requests, with
// restarts, what was sent stays as it was sent, and what the model sees is what
// is to be seen (E11).
func TestPrompt_Random(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		bubble(t, func(t *testing.T) {
			keys := []string{"a", "b", "c"}
			parts := map[string]*says{}
			reg := map[string]bool{}
			r := makeRig(rt, t.Context())
			for _, k := range keys {
				parts[k] = &says{key: k, text: k}
			}
			r.model.AddRules([]faux.Rule{{When: "call", Step: calls("echo", "x")}, {Step: text("ok")}}, 0)
			r.open()
			defer r.finish()
			c := r.conversation()
			for i := range rapid.IntRange(1, 15).Draw(rt, "steps") {
				k := rapid.SampledFrom(keys).Draw(rt, "key")
				switch rapid.SampledFrom([]string{"toggle", "text", "blank", "tool", "instructions", "restart", "reset", "ask", "ask", "call"}).Draw(rt, "op") {
				case "toggle":
					if reg[k] = !reg[k]; reg[k] {
						require.NoError(rt, r.opts.Registry.Install(parts[k].extension()))
					} else {
						r.opts.Registry.Uninstall(k)
					}
				case "text":
					parts[k].text = fmt.Sprint(k, i)
				case "blank":
					parts[k].text = " \n"
				case "tool":
					if reg["x"] = !reg["x"]; reg["x"] {
						require.NoError(rt, r.opts.Registry.Install(tools(echoTool())))
					} else {
						r.opts.Registry.Uninstall("x")
					}
				case "instructions":
					said := rapid.SampledFrom([]string{"", "one", "two"}).Draw(rt, "instructions")
					require.NoError(rt, c.ChangeAgent(r.ctx, &durable.AgentChange{Instructions: &said}))
				case "restart":
					r.restart()
					c = r.again(c)
				case "reset":
					_, err := c.Reset(r.ctx, "")
					require.NoError(rt, err)
					r.check()
					r.model = faux.New(&faux.Options{Strict: true})
					r.model.AddRules([]faux.Rule{{When: "call", Step: calls("echo", "x")}, {Step: text("ok")}}, 0)
					r.opts.Models.AddProvider("faux", r.model)
				case "ask", "call":
					said := "ask"
					if reg["x"] {
						said = "call"
					}
					require.Equal(rt, "ok", r.answer(r.send(c, said)))
					after(time.Second)
					reqs := r.model.Requests()
					view := faux.NewView(reqs[len(reqs)-1])
					agent, err := c.Agent(r.ctx)
					require.NoError(rt, err)
					want := ""
					add := func(s string) {
						if want != "" {
							want += "\n\n"
						}
						want += s
					}
					for _, name := range r.opts.Registry.Names() {
						if p := parts[name]; p != nil && p.text != " \n" {
							add(fmt.Sprintf("<%s>\n%s\n</%s>", name, p.text, name))
						}
					}
					if agent.Instructions != "" {
						add("<instructions>\n" + agent.Instructions + "\n</instructions>")
					}
					require.Equal(rt, want, view.System)
					require.Equal(rt, reg["x"], len(view.Tools) == 1)
					requirePrefix(rt, reqs)
				}
			}
		})
	})
}
