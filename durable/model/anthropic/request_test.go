package anthropic

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable/model"
)

// requirePrefix checks that of two consecutive requests the first is a byte
// prefix of the second, up to the end of its messages (E11).
func requirePrefix(t testing.TB, first, second []byte) {
	t.Helper()
	open := bytes.TrimSuffix(first, []byte("]}"))
	require.Less(t, len(open), len(first))
	require.True(t, bytes.HasPrefix(second, open), "not a prefix:\n%s\n%s", first, second)
}

func user(blocks ...model.Block) model.Message {
	return model.Message{Role: model.RoleUser, Content: blocks}
}

func assistant(info model.Info, blocks ...model.Block) model.Message {
	return model.Message{Role: model.RoleAssistant, Provider: info.Provider, Model: info.ID, Content: blocks}
}

func result(id string, blocks ...model.Block) model.Message {
	return model.Message{Role: model.RoleToolResult, ToolCallID: id, ToolName: "read", Content: blocks}
}

func call(id, name, args string) model.Block {
	return model.Block{Type: model.BlockToolCall, ID: id, Name: name, Arguments: json.RawMessage(args)}
}

func think(text, signature string) model.Block {
	return model.Block{Type: model.BlockThinking, Thinking: text, Signature: signature}
}

var (
	readTool = model.Tool{Name: "read", Description: "Reads a file & shows <it>.", Parameters: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}`)}
	listTool = model.Tool{Name: "list"}
	png      = model.Block{Type: model.BlockImage, MimeType: "image/png", Data: []byte{0x89, 'P', 'N', 'G'}}
)

func baseline(text string, tools ...model.Tool) model.Message {
	return model.Message{Role: model.RoleSystem, Baseline: true, Sections: []model.Section{
		{Key: "identity", Text: text}, {Key: "rules", Text: "Be brief.", Untagged: true},
	}, ToolsAdded: tools}
}

func change(sections ...model.Section) model.Message {
	return model.Message{Role: model.RoleSystem, Sections: sections}
}

func level(l model.ThinkingLevel) func(*model.Request) {
	return func(r *model.Request) { r.ThinkingLevel = l }
}

func TestEncode_Golden(t *testing.T) {
	t.Parallel()
	round := []model.Message{
		baseline("You are \"A\" <1>.", readTool, listTool),
		user(model.Text("look  at\n\u2028this"), model.Text(" \n"), png),
		assistant(adaptive,
			think("hm <\u00e9>", "SIG+/=="), model.Block{Type: model.BlockThinking, Raw: `{"type":"redacted_thinking","data":"ENC"}`},
			think("lost its signature", ""), model.Text("\n\n"), model.Text("Reading."),
			call("toolu_1", "read", `{"path":"<a>","n":12345678901234567890,"b":1.0}`), call("toolu_2", "list", `{}`)),
		{Role: model.RoleToolResult, ToolCallID: "toolu_1", IsError: true, Content: []model.Block{model.Text("no such file")}, Details: json.RawMessage(`{"secret":1}`)},
		result("toolu_2", model.Text(""), png),
		user(model.Text("and hurry")),
	}
	tests := []struct {
		name     string
		info     model.Info
		messages []model.Message
		change   func(*model.Request)
	}{
		{"round", adaptive, round, level("high")},
		{"round_thinking_off", adaptive, round, nil},
		{"round_drop_thinking", adaptive, round, func(r *model.Request) { r.ThinkingLevel, r.DropThinking = "low", true }},
		{"round_other_model", budget, round, level("high")}, // neither its thinking nor thinking in the open round
		{"budget", budget, []model.Message{baseline("You.", readTool), user(model.Text("hi"))}, level("medium")},
		{"system_in_place", adaptive, []model.Message{
			baseline("One.", readTool), user(model.Text("a")),
			change(model.Section{Key: "cwd", Text: "/tmp"}, model.Section{Key: "identity"}),
			assistant(adaptive, model.Text("b")), user(model.Text("c")),
		}, level("low")},
		{"system_folded", budget, []model.Message{
			baseline("One.", readTool), user(model.Text("a")),
			change(model.Section{Key: "cwd", Text: "/tmp"}, model.Section{Key: "identity"}),
			assistant(budget, model.Text("b")), user(model.Text("c")),
		}, nil},
		{"foreign_ids", adaptive, []model.Message{
			user(model.Text("a")),
			assistant(budget, call("call|1/x", "read.file", `{}`), call("call_1_x", "read", `{"a":"\ud800"}`), call("", "", ``)),
			result("call|1/x", model.Text("r1")), result("call_1_x", model.Text("r2")), result("", model.Text("r3")),
			user(model.Text("\ufeff b")),
		}, nil},
		{"blind_model", model.Info{Provider: "p", ID: "m"}, []model.Message{
			user(png), assistant(adaptive), user(model.Text("go")), assistant(adaptive, model.Text("ok"), call("t", "read", `{}`)), result("t", png),
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			req := newRequest(tt.info, tt.messages)
			if tt.change != nil {
				tt.change(req)
			}
			body, err := encode(req, req.Messages)
			require.NoError(t, err)
			requireAccepted(t, body)
			golden(t, tt.name, body)
		})
	}
}

// Tool inputs and schemas keep their text: key order, numbers, no escaped HTML.
func TestEncode_RawJSONKeepsItsText(t *testing.T) {
	t.Parallel()
	const args = `{"z":1.50,"a":"<&>","n":123456789012345678901234567890}`
	req := newRequest(adaptive, []model.Message{
		baseline("x", model.Tool{Name: "t", Parameters: json.RawMessage(`{"type":"object","b":"<&>","a":1e3}`)}),
		user(model.Text("a")), assistant(adaptive, call("i", "t", args)), result("i", model.Text("ok")),
	})
	body, err := encode(req, req.Messages)
	require.NoError(t, err)
	require.Contains(t, string(body), `"input":`+args)
	require.Contains(t, string(body), `"input_schema":{"type":"object","b":"<&>","a":1e3}`)
}

func TestEncode_Thinking(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name       string
		info       model.Info
		level      model.ThinkingLevel
		out        int
		max        int
		wantTokens int
		want       string // thinking and output_config
	}{
		{"adaptive", adaptive, "xhigh", 32_000, 128_000, 32_000, `{"type":"adaptive","display":"summarized"} {"effort":"xhigh"}`},
		{"adaptive has no minimal", adaptive, "minimal", 32_000, 128_000, 32_000, `{"type":"adaptive","display":"summarized"} {"effort":"low"}`},
		{"the model's maximum bounds the limit", adaptive, "low", 200_000, 128_000, 128_000, `{"type":"adaptive","display":"summarized"} {"effort":"low"}`},
		{"an unknown maximum does not", adaptive, "low", 200_000, 0, 200_000, `{"type":"adaptive","display":"summarized"} {"effort":"low"}`},
		{"off where it can be disabled", adaptive, "off", 100, 128_000, 100, `{"type":"disabled"} null`},
		{"off between tools", quirk(adaptive, "thinking_off", "between_tools"), "off", 100, 128_000, 100, `{"type":"between_tools"} null`},
		{"off where it cannot be", quirk(adaptive, "thinking_off", "always"), "off", 100, 128_000, 100, `null {"effort":"low"}`},
		{"off where nothing is wanted", budget, "off", 100, 64_000, 100, `null null`},
		{"no level is off", budget, "", 100, 64_000, 100, `null null`},
		{"a budget is added to the limit (E12.4)", budget, "low", 32_000, 64_000, 36_096, `{"type":"enabled","budget_tokens":4096} null`},
		{"for a small limit too", budget, "high", 100, 64_000, 24_676, `{"type":"enabled","budget_tokens":24576} null`},
		{"up to the model's maximum", budget, "high", 50_000, 64_000, 64_000, `{"type":"enabled","budget_tokens":24576} null`},
		{"where the answer keeps half", budget, "high", 32_000, 32_000, 32_000, `{"type":"enabled","budget_tokens":16000} null`},
		{"a maximum too small for any budget", budget, "high", 1500, 1500, 1500, `null null`},
		{"an unknown level has no budget", budget, "extreme", 1500, 64_000, 1500, `null null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			info := tt.info
			info.MaxOutput = tt.max
			req := newRequest(info, ask("hi"))
			req.ThinkingLevel, req.MaxOutputTokens = tt.level, tt.out
			body, err := encode(req, req.Messages)
			require.NoError(t, err)
			r := requireAccepted(t, body)
			require.Equal(t, tt.wantTokens, r.MaxTokens)
			th, _ := json.Marshal(r.Thinking)
			oc, _ := json.Marshal(r.OutputConfig)
			require.Equal(t, tt.want, string(th)+" "+string(oc))
		})
	}
}

