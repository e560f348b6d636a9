package openai_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// strict returns what a strict server would refuse of a body (E13).
func strict(api string, body []byte) error {
	if !utf8.Valid(body) {
		return errors.New("body is not valid UTF-8")
	}
	if api == "chat" {
		return strictChat(body)
	}
	return strictResponses(body)
}

var namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// callState follows calls and their results.
type callState struct {
	used, open map[string]bool
}

func newCallState() *callState { return &callState{map[string]bool{}, map[string]bool{}} }

func (s *callState) call(id, name, args string) error {
	var object map[string]any
	switch {
	case id == "" || s.used[id]:
		return fmt.Errorf("call id %q is empty or used twice", id)
	case !namePattern.MatchString(name):
		return fmt.Errorf("call name %q", name)
	case json.Unmarshal([]byte(args), &object) != nil || object == nil:
		return fmt.Errorf("arguments %q", args)
	}
	s.used[id], s.open[id] = true, true
	return nil
}

func (s *callState) result(id string) error {
	if !s.open[id] {
		return fmt.Errorf("result of %q without an open call", id)
	}
	delete(s.open, id)
	return nil
}

// content checks a string or a list of parts.
func content(raw json.RawMessage) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		if strings.TrimSpace(text) == "" {
			return errors.New("blank content")
		}
		return nil
	}
	var parts []struct {
		Type     string          `json:"type"`
		Text     string          `json:"text"`
		ImageURL json.RawMessage `json:"image_url"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
		return fmt.Errorf("content %s", raw)
	}
	for _, p := range parts {
		if strings.HasSuffix(p.Type, "text") == (strings.TrimSpace(p.Text) == "") {
			return fmt.Errorf("part %+v", p)
		}
		if strings.Contains(p.Type, "image") == (len(p.ImageURL) == 0) {
			return fmt.Errorf("part %+v", p)
		}
	}
	return nil
}

func strictChat(body []byte) error {
	var b struct {
		Messages []struct {
			Role       string          `json:"role"`
			Content    json.RawMessage `json:"content"`
			ToolCallID string          `json:"tool_call_id"`
			ToolCalls  []struct {
				ID       string `json:"id"`
				Type     string `json:"type"`
				Function struct {
					Name      string `json:"name"`
					Arguments string `json:"arguments"`
				} `json:"function"`
			} `json:"tool_calls"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return err
	}
	calls := newCallState()
	for i, m := range b.Messages {
		if m.Role != "tool" && len(calls.open) > 0 {
			return fmt.Errorf("message %d: calls without results: %v", i, calls.open)
		}
		if m.Role == "tool" {
			if err := calls.result(m.ToolCallID); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		for _, c := range m.ToolCalls {
			if err := calls.call(c.ID, c.Function.Name, c.Function.Arguments); err != nil {
				return fmt.Errorf("message %d: %w", i, err)
			}
		}
		if string(m.Content) == "null" && len(m.ToolCalls) > 0 {
			continue
		}
		if err := content(m.Content); err != nil {
			return fmt.Errorf("message %d (%s): %w", i, m.Role, err)
		}
	}
	if len(calls.open) > 0 {
		return fmt.Errorf("calls without results: %v", calls.open)
	}
	return nil
}

