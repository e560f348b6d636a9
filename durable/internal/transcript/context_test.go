package transcript

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
)

var (
	ours   = model.Ref{Provider: "p", ModelID: "m"}
	theirs = model.Ref{Provider: "p", ModelID: "other"}
)

func user(text string) model.Message {
	return model.Message{Role: model.RoleUser, Content: []model.Block{model.Text(text)}}
}

// answer is a message of the model "ours"; a string is a text block.
func answer(parts ...any) model.Message {
	m := model.Message{Role: model.RoleAssistant, Provider: ours.Provider, Model: ours.ModelID, StopReason: model.StopEnd}
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			m.Content = append(m.Content, model.Text(p))
		case model.Block:
			m.Content = append(m.Content, p)
		case model.StopReason:
			m.StopReason = p
		}
	}
	return m
}

func toolCall(id string) model.Block {
	return model.Block{Type: model.BlockToolCall, ID: id, Name: "run", Arguments: json.RawMessage(`{"a":1}`)}
}

func thought(text string) model.Block {
	return model.Block{Type: model.BlockThinking, Thinking: text, Signature: "sig"}
}

func picture() model.Block {
	return model.Block{Type: model.BlockImage, MimeType: "image/png", Data: []byte{1}}
}

func outcome(id, text string) model.Message {
	return model.Message{Role: model.RoleToolResult, ToolCallID: id, ToolName: "run", Content: []model.Block{model.Text(text)}}
}

func baseline(text string) model.Message {
	return model.Message{Role: model.RoleSystem, Baseline: true, Sections: []model.Section{{Key: "k", Text: text}}}
}

func change(text string) model.Message {
	return model.Message{Role: model.RoleSystem, Sections: []model.Section{{Key: "k", Text: text}}}
}

// items numbers messages from 1; an Item keeps all but its id.
func items(parts ...any) []Item {
	var all []Item
	for i, p := range parts {
		var it Item
		switch p := p.(type) {
		case model.Message:
			it.Messages = []model.Message{p}
		case Item:
			it = p
		}
		it.ID = int64(i + 1)
		all = append(all, it)
	}
	return all
}

func contextOf(all []Item) *Context {
	c := New()
	for _, it := range all {
		c.Append(it)
	}
	return c
}

// show writes one line per message.
func show(messages []model.Message) []string {
	lines := []string{}
	for _, m := range messages {
		var b strings.Builder
		b.WriteString(string(m.Role))
		switch m.Role {
		case model.RoleToolResult:
			fmt.Fprintf(&b, "(%s)", m.ToolCallID)
		case model.RoleSystem:
			if m.Baseline {
				b.WriteString("!")
			}
			for _, s := range m.Sections {
				b.WriteString(" " + s.Key + "=" + s.Text)
			}
		}
		for _, k := range m.Content {
			switch k.Type {
			case model.BlockText:
				b.WriteString(" " + k.Text)
			case model.BlockThinking:
				b.WriteString(" <" + k.Thinking + ">")
			case model.BlockImage:
				b.WriteString(" [image]")
			case model.BlockToolCall:
				fmt.Fprintf(&b, " %s:%s%s", k.ID, k.Name, k.Arguments)
			}
		}
		lines = append(lines, b.String())
	}
	return lines
}

