package openai_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/openai"
)

const otherHost = "http://127.0.0.1:11434/v1"

// readable breaks a body into lines at the elements of its lists.
func readable(body []byte) string {
	return strings.ReplaceAll(string(body), "},{", "},\n{") + "\n"
}

// TestBodies compares the bodies of both APIs, at OpenAI's host and at another.
func TestBodies(t *testing.T) {
	t.Parallel()
	for name, a := range archives(t, "request") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := a.request(t)
			before, err := json.Marshal(req.Messages)
			require.NoError(t, err)
			for _, api := range []string{"chat", "responses"} {
				own := bodyOf(t, apis[api], req, "")
				require.True(t, json.Valid(own))
				a.check(t, api, readable(own))
				require.Equal(t, own, bodyOf(t, apis[api], req, ""), "the same request has the same bytes")
				other := bodyOf(t, apis[api], req, otherHost)
				require.True(t, json.Valid(other))
				a.check(t, api+" at another host", readable(other))
			}
			after, err := json.Marshal(req.Messages)
			require.NoError(t, err)
			require.Equal(t, string(before), string(after), "the request is not changed")
		})
	}
}

// A raw item goes back byte for byte, white space and all.
func TestBodies_RawItemsKeepTheirBytes(t *testing.T) {
	t.Parallel()
	req := archives(t, "request")["full"].request(t)
	body := bodyOf(t, newResponses, req, "")
	raws := 0
	for _, b := range req.Messages[2].Content {
		require.Contains(t, string(body), b.Raw)
		raws++
	}
	require.Equal(t, 4, raws)
}

// E11: the next turn's body begins with this one's bytes.
func TestBodies_OnlyGrow(t *testing.T) {
	t.Parallel()
	forEachAPI(t, func(t *testing.T, api string, provider newProvider) {
		stream1 := archives(t, api)["interleaved_calls"]
		if api == "responses" {
			stream1 = archives(t, api)["reasoning_calls"]
		}
		req := archives(t, "request")["full"].request(t)
		req.Messages = req.Messages[:2:2]
		for turn := range 3 {
			first := bodyOf(t, provider, req, "")
			m, err := stream(t.Context(), t, provider(serve(t, sse(t, stream1.get("stream"), 0))), req)
			require.NoError(t, err)
			m.Provider, m.Model = req.Model.Provider, req.Model.ID
			next := *req
			next.Messages = append(next.Messages[:len(next.Messages):len(next.Messages)], *m)
			for _, call := range m.ToolCalls() {
				next.Messages = append(next.Messages, model.Message{
					Role: model.RoleToolResult, ToolCallID: call.ID, ToolName: call.Name,
					Content: []model.Block{model.Text("ok"), {Type: model.BlockImage, MimeType: "image/png", Data: []byte("x")}},
				})
			}
			requirePrefix(t, first, bodyOf(t, provider, &next, ""))
			if turn == 1 {
				afterResults := next
				next.Messages = append(next.Messages,
					model.Message{Role: model.RoleSystem, Sections: []model.Section{{Key: "role", Text: "Be kind."}}},
					model.UserMessage("go on", time.Time{}))
				requirePrefix(t, bodyOf(t, provider, &afterResults, ""), bodyOf(t, provider, &next, ""))
			}
			req = &next
		}
	})
}

// requirePrefix checks that next is first with more elements in its last list.
func requirePrefix(t *testing.T, first, next []byte) {
	t.Helper()
	require.True(t, bytes.HasSuffix(first, []byte("]}")))
	require.True(t, bytes.HasPrefix(next, append(first[:len(first)-2:len(first)-2], ',')), "%s\n%s", first, next)
}

