package transcript

import (
	"slices"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Texts that stand in for what is not there. They are constant, since what a
// request sent must be sent again.
const (
	// MissingResult is the result of a call that has none.
	MissingResult = "The result of this tool call is missing because the call did not finish."
	// NoOutput is the content of a result that has none.
	NoOutput = "(no output)"
	// Continued is the user message before an assistant message that would
	// stand first or directly behind another one.
	Continued = "(The conversation continues.)"
	// ImageType stands for an image of a type that no model takes.
	ImageType = "(An image was left out: its type is not supported.)"
	// ImageModel stands for an image when the model takes none.
	ImageModel = "(An image was left out: this model does not take images.)"
)

// CleanMessage returns m as a provider accepts it by itself, and false when
// nothing of it is left: valid UTF-8 everywhere, no blank text, only the
// blocks its role may have, names of tools in [a-zA-Z0-9_-], arguments that
// are a JSON object. Thinking that would have to be changed is dropped, and so
// is thinking with nothing behind it, or with neither signature nor raw block.
// It does not modify m, and shares with it what needs no change.
//
// In a system message blank sections and nameless tools are dropped, and of
// two with the same key the later stays, at the place of the first. Only an
// empty change is nothing; an empty baseline says that there is no prompt.
func CleanMessage(m model.Message) (model.Message, bool) {
	switch m.Role {
	case model.RoleSystem:
		m.Content = nil
		cleanSystem(&m)
		return m, m.Baseline || len(m.Sections)+len(m.ToolsAdded)+len(m.ToolsRemoved) > 0
	case model.RoleUser:
		m.Content = cleanBlocks(m.Content, cleanInput)
	case model.RoleToolResult:
		m.ToolCallID, m.ToolName = CleanText(m.ToolCallID), cleanName(m.ToolName)
		m.Content = cleanBlocks(m.Content, cleanInput)
		if len(m.Content) == 0 {
			m.Content = noOutput
		}
	case model.RoleAssistant:
		m.Content = cleanBlocks(m.Content, cleanAnswer)
		n := len(m.Content)
		for n > 0 && m.Content[n-1].Type == model.BlockThinking {
			n--
		}
		m.Content = m.Content[:n:n]
	default:
		return m, false
	}
	return m, len(m.Content) > 0
}

var noOutput = []model.Block{model.Text(NoOutput)}

// CleanText returns s with each run of bytes that are not UTF-8 replaced by
// one U+FFFD, s itself when there are none.
func CleanText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func cleanMessages(messages []model.Message) []model.Message {
	out := make([]model.Message, 0, len(messages))
	for _, m := range messages {
		if m, ok := CleanMessage(m); ok {
			out = append(out, m)
		}
	}
	return out
}

// cleanBlocks applies clean to each block; the second result of clean says
// whether the block stays. It returns blocks itself when nothing changes.
func cleanBlocks(blocks []model.Block, clean func(*model.Block) (changed, keep bool)) []model.Block {
	var out []model.Block
	copied := false
	for i := range blocks {
		b := blocks[i]
		changed, keep := clean(&b)
		if (changed || !keep) && !copied {
			copied = true
			out = append(make([]model.Block, 0, len(blocks)), blocks[:i]...)
		}
		if copied && keep {
			out = append(out, b)
		}
	}
	if !copied {
		return blocks
	}
	return out
}

// cleanInput cleans a block of a user message or a tool result.
func cleanInput(b *model.Block) (changed, keep bool) {
	switch b.Type {
	case model.BlockText:
		if strings.TrimSpace(b.Text) == "" {
			return false, false
		}
		text := CleanText(b.Text)
		changed = text != b.Text || b.Raw != ""
		b.Text, b.Raw = text, ""
		return changed, true
	case model.BlockImage:
		if len(b.Data) == 0 {
			return false, false
		}
		switch b.MimeType {
		case "image/png", "image/jpeg", "image/gif", "image/webp":
			changed = b.Raw != ""
			b.Raw = ""
			return changed, true
		}
		*b = model.Text(ImageType)
		return true, true
	}
	return false, false
}

// cleanAnswer cleans a block of an assistant message.
func cleanAnswer(b *model.Block) (changed, keep bool) {
	rawBad := b.Raw != "" && !cleanJSON(b.Raw)
	switch b.Type {
	case model.BlockText:
		if strings.TrimSpace(b.Text) == "" {
			return false, false
		}
		text := CleanText(b.Text)
		changed = rawBad || text != b.Text
		b.Text = text
	case model.BlockThinking:
		keep = !rawBad && (b.Signature != "" || b.Raw != "") &&
			CleanText(b.Thinking) == b.Thinking && CleanText(b.Signature) == b.Signature
		return false, keep
	case model.BlockToolCall:
		changed = cleanCall(b) || rawBad
	default:
		return false, false
	}
	if changed {
		b.Raw = ""
	}
	return changed, true
}

// cleanName returns a tool name that every provider accepts in a call. Names
// of real tools are such; a model can write others.
func cleanName(name string) string {
	const most = 64
	ok := name != "" && len(name) <= most
	for i := 0; ok && i < len(name); i++ {
		ok = nameByte(name[i])
	}
	if ok {
		return name
	}
	b := make([]byte, 0, most)
	for i := 0; i < len(name) && len(b) < most; i++ {
		if nameByte(name[i]) {
			b = append(b, name[i])
		} else {
			b = append(b, '_')
		}
	}
	if len(b) == 0 {
		return "unknown_tool"
	}
	return string(b)
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

func cleanSystem(m *model.Message) {
	var sections []model.Section
	for _, s := range m.Sections {
		s.Key, s.Text = CleanText(s.Key), CleanText(s.Text)
		if strings.TrimSpace(s.Text) == "" {
			s.Text = ""
			if m.Baseline {
				continue
			}
		}
		sections = put(sections, s, func(o model.Section) bool { return o.Key == s.Key })
	}
	m.Sections = sections
	var added []model.Tool
	for _, t := range m.ToolsAdded {
		if t.Name == "" {
			continue
		}
		t.Name, t.Description = cleanName(t.Name), CleanText(t.Description)
		t.Parameters = cleanObject(t.Parameters, emptySchema)
		added = put(added, t, func(o model.Tool) bool { return o.Name == t.Name })
	}
	m.ToolsAdded = added
	var removed []string
	if !m.Baseline {
		for _, name := range m.ToolsRemoved {
			if name != "" {
				removed = append(removed, cleanName(name))
			}
		}
	}
	m.ToolsRemoved = removed
}

// put replaces the first element that is the same, or appends v.
func put[T any](s []T, v T, same func(T) bool) []T {
	if i := slices.IndexFunc(s, same); i >= 0 {
		s[i] = v
		return s
	}
	return append(s, v)
}
