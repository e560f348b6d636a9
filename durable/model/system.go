package model

import (
	"slices"
	"strings"
)

// System is what the system messages of a transcript amount to.
type System struct {
	Sections []Section
	Tools    []Tool
}

// Apply changes s by one system message: a baseline replaces everything, any
// other sets sections (an empty text removes one) and adds and removes tools.
// It never modifies memory that s shared before the call.
func (s *System) Apply(m *Message) {
	if m.Baseline {
		s.Sections = slices.Clone(m.Sections)
		s.Tools = slices.Clone(m.ToolsAdded)
		return
	}
	if len(m.Sections) > 0 {
		s.Sections = slices.Clone(s.Sections)
	}
	for _, sec := range m.Sections {
		i := slices.IndexFunc(s.Sections, func(o Section) bool { return o.Key == sec.Key })
		switch {
		case sec.Text == "" && i >= 0:
			s.Sections = slices.Delete(s.Sections, i, i+1)
		case sec.Text == "":
		case i >= 0:
			s.Sections[i] = sec
		default:
			s.Sections = append(s.Sections, sec)
		}
	}
	if len(m.ToolsRemoved)+len(m.ToolsAdded) > 0 {
		s.Tools = slices.Clone(s.Tools)
	}
	for _, name := range m.ToolsRemoved {
		s.Tools = slices.DeleteFunc(s.Tools, func(t Tool) bool { return t.Name == name })
	}
	for _, t := range m.ToolsAdded {
		if i := slices.IndexFunc(s.Tools, func(o Tool) bool { return o.Name == t.Name }); i >= 0 {
			s.Tools[i] = t
		} else {
			s.Tools = append(s.Tools, t)
		}
	}
}

// Prompt renders the sections: each as <key>, its text, </key> on lines of
// their own, an untagged one as its text alone, separated by a blank line.
func (s *System) Prompt() string {
	var b strings.Builder
	for _, sec := range s.Sections {
		if b.Len() > 0 {
			b.WriteString("\n\n")
		}
		b.WriteString(sec.Render())
	}
	return b.String()
}

// Render returns the section as the model sees it.
func (s *Section) Render() string {
	if s.Untagged {
		return s.Text
	}
	return "<" + s.Key + ">\n" + s.Text + "\n</" + s.Key + ">"
}

// FoldSystem splits a transcript into the system state after its last system
// message and the messages of the other roles, in order.
func FoldSystem(messages []Message) (System, []Message) {
	var sys System
	rest := make([]Message, 0, len(messages))
	for i := range messages {
		if messages[i].Role == RoleSystem {
			sys.Apply(&messages[i])
			continue
		}
		rest = append(rest, messages[i])
	}
	return sys, rest
}
