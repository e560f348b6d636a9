package durable

import (
	"encoding/json"
	"slices"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Agent is what a conversation runs with. As a stored setting its zero fields
// follow the host's defaults, [Options].Agent; as the result of
// [Conversation.Agent] it is complete.
type Agent struct {
	Model         *model.Ref          `json:"model,omitempty"`
	ThinkingLevel model.ThinkingLevel `json:"thinkingLevel,omitempty"`
	// Extensions selects among the installed ones; the host's default, when
	// that is unset too, is all of them.
	Extensions *Choice `json:"extensions,omitempty"`
	// Tools filters the tools of the selected extensions; unset keeps all.
	// Add is not used.
	Tools        *Choice `json:"tools,omitempty"`
	Instructions string  `json:"instructions,omitempty"`
	Cwd          string  `json:"cwd,omitempty"`
	OutputTokens int     `json:"outputTokens,omitempty"` // 0 means 32000
}

// Choice is a list of names, or a change to the default list. In JSON it is an
// array, or an object {add, remove}.
type Choice struct {
	// List, when Changes is false, is the whole choice; it may be empty.
	List []string
	// Changes makes Add and Remove count instead of List.
	Changes     bool
	Add, Remove []string
}

// List returns the choice of exactly these names.
func List(names ...string) *Choice { return &Choice{List: names} }

// Apply returns the chosen names, given the default list.
func (c *Choice) Apply(def []string) []string {
	if c == nil {
		return def
	}
	if !c.Changes {
		return c.List
	}
	out := slices.DeleteFunc(slices.Clone(def), func(n string) bool { return slices.Contains(c.Remove, n) })
	for _, n := range c.Add {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

type choiceChange struct {
	Add    []string `json:"add,omitempty"`
	Remove []string `json:"remove,omitempty"`
}

// MarshalJSON writes an array or an object.
func (c Choice) MarshalJSON() ([]byte, error) {
	if c.Changes {
		return json.Marshal(choiceChange{c.Add, c.Remove})
	}
	if c.List == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(c.List)
}

// UnmarshalJSON reads an array or an object.
func (c *Choice) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '[' {
		*c = Choice{}
		return json.Unmarshal(data, &c.List)
	}
	var ch choiceChange
	if err := json.Unmarshal(data, &ch); err != nil {
		return err
	}
	*c = Choice{Changes: true, Add: ch.Add, Remove: ch.Remove}
	return nil
}

// AgentChange changes an agent's settings: a nil field stays, a pointer to the
// zero value clears the setting, so that it follows the host's default again.
type AgentChange struct {
	Model         **model.Ref
	ThinkingLevel *model.ThinkingLevel
	Extensions    **Choice
	Tools         **Choice
	Instructions  *string
	Cwd           *string
	OutputTokens  *int
}

// Apply returns a with the change made.
func (ch *AgentChange) Apply(a Agent) Agent {
	if ch == nil {
		return a
	}
	set(&a.Model, ch.Model)
	set(&a.ThinkingLevel, ch.ThinkingLevel)
	set(&a.Extensions, ch.Extensions)
	set(&a.Tools, ch.Tools)
	set(&a.Instructions, ch.Instructions)
	set(&a.Cwd, ch.Cwd)
	set(&a.OutputTokens, ch.OutputTokens)
	return a
}

func set[T any](dst *T, src *T) {
	if src != nil {
		*dst = *src
	}
}