func quirk(info model.Info, key, value string) model.Info {
	quirks := map[string]string{key: value}
	for k, v := range info.Quirks {
		if _, set := quirks[k]; !set {
			quirks[k] = v
		}
	}
	info.Quirks = quirks
	return info
}

func TestEncode_Nothing(t *testing.T) {
	t.Parallel()
	_, err := encode(newRequest(adaptive, nil), nil)
	require.Error(t, err)
}

// A tool change, or a baseline in the middle, breaks the prefix; thinking that
// was bound to it is left out, thinking after it stays.
func TestEncode_ThinkingIsBoundToItsPrefix(t *testing.T) {
	t.Parallel()
	for name, msg := range map[string]model.Message{
		"tool added":   {Role: model.RoleSystem, ToolsAdded: []model.Tool{listTool}},
		"tool removed": {Role: model.RoleSystem, ToolsRemoved: []string{"read"}},
		"baseline":     baseline("Two.", readTool),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			messages := []model.Message{
				baseline("One.", readTool), user(model.Text("a")), assistant(adaptive, think("old", "S1"), model.Text("b")),
				user(model.Text("c")), msg, assistant(adaptive, think("new", "S2"), model.Text("d")), user(model.Text("e")),
			}
			body, err := encode(newRequest(adaptive, messages), messages)
			require.NoError(t, err)
			requireAccepted(t, body)
			require.NotContains(t, string(body), "S1")
			require.Contains(t, string(body), "S2")
			require.Equal(t, name == "baseline", strings.Contains(string(body), "Two."))
			require.Equal(t, name != "baseline", strings.Contains(string(body), "One."))
		})
	}
}

