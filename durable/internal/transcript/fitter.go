package transcript

import (
	"slices"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Fitter is [ForModel] for a transcript that grows: it fits again only what
// changed since its last call. The zero Fitter is ready. It must not be used by
// several goroutines at once.
type Fitter struct {
	ref    model.Ref
	images bool
	src    []model.Message // what was fitted
	out    []model.Message // what it became
	ends   []int           // ends[i] is the length of out behind src[i]
}

// Fit returns what ForModel returns for the messages, which must be those of a
// [Context]: messages that were there at the last call share its memory.
func (f *Fitter) Fit(messages []model.Message, ref model.Ref, images bool) []model.Message {
	if ref != f.ref || images != f.images {
		*f = Fitter{ref: ref, images: images}
	}
	same := 0
	for same < min(len(messages), len(f.src)) && sameMessage(&messages[same], &f.src[same]) {
		same++
	}
	if same < len(f.src) {
		// Slices that were handed out keep what they show.
		f.ends = f.ends[:same]
		n := 0
		if same > 0 {
			n = f.ends[same-1]
		}
		f.out = slices.Clone(f.out[:n])
	}
	one := filter{messages: messages, ref: ref, images: images}
	for i := same; i < len(messages); i++ {
		m, _ := one.message(messages[i])
		if len(m.Content) > 0 || m.Role == model.RoleSystem {
			f.out = append(f.out, m)
		}
		f.ends = append(f.ends, len(f.out))
	}
	f.src = messages
	if one.ids != nil {
		// Ids that are told apart over the whole request are fitted as a whole.
		*f = Fitter{}
		return ForModel(messages, ref, images)
	}
	return ending(slices.Clip(f.out))
}

// sameMessage reports whether two messages of a context are one in memory.
func sameMessage(a, b *model.Message) bool {
	return a.Role == b.Role && a.ToolCallID == b.ToolCallID && a.Baseline == b.Baseline && a.StopReason == b.StopReason &&
		sameMemory(a.Content, b.Content) && sameMemory(a.Sections, b.Sections) &&
		sameMemory(a.ToolsAdded, b.ToolsAdded) && sameMemory(a.ToolsRemoved, b.ToolsRemoved)
}

func sameMemory[T any](a, b []T) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