func TestContext_Order(t *testing.T) {
	t.Parallel()
	const call1, call2 = ` 1:run{"a":1}`, ` 2:run{"a":1}`
	tests := []struct {
		name string
		in   []Item
		want []string
	}{
		{"messages follow each other (E13)",
			items(user("a"), answer("b"), user("c")),
			[]string{"user a", "assistant b", "user c"}},
		{"a result stands in call order behind its call, a steer after all results (E13)",
			items(user("a"), answer(toolCall("1"), toolCall("2")), outcome("2", "two"), user("steer"), outcome("1", "one"), answer("b")),
			[]string{"user a", "assistant" + call1 + call2, "toolResult(1) one", "toolResult(2) two", "user steer", "assistant b"}},
		{"a system message within a round comes after the results (E13)",
			items(baseline("x"), user("a"), answer(toolCall("1")), change("y"), outcome("1", "one")),
			[]string{"system! k=x", "user a", "assistant" + call1, "toolResult(1) one", "system k=y"}},
		{"a running round is filled (E13)",
			items(user("a"), answer(toolCall("1"), toolCall("2")), outcome("2", "two")),
			[]string{"user a", "assistant" + call1 + call2, "toolResult(1) " + MissingResult, "toolResult(2) two"}},
		{"a round that was given up is filled (E13)",
			items(user("a"), answer(toolCall("1")), user("b"), answer("c")),
			[]string{"user a", "assistant" + call1, "toolResult(1) " + MissingResult, "user b", "assistant c"}},
		{"a late result goes to its call (E13)",
			items(user("a"), answer(toolCall("1")), user("b"), answer("c"), outcome("1", "late"), outcome("1", "later")),
			[]string{"user a", "assistant" + call1, "toolResult(1) late", "user b", "assistant c"}},
		{"a result without a call is dropped (E13)",
			items(user("a"), outcome("9", "orphan"), answer("b")),
			[]string{"user a", "assistant b"}},
		{"a second result is dropped (E13)",
			items(user("a"), answer(toolCall("1"), toolCall("2")), outcome("1", "one"), outcome("1", "again"), outcome("2", "two"), outcome("2", "again")),
			[]string{"user a", "assistant" + call1 + call2, "toolResult(1) one", "toolResult(2) two"}},
		{"a result before its call is dropped (E13)",
			items(user("a"), outcome("1", "early"), answer(toolCall("1"))),
			[]string{"user a", "assistant" + call1, "toolResult(1) " + MissingResult}},
		{"aborted, failed and deferred answers are left out with their results (E13)",
			items(user("a"), answer("x", toolCall("1"), model.StopAborted), outcome("1", "one"), answer("y", model.StopError), answer("z", model.StopDeferred), answer("b")),
			[]string{"user a", "assistant b"}},
		{"the result of a left-out answer does not go to an older call of that id (E13)",
			items(user("a"), answer(toolCall("1")), answer(toolCall("1"), model.StopAborted), outcome("1", "no")),
			[]string{"user a", "assistant" + call1, "toolResult(1) " + MissingResult}},
		{"a left-out answer does not end a round (E13)",
			items(user("a"), answer(toolCall("1")), answer("x", model.StopError), outcome("1", "one")),
			[]string{"user a", "assistant" + call1, "toolResult(1) one"}},
		{"repeated ids are told apart, over messages and within one (E13)",
			items(user("a"), answer(toolCall("1")), outcome("1", "A"), answer(toolCall("1"), toolCall("1")), outcome("1", "B"), outcome("1", "C"), answer(toolCall("1_2"))),
			[]string{"user a", "assistant" + call1, "toolResult(1) A",
				`assistant 1_2:run{"a":1} 1_3:run{"a":1}`, "toolResult(1_2) B", "toolResult(1_3) C",
				`assistant 1_2_2:run{"a":1}`, "toolResult(1_2_2) " + MissingResult}},
		{"nothing blank and nothing empty (E13)",
			items(user("a"), user(" \n"), model.Message{Role: model.RoleUser}, answer(" ", "b", "\t"), answer(""), model.Message{Role: model.RoleAssistant}),
			[]string{"user a", "assistant b"}},
		{"a result without content says so (E13)",
			items(user("a"), answer(toolCall("1")), outcome("1", " ")),
			[]string{"user a", "assistant" + call1, "toolResult(1) " + NoOutput}},
		{"neighbouring user messages stay apart",
			items(user("a"), answer("x", model.StopError), user("b")),
			[]string{"user a", "user b"}},
		{"an answer does not come first or behind an answer",
			items(baseline("x"), answer("a"), change("y"), answer("b")),
			[]string{"system! k=x", "user " + Continued, "assistant a", "system k=y", "user " + Continued, "assistant b"}},
		{"thinking with nothing behind it is dropped",
			items(user("a"), answer(thought("t"), "b", thought("u")), user("c"), answer(thought("v"))),
			[]string{"user a", "assistant <t> b", "user c"}},
		{"thinking without its proof is dropped (E13)",
			items(user("a"), answer(model.Block{Type: model.BlockThinking, Thinking: "t"}, "b")),
			[]string{"user a", "assistant b"}},
		{"one item may hold several messages",
			items(Item{Messages: []model.Message{user("a"), answer(toolCall("1")), outcome("1", "one"), answer("b")}}, user("c")),
			[]string{"user a", "assistant" + call1, "toolResult(1) one", "assistant b", "user c"}},
		{"blocks that a role cannot have are dropped",
			items(model.Message{Role: model.RoleUser, Content: []model.Block{toolCall("1"), model.Text("a"), thought("t"), {Type: "odd"}}},
				answer(picture(), "b"), model.Message{Role: "odd", Content: []model.Block{model.Text("x")}}),
			[]string{"user a", "assistant b"}},
		{"an image of an odd type becomes a text",
			items(model.Message{Role: model.RoleUser, Content: []model.Block{{Type: model.BlockImage, MimeType: "image/tiff", Data: []byte{1}}, picture(), {Type: model.BlockImage, MimeType: "image/png"}}}),
			[]string{"user " + ImageType + " [image]"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := contextOf(tt.in)
			require.Equal(t, tt.want, show(c.Messages()))
			checkRequest(t, c.Messages())
		})
	}
}