// System changes wait for a user message and are said at last by the user,
// because the API takes them only behind one.
func TestEncode_SystemPlacement(t *testing.T) {
	t.Parallel()
	cwd := change(model.Section{Key: "cwd", Text: "/tmp"})
	tests := []struct {
		name     string
		messages []model.Message
		want     string
	}{
		{"behind the user message", []model.Message{user(model.Text("a")), cwd}, "user system"},
		{"behind results", []model.Message{user(model.Text("a")), assistant(adaptive, call("t", "read", `{}`)), result("t", model.Text("r")), cwd}, "user assistant user system"},
		{"before a later user message", []model.Message{user(model.Text("a")), cwd, user(model.Text("b"))}, "user system"},
		{"several are one", []model.Message{user(model.Text("a")), cwd, cwd, assistant(adaptive, model.Text("b")), user(model.Text("c"))}, "user system assistant user"},
		{"without a user message before it", []model.Message{user(model.Text("a")), assistant(adaptive, model.Text("b")), cwd, user(model.Text("c"))}, "user assistant user system"},
		{"without a user message at all", []model.Message{user(model.Text("a")), assistant(adaptive, model.Text("b")), cwd}, "user assistant user"},
		{"at the start it is the prompt", []model.Message{cwd, user(model.Text("a"))}, "user"},
		{"only tools", []model.Message{user(model.Text("a")), {Role: model.RoleSystem, ToolsAdded: []model.Tool{listTool}}}, "user"},
		{"a transcript that begins with an answer", []model.Message{assistant(adaptive, model.Text("b")), user(model.Text("c"))}, "user assistant user"},
		{"an empty user message", []model.Message{user(model.Text(" ")), assistant(adaptive, model.Text("b")), user()}, "user assistant user"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			body, err := encode(newRequest(adaptive, tt.messages), tt.messages)
			require.NoError(t, err)
			var roles []string
			for _, m := range requireAccepted(t, body).Messages {
				roles = append(roles, m.Role)
			}
			require.Equal(t, tt.want, strings.Join(roles, " "))
		})
	}
}

