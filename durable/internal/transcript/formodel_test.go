package transcript

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
)

func TestForModel(t *testing.T) {
	t.Parallel()
	withRaw := answer(model.Block{Type: model.BlockText, Text: "b", Raw: `{"id":1}`})
	odd := toolCall("functions.run:0")
	tests := []struct {
		name   string
		in     []model.Message
		ref    model.Ref
		images bool
		want   []string
	}{
		{"thinking goes to its model (E13)", []model.Message{user("a"), answer(thought("t"), "b"), user("c")}, ours, true,
			[]string{"user a", "assistant <t> b", "user c"}},
		{"and to no other", []model.Message{user("a"), answer(thought("t"), "b"), user("c")}, theirs, true,
			[]string{"user a", "assistant b", "user c"}},
		{"a message with nothing left is dropped", []model.Message{user("a"), answer(thought("t")), user("c")}, theirs, true,
			[]string{"user a", "user c"}},
		{"images become texts where none are taken",
			[]model.Message{{Role: model.RoleUser, Content: []model.Block{picture(), model.Text("a")}}}, ours, false,
			[]string{"user " + ImageModel + " a"}},
		{"a request ends with input", []model.Message{baseline("x"), user("a"), answer("b"), change("y")}, ours, true,
			[]string{"system! k=x", "user a", "assistant b", "system k=y", "user " + Continued}},
		{"a request is never empty", nil, ours, true, []string{"user " + Continued}},
		{"an odd id goes back to the model that made it", []model.Message{user("a"), answer(odd), outcome(odd.ID, "x")}, ours, true,
			[]string{"user a", `assistant functions.run:0:run{"a":1}`, "toolResult(functions.run:0) x"}},
		{"and is rewritten for others", []model.Message{user("a"), answer(odd), outcome(odd.ID, "x")}, theirs, true,
			[]string{"user a", "assistant " + hashedID(odd.ID) + `:run{"a":1}`, "toolResult(" + hashedID(odd.ID) + ") x"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			before := show(tt.in)
			require.Equal(t, tt.want, show(ForModel(tt.in, tt.ref, tt.images)))
			require.Equal(t, before, show(tt.in))
		})
	}

	require.NotEmpty(t, ForModel([]model.Message{user("a"), withRaw, user("c")}, ours, true)[1].Content[0].Raw)
	require.Empty(t, ForModel([]model.Message{user("a"), withRaw, user("c")}, theirs, true)[1].Content[0].Raw)
	taken := []model.Message{user("a"), answer(toolCall(hashedID(odd.ID)), odd), outcome(hashedID(odd.ID), "x"), outcome(odd.ID, "y")}
	require.Equal(t, hashedID(odd.ID)+"_2", ForModel(taken, theirs, true)[3].ToolCallID)
}

func TestForModel_ReturnsTheSameSlice(t *testing.T) {
	t.Parallel()
	c := contextOf(items(baseline("x"), user("a"), answer(thought("t"), toolCall("1")), outcome("1", "one"), user("b")))
	got := c.Messages()
	sent := ForModel(got, ours, true)
	require.Same(t, &got[0], &sent[0])
	require.Len(t, sent, len(got))

	room := []model.Message{user("a"), answer("b"), user("not sent")}
	ForModel(room[:2], ours, true)
	require.Equal(t, "not sent", room[2].Text(), "what lies behind the slice is not written to")
}

// TestForModel_Prefix: the note at the end of one request is where it was in
// the next one (E11).
func TestForModel_Prefix(t *testing.T) {
	t.Parallel()
	c := contextOf(items(user("a"), answer("b")))
	first := ForModel(c.Messages(), ours, true)
	c.Append(Item{ID: 3, Messages: []model.Message{answer("c"), user("d")}})
	second := ForModel(c.Messages(), ours, true)
	require.Equal(t, show(first), show(second)[:len(first)])
}