func TestQuirks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		api     string
		quirks  string // key=value, separated by spaces
		base    string
		level   model.ThinkingLevel
		want    []string
		wantNot []string
	}{
		"own host, chat":       {"chat", "", "", "", []string{`"max_completion_tokens":100`, `"prompt_cache_key":"conversation-1"`, `"include_usage":true`}, []string{"reasoning_effort", `"max_tokens"`, `"strict"`}},
		"other host, chat":     {"chat", "", otherHost, "", []string{`"max_tokens":100`, `"include_usage":true`}, []string{"prompt_cache_key", "max_completion_tokens"}},
		"own host, responses":  {"responses", "", "", "", []string{`"max_output_tokens":100`, `"store":false`, `"include":["reasoning.encrypted_content"]`, `"prompt_cache_key":"conversation-1"`, `"instructions":"<role>`, `"strict":false`}, []string{`"reasoning":{`}},
		"other host, respons.": {"responses", "", otherHost, "", nil, []string{"prompt_cache_key"}},
		"max_tokens":           {"chat", "max_tokens=max_completion_tokens", otherHost, "", []string{`"max_completion_tokens":100`}, nil},
		"stream_usage off":     {"chat", "stream_usage=off", "", "", nil, []string{"stream_options"}},
		"cache_key off":        {"responses", "cache_key=off", "", "", nil, []string{"prompt_cache_key"}},
		"cache_key on":         {"chat", "cache_key=on", otherHost, "", []string{`"prompt_cache_key"`}, nil},
		"strict on":            {"chat", "strict=on", "", "", []string{`"strict":true`}, nil},
		"strict omit":          {"responses", "strict=omit", "", "", nil, []string{"strict"}},
		"developer, chat":      {"chat", "system_role=developer", "", "", []string{`{"role":"developer","content":"<role>`}, nil},
		"developer, responses": {"responses", "system_role=developer", "", "", []string{`{"role":"developer","content":"<role>`}, []string{`"instructions":`}},
		"user, chat":           {"chat", "system_role=user", "", "", []string{`{"role":"user","content":"<role>`}, nil},
		"updates fold":         {"chat", "system_updates=fold", "", "", []string{"Updated."}, []string{"have changed"}},
		"updates inline":       {"chat", "system_updates=inline", otherHost, "", []string{"have changed", "Updated."}, nil},
		"effort word":          {"chat", "", "", model.ThinkingHigh, []string{`"reasoning_effort":"high"`}, nil},
		"effort renamed":       {"chat", "effort_high=max", "", model.ThinkingHigh, []string{`"reasoning_effort":"max"`}, nil},
		"effort off":           {"chat", "effort_off=none", "", model.ThinkingOff, []string{`"reasoning_effort":"none"`}, nil},
		"effort object":        {"chat", "effort=reasoning", "", model.ThinkingHigh, []string{`"reasoning":{"effort":"high"}`}, []string{"reasoning_effort"}},
		"effort object, off":   {"chat", "effort=reasoning", "", model.ThinkingOff, nil, []string{`"reasoning":{`}},
		"enable_thinking":      {"chat", "effort=enable_thinking", "", model.ThinkingHigh, []string{`"enable_thinking":true`}, []string{"reasoning_effort"}},
		"enable_thinking, off": {"chat", "effort=enable_thinking", "", model.ThinkingOff, []string{`"enable_thinking":false`}, nil},
		"chat_template":        {"chat", "effort=chat_template", "", model.ThinkingHigh, []string{`"chat_template_kwargs":{"enable_thinking":true}`}, nil},
		"thinking":             {"chat", "effort=thinking", "", model.ThinkingHigh, []string{`"thinking":{"type":"enabled"}`}, nil},
		"thinking, off":        {"chat", "effort=thinking", "", model.ThinkingOff, []string{`"thinking":{"type":"disabled"}`}, nil},
		"effort none":          {"chat", "effort=none", "", model.ThinkingHigh, nil, []string{"high"}},
		"responses effort":     {"responses", "", "", model.ThinkingHigh, []string{`"reasoning":{"effort":"high","summary":"auto"}`}, nil},
		"responses summary":    {"responses", "summary=detailed effort_high=xhigh", "", model.ThinkingHigh, []string{`"reasoning":{"effort":"xhigh","summary":"detailed"}`}, nil},
		"responses no summary": {"responses", "summary=off", "", model.ThinkingHigh, []string{`"reasoning":{"effort":"high"}`}, nil},
		"responses effort off": {"responses", "effort_off=minimal", "", model.ThinkingOff, []string{`"reasoning":{"effort":"minimal"}`}, nil},
		"not encrypted":        {"responses", "encrypted_reasoning=off", "", "", nil, []string{"include"}},
		"result name":          {"chat", "tool_result_name=on", "", "", []string{`{"role":"tool","name":"bash","tool_call_id":"c1"`}, nil},
		"result images":        {"chat", "tool_result_images=on", "", "", []string{`"tool_call_id":"c1","content":[{"type":"text","text":"see"},{"type":"image_url"`}, []string{"images follow"}},
		"result images off":    {"responses", "tool_result_images=off", "", "", []string{`"output":"see\n[images follow the tool results]"`, `{"role":"user","content":[{"type":"input_text","text":"Images of the result of call c1:"},{"type":"input_image"`}, nil},
		"reasoning out":        {"chat", "reasoning_out=reasoning", "", "", []string{`"reasoning":"hm"`}, []string{"reasoning_content"}},
		"reasoning out none":   {"chat", "reasoning_out=none", "", "", nil, []string{`"hm"`}},
		"reasoning required":   {"chat", "reasoning_required=on", "", "", []string{`"reasoning_content":"hm"`, `"reasoning_content":"","content":"later"`}, nil},
		"required, none out":   {"chat", "reasoning_required=on reasoning_out=reasoning", "", "", []string{`"reasoning":"","content":"later"`}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := quirkRequest()
			req.ThinkingLevel = c.level
			req.Model.Quirks = map[string]string{}
			for _, q := range strings.Fields(c.quirks) {
				key, value, _ := strings.Cut(q, "=")
				req.Model.Quirks[key] = value
			}
			require.NoError(t, openai.CheckQuirks(req.Model.Quirks))
			body := string(bodyOf(t, apis[c.api], req, c.base))
			for _, want := range c.want {
				require.Contains(t, body, want)
			}
			for _, not := range c.wantNot {
				require.NotContains(t, body, not)
			}
		})
	}
}

