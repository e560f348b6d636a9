package transcript

import (
	"slices"
	"strconv"

	"github.com/wp-durable/wp-durable/durable/model"
)

// ForModel returns the messages of [Context.Messages] as one model may be sent
// them. Thinking goes only to the model that made it, and only with a
// signature or raw block; raw blocks and unusual call ids do not go to another
// model either. Where the model takes no images, a text stands for each. A
// message with nothing left is dropped, and a request that would not end in
// input gets [Continued]: the context keeps it there when the answer has come.
//
// It returns the same slice when nothing changes, and never modifies it.
func ForModel(messages []model.Message, ref model.Ref, images bool) []model.Message {
	f := filter{messages: messages, ref: ref, images: images}
	out := messages
	copied := false
	for i := range messages {
		m, changed := f.message(messages[i])
		empty := len(m.Content) == 0 && m.Role != model.RoleSystem
		if !copied && (changed || empty) {
			copied = true
			out = append(make([]model.Message, 0, len(messages)+1), messages[:i]...)
		}
		if copied && !empty {
			out = append(out, m)
		}
	}
	return ending(out)
}

// ending adds [Continued] to a request that does not end in input.
func ending(out []model.Message) []model.Message {
	var last model.Role
	for _, m := range slices.Backward(out) {
		if m.Role != model.RoleSystem {
			last = m.Role
			break
		}
	}
	if needsUser(last) {
		out = append(slices.Clip(out), continued)
	}
	return out
}

// filter is one run of ForModel.
type filter struct {
	messages []model.Message
	ref      model.Ref
	images   bool
	ids      map[string]string // call ids that were changed
	taken    map[string]bool   // every id there is, once one has to be changed
}

func (f *filter) message(m model.Message) (_ model.Message, changed bool) {
	before := m.Content
	switch m.Role {
	case model.RoleAssistant:
		own := m.Provider == f.ref.Provider && m.Model == f.ref.ModelID
		m.Content = cleanBlocks(m.Content, func(b *model.Block) (bool, bool) { return f.answer(b, own) })
	case model.RoleUser, model.RoleToolResult:
		if id, ok := f.ids[m.ToolCallID]; ok && m.Role == model.RoleToolResult {
			m.ToolCallID, changed = id, true
		}
		if !f.images {
			m.Content = cleanBlocks(m.Content, withoutImage)
		}
	}
	return m, changed || len(before) != len(m.Content) || len(before) > 0 && &before[0] != &m.Content[0]
}

func (f *filter) answer(b *model.Block, own bool) (changed, keep bool) {
	switch {
	case b.Type == model.BlockThinking:
		return false, own && (b.Signature != "" || b.Raw != "")
	case own:
		return false, true
	}
	changed = b.Raw != ""
	b.Raw = ""
	if b.Type == model.BlockToolCall && cleanName(b.ID) != b.ID {
		b.ID = f.rename(b.ID)
		changed = true
	}
	return changed, true
}

// rename gives a call of another model an id that any model takes.
func (f *filter) rename(id string) string {
	if f.ids == nil {
		f.ids, f.taken = map[string]string{}, map[string]bool{}
		for i := range f.messages {
			for _, b := range f.messages[i].Content {
				if b.Type == model.BlockToolCall {
					f.taken[b.ID] = true
				}
			}
		}
	}
	next := hashedID(id)
	for n := 2; f.taken[next]; n++ {
		next = hashedID(id) + "_" + strconv.Itoa(n)
	}
	f.ids[id], f.taken[next] = next, true
	return next
}

func withoutImage(b *model.Block) (changed, keep bool) {
	if b.Type != model.BlockImage {
		return false, true
	}
	*b = model.Text(ImageModel)
	return true, true
}