func TestContext_Heads(t *testing.T) {
	t.Parallel()
	sum := func(text string, head int64) Item {
		return Item{Messages: []model.Message{user(text)}, Head: head}
	}
	tests := []struct {
		name string
		in   []Item
		want []string
	}{
		{"a reset begins anew (E13)",
			items(user("a"), answer("b"), sum("reset", 3), user("c")),
			[]string{"user reset", "user c"}},
		{"a compaction keeps what follows the cut (E13)",
			items(user("a"), answer("b"), user("c"), answer("d"), sum("sum", 3), user("e")),
			[]string{"user sum", "user c", "assistant d", "user e"}},
		{"a compaction sums up the one before (E14)",
			items(user("a"), user("b"), sum("sum1", 2), user("c"), sum("sum2", 2), user("d")),
			[]string{"user sum2", "user b", "user c", "user d"}},
		{"a newer head that keeps an older reset keeps its message",
			items(user("a"), sum("reset", 2), user("b"), sum("sum", 2), user("c")),
			[]string{"user sum", "user reset", "user b", "user c"}},
		{"a cut at the one before keeps its message",
			items(user("a"), user("b"), sum("sum1", 2), user("c"), sum("sum2", 3), user("d")),
			[]string{"user sum2", "user sum1", "user c", "user d"}},
		{"a cut in the future is a reset",
			items(user("a"), sum("reset", 99), user("b")),
			[]string{"user reset", "user b"}},
		{"a cut within a round drops the results (E13)",
			items(user("a"), answer(toolCall("1")), outcome("1", "one"), sum("sum", 3), user("b")),
			[]string{"user sum", "user b"}},
		{"a cut before an answer is given a user message (E13)",
			items(user("a"), answer("b"), Item{Head: 2}, user("c")),
			[]string{"user " + Continued, "assistant b", "user c"}},
		{"thinking written behind what was cut away is dropped (E11)",
			items(user("a"), answer(thought("t"), "b"), sum("sum", 2), answer(thought("u"), "c")),
			[]string{"user sum", "assistant b", "user " + Continued, "assistant <u> c"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, show(contextOf(tt.in).Messages()))
		})
	}
}

