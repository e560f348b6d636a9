package faux_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// good returns a request that a strict provider accepts.
func good() *model.Request {
	call := func(id string) model.Block {
		return model.Block{Type: model.BlockToolCall, ID: id, Name: "bash", Arguments: json.RawMessage(`{"a":"\ud83d\ude00 \\ud83d"}`)}
	}
	result := func(id string) model.Message {
		return model.Message{Role: model.RoleToolResult, ToolCallID: id, ToolName: "bash", Content: []model.Block{model.Text("ok")}}
	}
	return &model.Request{
		Model: faux.Model(), MaxOutputTokens: 10, ThinkingLevel: model.ThinkingHigh,
		Messages: []model.Message{
			{Role: model.RoleSystem, Baseline: true, Sections: []model.Section{{Key: "a", Text: "b"}}, ToolsAdded: []model.Tool{
				{Name: "bash", Parameters: json.RawMessage(`{"type":"object"}`)},
			}},
			{Role: model.RoleUser, Content: []model.Block{model.Text("hi"), {Type: model.BlockImage, MimeType: "image/png", Data: []byte("x")}}},
			{Role: model.RoleAssistant, StopReason: model.StopToolUse, Content: []model.Block{
				{Type: model.BlockThinking, Thinking: "hm"}, model.Text("let me see"), call("c1"), call("c2"),
			}},
			result("c1"), result("c2"),
			{Role: model.RoleSystem, Sections: []model.Section{{Key: "a", Text: "c"}}},
			{Role: model.RoleAssistant, StopReason: model.StopEnd, Content: []model.Block{model.Text("done")}},
			model.UserMessage("more", time.Time{}),
		},
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	require.NoError(t, faux.Check(good()))

	const sys, user, asst, r1, r2 = 0, 1, 2, 3, 4
	for want, breakIt := range map[string]func(r *model.Request){
		"output limit is 0":        func(r *model.Request) { r.MaxOutputTokens = 0 },
		"thinking level":           func(r *model.Request) { r.ThinkingLevel = "deep" },
		"no message":               func(r *model.Request) { r.Messages = r.Messages[:1] },
		"first message is not":     func(r *model.Request) { r.Messages = r.Messages[asst:] },
		"last message is the assi": func(r *model.Request) { r.Messages = r.Messages[:len(r.Messages)-1] },
		`"c2" has no result`:       func(r *model.Request) { r.Messages = r.Messages[:r2] },
		`"c2" has no result directly`: func(r *model.Request) {
			r.Messages = append(r.Messages[:r2], r.Messages[r2+1:]...)
		},
		`result of "c2" where that of "c1"`: func(r *model.Request) {
			r.Messages[r1], r.Messages[r2] = r.Messages[r2], r.Messages[r1]
		},
		`result of "c2" without a call`: func(r *model.Request) {
			r.Messages[5] = r.Messages[r2]
		},
		"used twice":          func(r *model.Request) { r.Messages[asst].Content[3].ID = "c1" },
		"without an id":       func(r *model.Request) { r.Messages[asst].Content[3].ID = "" },
		"without a name":      func(r *model.Request) { r.Messages[asst].Content[3].Name = "" },
		"not a JSON object":   func(r *model.Request) { r.Messages[asst].Content[3].Arguments = json.RawMessage(`[1]`) },
		"are not a JSON":      func(r *model.Request) { r.Messages[asst].Content[3].Arguments = nil },
		"lone surrogate":      func(r *model.Request) { r.Messages[asst].Content[3].Arguments = json.RawMessage(`{"a":"\ud83d x"}`) },
		"a lone surrogate":    func(r *model.Request) { r.Messages[asst].Content[3].Arguments = json.RawMessage(`{"a":"\udE00"}`) },
		"message is empty":    func(r *model.Request) { r.Messages[user].Content = nil },
		"(toolResult): messa": func(r *model.Request) { r.Messages[r1].Content = nil },
		"blank text":          func(r *model.Request) { r.Messages[asst].Content[1].Text = " \n" },
		"text is not valid":   func(r *model.Request) { r.Messages[user].Content[0].Text = "\xff" },
		"thinking is not val": func(r *model.Request) { r.Messages[asst].Content[0].Thinking = "\xff" },
		"tool call is not va": func(r *model.Request) { r.Messages[asst].Content[3].Name = "\xff" },
		"section a is not va": func(r *model.Request) { r.Messages[sys].Sections[0].Text = "\xff" },
		"tool bash is not va": func(r *model.Request) { r.Messages[sys].ToolsAdded[0].Description = "\xff" },
		`"image" block`: func(r *model.Request) {
			r.Messages[asst].Content[1] = r.Messages[user].Content[1]
		},
		`"toolCall" block`: func(r *model.Request) { r.Messages[user].Content[0].Type = model.BlockToolCall },
		"without data":     func(r *model.Request) { r.Messages[user].Content[1].Data = nil },
		"as base64":        func(r *model.Request) { r.Messages[user].Content[1].Data = make([]byte, 4<<20) },
		"image type":       func(r *model.Request) { r.Messages[user].Content[1].MimeType = "image/tiff" },
		"was changed":      func(r *model.Request) { r.Messages[asst].Content[0].Signature = "faux:0" },
		"ended with error": func(r *model.Request) { r.Messages[6].StopReason = model.StopError },
		"role is unknown":  func(r *model.Request) { r.Messages[7] = model.Message{Role: "tool", Content: nil} },
		"is empty or used": func(r *model.Request) { r.Messages[sys].ToolsAdded[0].Name = "" },
		"schema of an obj": func(r *model.Request) { r.Messages[sys].ToolsAdded[0].Parameters = json.RawMessage(`{}`) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			req := good()
			breakIt(req)
			err := faux.Check(req)
			require.ErrorContains(t, err, want)
			require.Equal(t, model.ClassInvalidRequest, model.AsError(err).Class)
		})
	}
}

func TestProvider_Strict(t *testing.T) {
	t.Parallel()
	p := faux.New(&faux.Options{Strict: true})
	p.Push(faux.Step{Text: "ok", Thinking: "hm"}, faux.Step{Text: "ok"})
	req := request("hello")
	m, _, err := stream(t, p, req)
	require.NoError(t, err)

	req.Messages = append(req.Messages, *m, model.UserMessage("next", time.Time{}))
	bad := request("hello")
	bad.Messages = append(bad.Messages, m.Clone(), model.UserMessage("next", time.Time{}))
	bad.Messages[1].Content[0].Thinking = "other"
	_, _, err = stream(t, p, bad)
	require.ErrorContains(t, err, "thinking was changed")
	require.Equal(t, 1, p.Pending(), "a refused request takes no step")

	_, _, err = stream(t, p, req)
	require.NoError(t, err)
	require.Len(t, p.Requests(), 3, "refused requests are kept too")
}
