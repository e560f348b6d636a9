package durable_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func TestEngine_PlainTurn(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	r.model.Push(text("hello back"))
	require.Equal(t, "hello back", r.answer(r.send(c, "hello")))
	require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
	r.model.Push(text("again"))
	require.Equal(t, "again", r.answer(r.send(c, "and again")))
	require.Len(t, r.model.Requests()[1].Messages, 3)
	r.sameAsFresh(c)
}

func TestEngine_ToolRound(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(echoTool())).open()
	c := r.conversation()
	r.model.Push(call("echo", `{"text":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.assistant"}, r.kinds(c))
	require.Equal(t, "echo: a", r.entries(c)[3].Model[0].Text())
	r.sameAsFresh(c)
}

func TestEngine_ManyConversations(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(echoTool()))
	r.model.AddRules([]faux.Rule{{When: "go", Step: call("echo", `{"text":"a"}`)}, {When: "echo: a", Step: text("done")}}, 1000)
	r.open()
	var subs []*durable.Submission
	for i := range 50 {
		subs = append(subs, r.send(r.conversation(), fmt.Sprintf("go %d", i)))
	}
	for _, s := range subs {
		require.Equal(t, "done", r.answer(s))
	}
}