func TestContext_Edits(t *testing.T) {
	t.Parallel()
	replace := func(target int64, text string) Item {
		return Item{Edits: []Edit{{Target: target, Messages: []model.Message{user(text)}}}}
	}
	omit := func(target int64) Item { return Item{Edits: []Edit{{Target: target, Omit: true}}} }
	tests := []struct {
		name string
		in   []Item
		want []string
	}{
		{"omit", items(user("a"), user("b"), omit(1)), []string{"user b"}},
		{"replace", items(user("a"), user("b"), replace(1, "A")), []string{"user A", "user b"}},
		{"the newest wins (E13)", items(user("a"), omit(1), replace(1, "A")), []string{"user A"}},
		{"the last of one item wins (E13)",
			items(user("a"), Item{Edits: []Edit{{Target: 1, Messages: []model.Message{user("A")}}, {Target: 1, Omit: true}}}),
			[]string{}},
		{"of a later item is ignored", items(user("a"), omit(3), user("b")), []string{"user a", "user b"}},
		{"of a head changes its message, not its cut",
			items(user("a"), Item{Messages: []model.Message{user("sum")}, Head: 2}, user("b"), omit(2)),
			[]string{"user b"}},
		{"holds behind a later cut",
			items(user("a"), user("b"), replace(2, "B"), Item{Messages: []model.Message{user("sum")}, Head: 2}),
			[]string{"user sum", "user B"}},
		{"of an answer drops its results",
			items(user("a"), answer(toolCall("1")), outcome("1", "one"), omit(2), user("b")),
			[]string{"user a", "user b"}},
		{"drops the thinking written behind what it changed, and no other (E11)",
			items(user("a"), answer(thought("t"), "b"), user("c"), answer(thought("u"), "d"), replace(3, "C"), answer(thought("v"), "e")),
			[]string{"user a", "assistant <t> b", "user C", "assistant d", "user " + Continued, "assistant <v> e"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tt.want, show(contextOf(tt.in).Messages()))
		})
	}
}

func TestContext_System(t *testing.T) {
	t.Parallel()
	sections := func(texts ...string) []model.Section {
		var s []model.Section
		for _, text := range texts {
			s = append(s, model.Section{Key: "k", Text: text})
		}
		return s
	}

	c := New()
	require.False(t, c.HasBaseline())
	c.Append(Item{ID: 1, Messages: []model.Message{change("early")}})
	require.False(t, c.HasBaseline(), "a change is no baseline (E11)")
	require.Empty(t, c.Messages(), "a change of nothing is not shown")

	c.Append(Item{ID: 2, Messages: []model.Message{baseline("x")}})
	require.True(t, c.HasBaseline())
	require.Equal(t, sections("x"), c.System().Sections)
	c.Append(Item{ID: 3, Messages: []model.Message{user("a"), answer(toolCall("1")), change("y")}})
	require.Equal(t, sections("y"), c.System().Sections, "what waits for the results counts")
	folded, _ := model.FoldSystem(c.Messages())
	require.Equal(t, c.System(), folded)

	c.Append(Item{ID: 4, Messages: []model.Message{user("reset")}, Head: 4})
	require.False(t, c.HasBaseline(), "the head cut it away (E11)")
	require.Empty(t, c.System().Sections)
	c.Append(Item{ID: 5, Messages: []model.Message{{Role: model.RoleSystem, Baseline: true}}})
	require.True(t, c.HasBaseline(), "an agent without a prompt has an empty baseline")
	require.Equal(t, []string{"user reset"}, show(c.Messages()))
	c.Append(Item{ID: 6, Messages: []model.Message{baseline("z"), {Role: model.RoleSystem, Baseline: true}}})
	require.Equal(t, []string{"user reset", "system! k=z", "system!"}, show(c.Messages()), "an empty baseline after another is news")
}

func TestContext_OpenCalls(t *testing.T) {
	t.Parallel()
	ids := func(c *Context) []string {
		var all []string
		for _, b := range c.OpenCalls() {
			all = append(all, b.ID)
		}
		return all
	}
	c := contextOf(items(user("a"), answer(toolCall("1")), outcome("1", "x"), answer(toolCall("1"), toolCall("2"))))
	require.Equal(t, []string{"1", "2"}, ids(c), "by the ids that results have, not those that are sent")
	c.Append(Item{ID: 10, Messages: []model.Message{outcome("2", "two"), user("steer")}})
	require.Equal(t, []string{"1"}, ids(c))
	c.Append(Item{ID: 11, Messages: []model.Message{answer(toolCall("9"), model.StopAborted)}})
	require.Equal(t, []string{"1"}, ids(c))
	c.Append(Item{ID: 12, Messages: []model.Message{outcome("1", "one")}})
	require.Empty(t, ids(c))
}