func strictResponses(body []byte) error {
	var b struct {
		Input []struct {
			Type      string          `json:"type"`
			Role      string          `json:"role"`
			ID        string          `json:"id"`
			Content   json.RawMessage `json:"content"`
			CallID    string          `json:"call_id"`
			Name      string          `json:"name"`
			Arguments string          `json:"arguments"`
			Output    json.RawMessage `json:"output"`
			Encrypted string          `json:"encrypted_content"`
		} `json:"input"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return err
	}
	calls := newCallState()
	reasoning := false // the item before is reasoning
	for i, it := range b.Input {
		var err error
		switch {
		case it.Type == "reasoning" && it.Encrypted == "":
			err = errors.New("reasoning without its encrypted content")
		case it.Type == "reasoning":
		case it.Type == "function_call":
			err = calls.call(it.CallID, it.Name, it.Arguments)
		case it.Type == "function_call_output":
			if err = calls.result(it.CallID); err == nil {
				err = content(it.Output)
			}
		case it.Type == "message" || it.Type == "":
			if len(calls.open) > 0 && it.Type == "" && it.Role != "assistant" {
				err = fmt.Errorf("calls without results: %v", calls.open)
			}
			if err == nil && it.ID == "" {
				err = content(it.Content)
			}
		default:
			err = fmt.Errorf("type %q", it.Type)
		}
		output := it.Type == "function_call" || it.Type == "message" || it.Role == "assistant" || it.Type == "reasoning"
		if err == nil && reasoning && !output {
			err = errors.New("reasoning without its item behind it")
		}
		if err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
		reasoning = it.Type == "reasoning"
	}
	if reasoning || len(calls.open) > 0 {
		return fmt.Errorf("input ends with reasoning or with calls without results: %v", calls.open)
	}
	return nil
}

// answered returns req with an answer, the results of its calls and a user
// message behind it, as the engine would send it.
func answered(req *model.Request, m *model.Message) *model.Request {
	next := *req
	answer := *m
	answer.Provider, answer.Model = req.Model.Provider, req.Model.ID
	next.Messages = append([]model.Message(nil), req.Messages...)
	if len(answer.Content) > 0 {
		next.Messages = append(next.Messages, answer)
	}
	for _, c := range answer.ToolCalls() {
		next.Messages = append(next.Messages, model.Message{
			Role: model.RoleToolResult, ToolCallID: c.ID, ToolName: c.Name, Content: []model.Block{model.Text("ok")},
		})
	}
	next.Messages = append(next.Messages, model.UserMessage("go on", time.Time{}))
	return &next
}

// requireSendable checks that both APIs make a body of req that a strict server
// takes.
func requireSendable(t testing.TB, req *model.Request) {
	t.Helper()
	for api, provider := range apis {
		for _, base := range []string{"", otherHost} {
			body := bodyOf(t, provider, req, base)
			require.NoError(t, strict(api, body), "%s: %s", api, body)
		}
	}
}

// Whatever well-formed transcript comes, of models mixed, the body is one that
// a strict server takes, and it is the beginning of the next.
func TestBodies_AnyTranscript(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		req := ask("hello")
		req.Model.Images = rapid.Bool().Draw(rt, "images")
		n := rapid.IntRange(1, 6).Draw(rt, "turns")
		for i := range n {
			drawTurn(rt, req, i)
		}
		require.NoError(rt, faux.Check(req))
		for api, provider := range apis {
			body := bodyOf(t, provider, req, "")
			require.NoError(rt, strict(api, body), "%s: %s", api, body)
			next := *req
			drawTurn(rt, &next, n)
			longer := string(bodyOf(t, provider, &next, ""))
			require.True(rt, strings.HasPrefix(longer, string(body[:len(body)-2])), "%s\n%s", body, longer)
		}
	})
}

// drawTurn appends an answer, its results and a user message.
func drawTurn(rt *rapid.T, req *model.Request, turn int) {
	text := rapid.SampledFrom([]string{"one", "<b> & \u2028", "\U0001F600", "x\n"})
	m := model.Message{Role: model.RoleAssistant, StopReason: model.StopEnd}
	m.Provider = rapid.SampledFrom([]string{"openai", "other"}).Draw(rt, "provider")
	m.Model = rapid.SampledFrom([]string{"gpt-test", "older"}).Draw(rt, "model")
	if rapid.IntRange(0, 3).Draw(rt, "cut") == 0 {
		m.StopReason = model.StopLength
	}
	for i := range rapid.IntRange(1, 4).Draw(rt, "blocks") {
		switch rapid.IntRange(0, 2).Draw(rt, "kind") {
		case 0:
			b := model.Text(text.Draw(rt, "text"))
			if rapid.Bool().Draw(rt, "raw") {
				b.Raw = fmt.Sprintf(`{"type":"message","id":"msg_%d_%d","role":"assistant","content":[{"type":"output_text","text":%q}]}`, turn, i, b.Text)
			}
			m.Content = append(m.Content, b)
		case 1:
			b := model.Block{Type: model.BlockThinking, Thinking: text.Draw(rt, "thinking")}
			b.Raw = rapid.SampledFrom([]string{
				"", `{"field":"reasoning_content"}`, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"E"}`,
				`{"type":"reasoning","id":"rs_2","summary":[]}`, `{"field":"reasoning","details":[{"type":"reasoning.text"}]}`, `7`,
			}).Draw(rt, "thinking raw")
			m.Content = append(m.Content, b)
		case 2:
			id := rapid.SampledFrom([]string{"call", "functions.x:", strings.Repeat("long", 30)}).Draw(rt, "id") + fmt.Sprintf("%d_%d", turn, i)
			name := rapid.SampledFrom([]string{"bash", "a.b c", "\u00e4"}).Draw(rt, "name")
			b := model.Block{Type: model.BlockToolCall, ID: id, Name: name}
			b.SetArguments(rapid.SampledFrom([]string{`{"a": 1}`, `{"a":"<"}`, `{"cut`, ``, `[]`}).Draw(rt, "arguments"))
			b.Raw = rapid.SampledFrom([]string{"", `{"extra":{"extra_content":{"s":"<"}}}`, `[]`,
				fmt.Sprintf(`{"type":"function_call","id":"fc_1","call_id":%q,"name":%q,"arguments":%q}`, id, name, `{"a": 1}`),
			}).Draw(rt, "call raw")
			m.Content = append(m.Content, b)
		}
	}
	req.Messages = append(req.Messages[:len(req.Messages):len(req.Messages)], m)
	picture := model.Block{Type: model.BlockImage, MimeType: "image/png", Data: []byte("x")}
	for _, c := range m.ToolCalls() {
		r := model.Message{Role: model.RoleToolResult, ToolCallID: c.ID, ToolName: c.Name, Content: []model.Block{model.Text("ok")}}
		if rapid.Bool().Draw(rt, "picture") {
			r.Content = append(r.Content, picture)
		}
		req.Messages = append(req.Messages, r)
	}
	if rapid.Bool().Draw(rt, "update") {
		req.Messages = append(req.Messages, model.Message{Role: model.RoleSystem, Sections: []model.Section{{Key: "k", Text: text.Draw(rt, "section")}}})
	}
	user := model.UserMessage(text.Draw(rt, "user"), time.Time{})
	if rapid.Bool().Draw(rt, "user picture") {
		user.Content = append(user.Content, picture)
	}
	req.Messages = append(req.Messages, user)
}