func TestEncode_Cache(t *testing.T) {
	t.Parallel()
	var many []model.Message
	many = append(many, baseline("x", readTool), user(model.Text("a")))
	var calls []model.Block
	for i := range 12 {
		calls = append(calls, call(fmt.Sprintf("t%d", i), "read", `{}`))
	}
	many = append(many, assistant(adaptive, calls...))
	for i := range 12 {
		many = append(many, result(fmt.Sprintf("t%d", i), model.Text("r")))
	}
	few := []model.Message{baseline("x", readTool), user(model.Text("a")), assistant(adaptive, model.Text("b")), user(model.Text("c"))}
	count := func(info model.Info, messages []model.Message) (top bool, marked []int) {
		body, err := encode(newRequest(info, messages), messages)
		require.NoError(t, err)
		r := requireAccepted(t, body)
		for i, m := range r.Messages {
			for j, c := range m.Content {
				if c.CacheControl != nil {
					require.Equal(t, len(m.Content)-1, j)
					marked = append(marked, i)
				}
			}
		}
		if info.Quirks["cache"] != "off" {
			require.NotNil(t, r.System[0].CacheControl)
		}
		return r.CacheControl != nil, marked
	}
	top, marked := count(adaptive, few)
	require.True(t, top)
	require.Empty(t, marked)
	top, marked = count(adaptive, many)
	require.True(t, top)
	require.Equal(t, []int{0}, marked, "where the request before ended, too far away to be found")
	top, marked = count(quirk(adaptive, "cache", "blocks"), few)
	require.False(t, top)
	require.Equal(t, []int{0, 2}, marked)
	top, marked = count(quirk(adaptive, "cache", "off"), few)
	require.False(t, top)
	require.Empty(t, marked)

	onlyTools := []model.Message{{Role: model.RoleSystem, Baseline: true, ToolsAdded: []model.Tool{readTool, listTool}}, user(model.Text("a"))}
	body, err := encode(newRequest(adaptive, onlyTools), onlyTools)
	require.NoError(t, err)
	r := requireAccepted(t, body)
	require.Empty(t, r.System)
	require.Nil(t, r.Tools[0].CacheControl)
	require.NotNil(t, r.Tools[1].CacheControl)
}

// The request must not be changed by sending it (Provider).
func TestEncode_LeavesTheRequestAlone(t *testing.T) {
	t.Parallel()
	messages := []model.Message{baseline("x", readTool), user(model.Text("a"), png), assistant(adaptive, call("a|b", "read", `{"a":"\ud800"}`)), result("a|b", model.Text("r"))}
	var before []model.Message
	for i := range messages {
		before = append(before, messages[i].Clone())
	}
	_, err := encode(newRequest(adaptive, messages), messages)
	require.NoError(t, err)
	require.Equal(t, before, messages)
}

// Two turns over the wire: what the second request repeats of the first is the
// same, byte by byte, the model's own answer included (E11).
func TestProvider_SecondTurnRepeatsTheFirst(t *testing.T) {
	t.Parallel()
	first := say(msgStart,
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"so <\u00e9> \ud83d\ude00"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"S/+="}}`, blockStop,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"toolu_1","name":"read","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"z\": 1.0, \"a\": \"<>\"}"}}`,
		`{"type":"content_block_stop","index":1}`, endTools, msgStop)
	for _, info := range []model.Info{adaptive, budget} {
		srv := serve(t, first, say(msgStart, textStart, textHello, blockStop, endTurn, msgStop), say(msgStart, endTurn, msgStop))
		p := srv.provider(0)
		messages := []model.Message{baseline("You.", readTool, listTool), user(model.Text("look"))}
		for range 2 {
			req := newRequest(info, messages)
			req.ThinkingLevel = "low"
			resp, err := p.Stream(t.Context(), req, func(model.Delta) {})
			require.NoError(t, err)
			// The engine stores the message as JSON in between.
			stored, err := json.Marshal(resp.Message)
			require.NoError(t, err)
			var back model.Message
			require.NoError(t, json.Unmarshal(stored, &back))
			back.Provider, back.Model, back.Timestamp = info.Provider, info.ID, time.Unix(1, 0)
			messages = append(messages, back)
			if len(messages) == 3 {
				messages = append(messages, result("toolu_1", model.Text("content")))
			} else {
				messages = append(messages, user(model.Text("thanks")))
			}
		}
		req := newRequest(info, messages)
		req.ThinkingLevel = "low"
		_, err := p.Stream(t.Context(), req, func(model.Delta) {})
		require.NoError(t, err)
		for n := range 3 {
			requireAccepted(t, srv.body(n))
		}
		requirePrefix(t, srv.body(0), srv.body(1))
		requirePrefix(t, srv.body(1), srv.body(2))
		require.Contains(t, string(srv.body(2)), `"thinking":"so <é> 😀","signature":"S/+="`)
		require.Contains(t, string(srv.body(2)), `"input":{"z":1.0,"a":"<>"}`)
	}
}