func TestContext_LateResultsOfOneID(t *testing.T) {
	t.Parallel()
	all := items(user("a"), answer(toolCall("1"), toolCall("1"), toolCall("1")), outcome("1", "A"), answer("b"), outcome("1", "B"))
	want := func(last string) []string {
		return []string{"user a", `assistant 1:run{"a":1} 1_2:run{"a":1} 1_3:run{"a":1}`,
			"toolResult(1) A", "toolResult(1_2) B", "toolResult(1_3) " + last, "assistant b"}
	}
	c := contextOf(all)
	require.Equal(t, want(MissingResult), show(c.Messages()), "each result answers one call")
	c.Append(Item{ID: 6})
	require.False(t, c.dirty, "a late result starts anew once")
	c.Append(Item{ID: 7, Messages: []model.Message{outcome("1", "C")}})
	require.Equal(t, want("C"), show(c.Messages()))
}

func TestContext_LateResultDropsThinking(t *testing.T) {
	t.Parallel()
	c := contextOf(items(user("a"), answer(toolCall("1")), user("b"), answer(thought("t"), "c")))
	require.Contains(t, show(c.Messages()), "assistant <t> c")
	c.Append(Item{ID: 5, Messages: []model.Message{outcome("1", "late")}})
	require.Contains(t, show(c.Messages()), "assistant c", "it was written behind a missing result (E11)")
}

// TestContext_Slices shows that what was returned is never written again, and
// that appending to it does not reach the context.
func TestContext_Slices(t *testing.T) {
	t.Parallel()
	c := contextOf(items(user("a"), answer(toolCall("1"))))
	first := c.Messages()
	before := show(first)
	c.Append(Item{ID: 3, Messages: []model.Message{outcome("1", "one"), answer("b")}})
	_ = append(first, user("theirs"))
	require.Equal(t, before, show(first))
	require.Equal(t, []string{"user a", `assistant 1:run{"a":1}`, "toolResult(1) one", "assistant b"}, show(c.Messages()))
	require.Same(t, &c.Messages()[0], &c.Messages()[0], "nothing changed, nothing is derived")

	c = contextOf(items(user("a")))
	first = c.Messages()
	c.Append(Item{ID: 2, Messages: []model.Message{user("ours")}})
	_ = append(first, user("theirs"))
	require.Equal(t, []string{"user a", "user ours"}, show(c.Messages()))
}

func TestContext_RewrittenIDsDropTheRawBlock(t *testing.T) {
	t.Parallel()
	raw := toolCall("1")
	raw.Raw = `{"id":"1"}`
	c := contextOf(items(user("a"), answer(raw), outcome("1", "one"), answer(raw)))
	require.Equal(t, raw, c.Messages()[1].Content[0])
	require.Empty(t, c.Messages()[3].Content[0].Raw, "it has the id of another call in it")
}

func TestContext_Clone(t *testing.T) {
	t.Parallel()
	c := contextOf(items(user("a"), answer(toolCall("1"), toolCall("2")), outcome("2", "two")))
	k := c.Clone()
	k.Append(Item{ID: 4, Messages: []model.Message{outcome("1", "clone")}})
	k.Append(Item{ID: 5, Messages: []model.Message{answer(toolCall("1"))}, Edits: []Edit{{Target: 1, Omit: true}}})
	c.Append(Item{ID: 4, Messages: []model.Message{outcome("1", "original")}})
	c.Append(Item{ID: 5, Messages: []model.Message{answer(toolCall("1"))}})
	calls := `assistant 1:run{"a":1} 2:run{"a":1}`
	require.Equal(t, []string{"user a", calls, "toolResult(1) original", "toolResult(2) two",
		`assistant 1_2:run{"a":1}`, "toolResult(1_2) " + MissingResult}, show(c.Messages()))
	require.Equal(t, []string{"user " + Continued, calls, "toolResult(1) clone", "toolResult(2) two",
		`assistant 1_2:run{"a":1}`, "toolResult(1_2) " + MissingResult}, show(k.Messages()))
}
