package transcript

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
)

func TestCleanMessage_Calls(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name           string
		args, raw      string
		wantArgs, want string // want is RawArguments
		keepsRaw       bool
	}{
		{name: "an object stays", args: `{"b":1,"a":10000000000000000000000}`, wantArgs: `{"b":1,"a":10000000000000000000000}`, keepsRaw: true},
		{name: "white space of the model stays", args: `{"a":1}`, raw: `{"a": 1}`, wantArgs: `{"a":1}`, want: `{"a": 1}`, keepsRaw: true},
		{name: "nothing becomes an object", args: ``, wantArgs: `{}`},
		{name: "null becomes an object", args: `null`, wantArgs: `{}`},
		{name: "a list becomes an object", args: `[1]`, wantArgs: `{}`},
		{name: "broken JSON becomes an object", args: `{"a":`, wantArgs: `{}`},
		{name: "what the model wrote goes when it is no object", args: `{}`, raw: `{"a":`, wantArgs: `{}`},
		{name: "what the model wrote goes when it is something else", args: `{}`, raw: `{"a":1}`, wantArgs: `{}`},
		{name: "bytes that are not UTF-8 are replaced", args: "{\"a\":\"\xff\"}", wantArgs: `{"a":"` + "\uFFFD" + `"}`},
		{name: "a lone surrogate is replaced", args: `{"a":"\ud800x"}`, wantArgs: `{"a":"\ufffdx"}`},
		{name: "a low one first too", args: `{"a":"\uDC00\ud800"}`, wantArgs: `{"a":"\ufffd\ufffd"}`},
		{name: "two of a kind are no pair", args: `{"a":"\udc00\udc00\ud800\ud800"}`, wantArgs: `{"a":"\ufffd\ufffd\ufffd\ufffd"}`},
		{name: "a pair stays", args: `{"a":"\ud83d\ude00"}`, wantArgs: `{"a":"\ud83d\ude00"}`, keepsRaw: true},
		{name: "an escaped backslash is no escape", args: `{"a":"\\ud800"}`, wantArgs: `{"a":"\\ud800"}`, keepsRaw: true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			given := model.Block{
				Type: model.BlockToolCall, ID: "1", Name: "run", Raw: `{"raw":1}`,
				Arguments: json.RawMessage(tt.args), RawArguments: tt.raw,
			}
			m, ok := CleanMessage(answer(given))
			require.True(t, ok)
			got := m.Content[0]
			require.Equal(t, tt.wantArgs, string(got.Arguments))
			require.Equal(t, tt.want, got.RawArguments)
			require.Equal(t, tt.keepsRaw, got.Raw != "", "the raw block stays only beside what it says")
			require.Equal(t, tt.args, string(given.Arguments), "the given message is not written to")
		})
	}
}

func TestCleanMessage_Names(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"run": "run", "": "unknown_tool", "functions.run": "functions_run",
		"a b\xff": "a_b_", strings.Repeat("x", 65): strings.Repeat("x", 64),
	} {
		b := toolCall("1")
		b.Name = in
		m, ok := CleanMessage(answer(b))
		require.True(t, ok)
		require.Equal(t, want, m.Content[0].Name)
	}
}

func TestCleanMessage_Text(t *testing.T) {
	t.Parallel()
	m, ok := CleanMessage(user("a\xed\xa0\x80b"))
	require.True(t, ok)
	require.Equal(t, "a\uFFFDb", m.Content[0].Text, "an encoded surrogate is no UTF-8")

	raw := model.Block{Type: model.BlockText, Text: "a", Raw: `{"text":"\ud800"}`}
	m, _ = CleanMessage(answer(raw))
	require.Empty(t, m.Content[0].Raw)

	bad := []model.Block{
		{Type: model.BlockThinking, Thinking: "\xff", Signature: "s"},
		{Type: model.BlockThinking, Thinking: "t", Raw: "{"},
		{Type: model.BlockThinking, Thinking: "t", Signature: "s", Raw: `"\ud800"`},
	}
	m, _ = CleanMessage(answer(bad[0], bad[1], bad[2], "b"))
	require.Equal(t, []string{"assistant b"}, show([]model.Message{m}), "thinking goes byte for byte or not at all (E13)")
}

func TestCleanMessage_System(t *testing.T) {
	t.Parallel()
	m, ok := CleanMessage(model.Message{
		Role: model.RoleSystem, Baseline: true,
		Sections:   []model.Section{{Key: "a", Text: "1\xff"}, {Key: "b", Text: " "}, {Key: "a", Text: "2"}},
		ToolsAdded: []model.Tool{{Name: ""}, {Name: "x y", Parameters: json.RawMessage(`[]`)}, {Name: "z"}, {Name: "z", Description: "second"}},
	})
	require.True(t, ok)
	require.Equal(t, []model.Section{{Key: "a", Text: "2"}}, m.Sections)
	require.Equal(t, []model.Tool{
		{Name: "x_y", Parameters: emptySchema},
		{Name: "z", Description: "second", Parameters: emptySchema},
	}, m.ToolsAdded)

	m, ok = CleanMessage(change(" "))
	require.True(t, ok)
	require.Equal(t, "", m.Sections[0].Text, "a blank text takes the section away")
	_, ok = CleanMessage(model.Message{Role: model.RoleSystem})
	require.False(t, ok)
}

func TestCleanMessage_SharesWhatIsClean(t *testing.T) {
	t.Parallel()
	m := answer(thought("t"), "b", toolCall("1"))
	got, ok := CleanMessage(m)
	require.True(t, ok)
	require.Same(t, &m.Content[0], &got.Content[0])
}
