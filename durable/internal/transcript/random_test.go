package transcript

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable/model"
)

// checkRequest is a strict provider: it refuses what any of them would. It
// shares no code with the package, so that one is the judge of the other.
func checkRequest(t require.TestingT, messages []model.Message) {
	fail := func(i int, what string) {
		require.Fail(t, what, "message %d of:\n%s", i, strings.Join(show(messages), "\n"))
	}
	text := func(i int, s string) {
		if !utf8.ValidString(s) {
			fail(i, "text is not UTF-8")
		}
	}
	object := func(i int, raw []byte) {
		var v map[string]any
		if json.Unmarshal(raw, &v) != nil || v == nil || !utf8.Valid(raw) {
			fail(i, "not a JSON object")
		}
		// encoding/json turns an escaped lone surrogate into U+FFFD.
		plain := strings.ReplaceAll(strings.ReplaceAll(string(raw), "\uFFFD", ""), `\ufffd`, "")
		v = nil
		if json.Unmarshal([]byte(plain), &v) == nil && strings.Contains(mustJSON(v), "\uFFFD") {
			fail(i, "lone surrogate")
		}
	}
	seen := map[string]bool{}
	var expected []model.Block // calls whose results must come next
	var last model.Role
	for i, m := range messages {
		if len(expected) > 0 && m.Role != model.RoleToolResult {
			fail(i, "result expected")
		}
		if m.Role != model.RoleSystem {
			if len(m.Content) == 0 {
				fail(i, "empty message")
			}
			if m.Role == model.RoleAssistant && last != model.RoleUser && last != model.RoleToolResult {
				fail(i, "answer to nothing")
			}
			last = m.Role
		}
		for j, b := range m.Content {
			if b.Raw != "" && (m.Role != model.RoleAssistant || !utf8.ValidString(b.Raw) || !json.Valid([]byte(b.Raw))) {
				fail(i, "raw block")
			}
			switch b.Type {
			case model.BlockText:
				text(i, b.Text)
				if strings.TrimSpace(b.Text) == "" {
					fail(i, "blank text")
				}
			case model.BlockImage:
				if m.Role == model.RoleAssistant || len(b.Data) == 0 || !strings.Contains("image/png image/jpeg image/gif image/webp", b.MimeType) {
					fail(i, "image")
				}
			case model.BlockThinking:
				text(i, b.Thinking)
				if m.Role != model.RoleAssistant || j == len(m.Content)-1 || b.Signature == "" && b.Raw == "" {
					fail(i, "thinking")
				}
			case model.BlockToolCall:
				text(i, b.ID)
				if m.Role != model.RoleAssistant || b.ID == "" || seen[b.ID] {
					fail(i, "call id")
				}
				if b.Name == "" || len(b.Name) > 64 || strings.Trim(b.Name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
					fail(i, "tool name")
				}
				seen[b.ID] = true
				object(i, b.Arguments)
				if b.RawArguments != "" {
					object(i, []byte(b.RawArguments))
				}
				expected = append(expected, b)
			default:
				fail(i, "block type")
			}
		}
		switch m.Role {
		case model.RoleUser:
		case model.RoleAssistant:
			if m.StopReason == model.StopAborted || m.StopReason == model.StopError || m.StopReason == model.StopDeferred {
				fail(i, "failed answer")
			}
		case model.RoleToolResult:
			if len(expected) == 0 || expected[0].ID != m.ToolCallID || expected[0].Name != m.ToolName {
				fail(i, "result out of order")
			}
			expected = expected[1:]
		case model.RoleSystem:
			for _, s := range m.Sections {
				text(i, s.Key+s.Text)
			}
			for _, tool := range m.ToolsAdded {
				text(i, tool.Name+tool.Description)
				object(i, tool.Parameters)
			}
		default:
			fail(i, "role")
		}
	}
	if len(expected) > 0 {
		fail(len(messages), "result missing")
	}
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// source draws hostile histories.
type source struct{ n func(int) int }

func pick[T any](s source, of ...T) T { return of[s.n(len(of))] }

func (s source) text() string {
	return pick(s, "a", "b", "", " ", "\n\t", "x\xff", "\xed\xa0\x80", "long text with words", "\u00a0")
}

func (s source) id() string {
	return pick(s, "1", "1", "2", "3", "1_2", "", " ", "a b", "é", "x\xff", strings.Repeat("i", 70), strings.Repeat("i", 300))
}

func (s source) raw() string {
	return pick(s, "", "", `{"a":1}`, `{`, `"\ud800"`, "\"\xff\"")
}

func (s source) json() string {
	return pick(s, `{}`, `{"a":1}`, `{"a": 1}`, ``, `null`, `[]`, `{"a":`, "{\"\xff\":1}", `{"a":"\udc00\ud83d\ude00\\ud800"}`, ` {"b":2} `)
}

func (s source) block() model.Block {
	switch s.n(12) {
	case 0, 1, 2:
		return model.Block{Type: model.BlockText, Text: s.text(), Raw: s.raw()}
	case 3, 4:
		return model.Block{Type: model.BlockThinking, Thinking: s.text(), Signature: pick(s, "", "s", "\xff"), Raw: s.raw()}
	case 5:
		return model.Block{Type: model.BlockImage, MimeType: pick(s, "image/png", "image/jpeg", "image/tiff", ""), Data: []byte(pick(s, "", "d"))}
	case 6:
		return model.Block{Type: "odd"}
	}
	b := model.Block{Type: model.BlockToolCall, ID: s.id(), Name: pick(s, "run", "", "a.b", "x\xff"), Raw: s.raw()}
	if s.n(2) == 0 {
		b.SetArguments(s.json())
	} else {
		b.Arguments, b.RawArguments = json.RawMessage(s.json()), s.json()
	}
	return b
}

func (s source) message() model.Message {
	m := model.Message{Role: pick(s, model.RoleUser, model.RoleAssistant, model.RoleAssistant, model.RoleAssistant,
		model.RoleToolResult, model.RoleToolResult, model.RoleToolResult, model.RoleSystem, "odd")}
	for range s.n(4) {
		m.Content = append(m.Content, s.block())
	}
	switch m.Role {
	case model.RoleAssistant:
		m.Provider, m.Model = ours.Provider, pick(s, ours.ModelID, theirs.ModelID)
		m.StopReason = pick(s, model.StopEnd, model.StopToolUse, model.StopLength, "", model.StopAborted, model.StopError, model.StopDeferred)
	case model.RoleToolResult:
		m.ToolCallID, m.ToolName = s.id(), s.text()
	case model.RoleSystem:
		m.Baseline = s.n(3) == 0
		for range s.n(3) {
			m.Sections = append(m.Sections, model.Section{Key: pick(s, "k", "l", "\xff"), Text: s.text()})
		}
		for range s.n(2) {
			m.ToolsAdded = append(m.ToolsAdded, model.Tool{Name: pick(s, "run", "", "a b"), Description: s.text(), Parameters: json.RawMessage(s.json())})
		}
		if s.n(3) == 0 {
			m.ToolsRemoved = []string{pick(s, "run", "", "\xff")}
		}
	}
	return m
}

// item draws the next item of a history whose last id was last.
func (s source) item(last int64) Item {
	it := Item{ID: last + 1 + int64(s.n(3))}
	for range pick(s, 0, 1, 1, 1, 1, 2, 4) {
		it.Messages = append(it.Messages, s.message())
	}
	switch s.n(14) {
	case 0:
		it.Head = 1 + int64(s.n(int(it.ID)+1))
	case 1, 2:
		for range 1 + s.n(2) {
			ed := Edit{Target: int64(s.n(int(it.ID) + 2)), Omit: s.n(2) == 0}
			for range s.n(3) {
				ed.Messages = append(ed.Messages, s.message())
			}
			it.Edits = append(it.Edits, ed)
		}
	}
	return it
}

func (it Item) onlyAppends() bool {
	if it.Head != 0 || len(it.Edits) > 0 {
		return false
	}
	for _, m := range it.Messages {
		if m.Role == model.RoleToolResult {
			return false
		}
	}
	return true
}

// checkHistory plays a random history and holds a context to its promises.
func checkHistory(t require.TestingT, s source) {
	type kept struct {
		messages []model.Message
		was      string
	}
	type line struct {
		c       *Context
		all     []Item
		last    int64
		before  []string
		derived bool // before was taken from the item before
	}
	lines := []*line{{c: New()}}
	var returned []kept
	for range 4 + s.n(20) {
		l := lines[s.n(len(lines))]
		if s.n(8) == 0 && len(lines) < 4 {
			lines = append(lines, &line{c: l.c.Clone(), all: l.all[:len(l.all):len(l.all)], last: l.last, before: l.before, derived: l.derived})
		}
		it := s.item(l.last)
		l.last = it.ID
		l.all = append(l.all, it)
		given := mustShow(it)
		l.c.Append(it)
		wasDerived := l.derived
		l.derived = s.n(3) > 0
		if !l.derived {
			continue
		}
		got := l.c.Messages()
		now := full(got)
		checkRequest(t, got)
		scratch := contextOf(l.all)
		require.Equal(t, full(scratch.Messages()), now, "incremental is from scratch")
		require.Equal(t, scratch.System(), l.c.System())
		require.Equal(t, scratch.HasBaseline(), l.c.HasBaseline())
		require.Equal(t, scratch.OpenCalls(), l.c.OpenCalls())
		folded, _ := model.FoldSystem(got)
		known := l.c.System()
		require.Equal(t, known.Prompt(), folded.Prompt(), "what is sent is what is known")
		require.ElementsMatch(t, known.Tools, folded.Tools)
		if wasDerived && it.onlyAppends() {
			require.LessOrEqual(t, len(l.before), len(now))
			require.Equal(t, l.before, now[:len(l.before)], "appending only appends (E11)")
		}
		require.Equal(t, given, mustShow(it), "what was given is not written to")
		l.before = now
		returned = append(returned, kept{got, strings.Join(now, "\n")})
		for _, ref := range []model.Ref{ours, theirs} {
			sent := ForModel(got, ref, s.n(2) == 0)
			checkRequest(t, sent)
			require.Contains(t, []model.Role{model.RoleUser, model.RoleToolResult}, lastRole(sent))
		}
	}
	for _, r := range returned {
		require.Equal(t, r.was, strings.Join(full(r.messages), "\n"), "what was returned stays")
	}
}

func lastRole(messages []model.Message) (last model.Role) {
	for _, m := range messages {
		if m.Role != model.RoleSystem {
			last = m.Role
		}
	}
	return last
}

// full writes every field of the messages, a line each.
func full(messages []model.Message) []string {
	lines := make([]string, 0, len(messages))
	for _, m := range messages {
		lines = append(lines, mustJSON(m))
	}
	return lines
}

func mustShow(it Item) string {
	all := show(it.Messages)
	for _, ed := range it.Edits {
		all = append(all, show(ed.Messages)...)
	}
	return strings.Join(all, "\n")
}

// TestContext_HostileHistories: whatever is stored, the next request is well
// formed (E2.8, E13), and deriving it step by step is deriving it anew.
func TestContext_HostileHistories(t *testing.T) {
	t.Parallel()
	histories := 1000
	if testing.Short() {
		histories = 200
	}
	for seed := range uint64(histories) {
		r := rand.New(rand.NewPCG(seed, 13))
		checkHistory(seeded{t, seed}, source{r.IntN})
	}
}

// seeded names the seed of the history that failed.
type seeded struct {
	*testing.T
	seed uint64
}

func (s seeded) Errorf(format string, args ...any) {
	s.Helper()
	s.T.Errorf("seed %d: "+format, append([]any{s.seed}, args...)...)
}

// TestContext_RapidHistories finds the smallest history that breaks a promise.
func TestContext_RapidHistories(t *testing.T) {
	t.Parallel()
	rapid.Check(t, rapidHistory)
}

func FuzzContext(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(rapidHistory))
}

func rapidHistory(t *rapid.T) {
	checkHistory(t, source{func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }})
}