// quirkRequest is a request in which every switch shows.
func quirkRequest() *model.Request {
	req := ask("hello")
	req.Messages = append([]model.Message{{
		Role: model.RoleSystem, Baseline: true, Sections: []model.Section{{Key: "role", Text: "Help."}},
		ToolsAdded: []model.Tool{{Name: "bash", Parameters: json.RawMessage(`{"type":"object"}`)}},
	}}, req.Messages...)
	answer := func(blocks ...model.Block) model.Message {
		return model.Message{Role: model.RoleAssistant, Provider: "openai", Model: "gpt-test", Content: blocks}
	}
	req.Messages = append(req.Messages,
		answer(
			model.Block{Type: model.BlockThinking, Thinking: "hm", Raw: `{"field":"reasoning_content"}`},
			model.Block{Type: model.BlockToolCall, ID: "c1", Name: "bash", Arguments: json.RawMessage(`{}`)},
		),
		model.Message{Role: model.RoleToolResult, ToolCallID: "c1", ToolName: "bash", Content: []model.Block{
			model.Text("see"), {Type: model.BlockImage, MimeType: "image/png", Data: []byte("x")},
		}},
		answer(model.Text("later")),
		model.Message{Role: model.RoleSystem, Sections: []model.Section{{Key: "role", Text: "Updated."}}},
		model.UserMessage("more", time.Time{}),
	)
	return req
}

func TestQuirks_Unknown(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, openai.CheckQuirks(map[string]string{"max_token": "x"}), `quirk "max_token" is unknown`)
	require.ErrorContains(t, openai.CheckQuirks(map[string]string{"effort_deep": "x"}), "is unknown")
	require.ErrorContains(t, openai.CheckQuirks(map[string]string{"strict": "yes"}), `quirk strict: "yes" is not one of on, off, omit`)
	require.NoError(t, openai.CheckQuirks(map[string]string{"effort_off": "none", "effort_xhigh": "max"}))

	for api, quirk := range map[string]string{"chat": "think_tags", "responses": "summary"} {
		req := ask("hi")
		req.Model.Quirks = map[string]string{quirk: "perhaps"}
		_, err := stream(t.Context(), t, apis[api](&openai.Options{APIKey: "k", BaseURL: "http://127.0.0.1:1"}), req)
		require.Equal(t, model.ClassInvalidRequest, model.AsError(err).Class, "%v", err)
		require.ErrorContains(t, err, "quirk "+quirk)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	req := ask("hi")
	req.MaxOutputTokens = 1_000_000
	require.Contains(t, string(bodyOf(t, newChat, req, "")), `"max_completion_tokens":1000`, "the model's maximum bounds the request's")
	req.MaxOutputTokens = 1
	require.Contains(t, string(bodyOf(t, newResponses, req, "")), `"max_output_tokens":16`, "the API's minimum")
	req.SessionID = strings.Repeat("x", 65)
	require.NotContains(t, string(bodyOf(t, newResponses, req, "")), "xxx")
	require.Regexp(t, `"prompt_cache_key":"[0-9a-f]{64}"`, string(bodyOf(t, newResponses, req, "")))
}