// Whatever a well-formed transcript holds, a strict server accepts the request
// (E2.8, E13), and appending to it keeps the prefix.
func TestEncode_AlwaysAccepted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SampledFrom([]string{"", " \n", "hi", "<&>\u2028", "\xff", "long text"})
		ids := rapid.SampledFrom([]string{"a", "a|", "a/", "toolu_1", "", "ä", strings.Repeat("x", 200)})
		infos := []model.Info{adaptive, budget, {Provider: "other", ID: "m"}}
		var messages []model.Message
		block := func() model.Block {
			if rapid.IntRange(0, 5).Draw(t, "image") == 0 {
				return png
			}
			return model.Text(texts.Draw(t, "text"))
		}
		for range rapid.IntRange(1, 12).Draw(t, "messages") {
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				messages = append(messages, baseline("Prompt.", readTool))
			case 1:
				messages = append(messages, change(model.Section{Key: "k", Text: texts.Draw(t, "section")}))
			case 2:
				messages = append(messages, user(block(), block()))
			default:
				maker := rapid.SampledFrom(infos).Draw(t, "maker")
				var blocks []model.Block
				if rapid.Bool().Draw(t, "thinks") {
					blocks = append(blocks, think(texts.Draw(t, "thinking"), rapid.SampledFrom([]string{"", "S"}).Draw(t, "signature")))
				}
				blocks = append(blocks, model.Text(texts.Draw(t, "said")))
				var results []model.Message
				used := map[string]bool{}
				for range rapid.IntRange(0, 3).Draw(t, "calls") {
					id := fmt.Sprintf("%s%d", ids.Draw(t, "id"), len(messages))
					if used[id] {
						continue
					}
					used[id] = true
					blocks = append(blocks, call(id, rapid.SampledFrom([]string{"read", "x.y", ""}).Draw(t, "name"), `{"a":"\udead"}`))
					results = append(results, result(id, block()))
				}
				messages = append(append(messages, assistant(maker, blocks...)), results...)
			}
		}
		messages = append(messages, user(model.Text("go on")))
		req := newRequest(rapid.SampledFrom(infos).Draw(t, "model"), messages)
		req.ThinkingLevel = rapid.SampledFrom([]model.ThinkingLevel{"off", "low", "high"}).Draw(t, "level")
		req.DropThinking = rapid.Bool().Draw(t, "drop")
		body, err := encode(req, messages)
		require.NoError(t, err)
		requireAccepted(t, body)

		again, err := encode(req, messages)
		require.NoError(t, err)
		require.Equal(t, body, again, "the same transcript gives the same bytes")
	})
}

func TestQuirks(t *testing.T) {
	t.Parallel()
	require.NoError(t, CheckQuirks(adaptive.Quirks))
	require.NoError(t, CheckQuirks(nil))
	require.ErrorContains(t, CheckQuirks(map[string]string{"thinkin": "budget"}), `quirk "thinkin" is unknown`)
	require.ErrorContains(t, CheckQuirks(map[string]string{"cache": "yes"}), `quirk cache: "yes" is not one of blocks, auto, off`)
	_, err := encode(newRequest(quirk(adaptive, "cache", "yes"), nil), ask("hi"))
	require.ErrorContains(t, err, "quirk cache")
	_, err = encode(newRequest(quirk(adaptive, "of_another_adapter", "x"), nil), ask("hi"))
	require.NoError(t, err)
}
