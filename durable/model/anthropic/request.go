package anthropic

import (
	"encoding/json"
	"errors"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// request is the body of a request. The messages come last, so that all before
// them is the same from one request to the next.
type request struct {
	Model        string        `json:"model"`
	MaxTokens    int           `json:"max_tokens"`
	Stream       bool          `json:"stream"`
	Thinking     *thinking     `json:"thinking,omitempty"`
	OutputConfig *outputConfig `json:"output_config,omitempty"`
	CacheControl *cacheControl `json:"cache_control,omitempty"`
	Tools        []*tool       `json:"tools,omitempty"`
	System       []*content    `json:"system,omitempty"`
	Messages     []*message    `json:"messages"`
}

type thinking struct {
	Type         string `json:"type"`
	BudgetTokens int    `json:"budget_tokens,omitempty"`
	Display      string `json:"display,omitempty"`
}

type outputConfig struct {
	Effort string `json:"effort"`
}

type cacheControl struct {
	Type string `json:"type"`
}

type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema"`
	Eager       bool            `json:"eager_input_streaming,omitempty"`

	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type message struct {
	Role    string     `json:"role"`
	Content []*content `json:"content"`
}

// content is a block of any type.
type content struct {
	Type      string          `json:"type"`
	Text      string          `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"` // may be empty and must then be there
	Signature string          `json:"signature,omitempty"`
	Data      string          `json:"data,omitempty"` // redacted_thinking
	Source    *imageSource    `json:"source,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	ToolUseID string          `json:"tool_use_id,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Content   []*content      `json:"content,omitempty"` // tool_result

	CacheControl *cacheControl `json:"cache_control,omitempty"`
}

type imageSource struct {
	Type      string `json:"type"`
	MediaType string `json:"media_type"`
	Data      []byte `json:"data"`
}

// encode returns the body for the transcript, which is req.Messages, possibly
// with a paused turn behind it.
func encode(req *model.Request, messages []model.Message) ([]byte, error) {
	sw, err := switchesOf(req.Model.Quirks)
	if err != nil {
		return nil, err
	}
	t := newTranscript(req, &sw, messages)
	if len(t.out) == 0 {
		return nil, errors.New("the request has no message")
	}
	r := &request{Model: req.Model.ID, Stream: true, Messages: t.out}
	for i := range t.system.Tools {
		r.Tools = append(r.Tools, toolOf(&t.system.Tools[i], &sw))
	}
	if prompt := t.system.Prompt(); !blank(prompt) {
		r.System = []*content{textBlock(prompt)}
	}
	r.setThinking(req, &sw)
	r.setCache(sw.cache)
	return wire.Marshal(r)
}

func toolOf(t *model.Tool, sw *switches) *tool {
	schema := wire.ValidText(t.Parameters)
	if len(schema) == 0 {
		schema = json.RawMessage(`{"type":"object"}`)
	}
	return &tool{
		Name: t.Name, Description: t.Description, InputSchema: schema,
		Eager: sw.eagerTools == on,
	}
}

// The token budgets of the thinking levels, for models that want one.
var budgets = map[model.ThinkingLevel]int{
	model.ThinkingMinimal: minBudget,
	model.ThinkingLow:     4096,
	model.ThinkingMedium:  12288,
	model.ThinkingHigh:    24576,
	model.ThinkingXHigh:   32768,
	model.ThinkingMax:     49152,
}

const minBudget = 1024 // the least the API takes

// setThinking sets thinking and the output limit, which belong together: a
// budget is added to the limit, effort counts within it (E12.4).
func (r *request) setThinking(req *model.Request, sw *switches) {
	info := &req.Model
	limit := func(n int) int {
		if info.MaxOutput > 0 {
			return min(n, info.MaxOutput)
		}
		return n
	}
	r.MaxTokens = limit(req.MaxOutputTokens)
	none := req.ThinkingLevel == "" || req.ThinkingLevel == model.ThinkingOff
	switch {
	case none && sw.thinkingOff == offDisabled:
		r.Thinking = &thinking{Type: "disabled"}
	case none && sw.thinkingOff == offBetweenTools:
		r.Thinking = &thinking{Type: "between_tools"}
	case none && sw.thinkingOff == offAlways:
		r.OutputConfig = &outputConfig{Effort: string(model.ThinkingLow)}
	case none:
	case sw.thinking == thinkingBudget:
		if r.openRoundWithoutThinking() {
			return
		}
		budget := budgets[req.ThinkingLevel]
		total := limit(req.MaxOutputTokens + budget)
		// Where the model's maximum is too small for both, the answer keeps
		// at least half of it.
		budget = min(budget, total-min(req.MaxOutputTokens, total/2))
		if budget < minBudget {
			return
		}
		r.MaxTokens = total
		r.Thinking = &thinking{Type: "enabled", BudgetTokens: budget}
	default:
		effort := req.ThinkingLevel
		if effort == model.ThinkingMinimal {
			effort = model.ThinkingLow
		}
		r.Thinking = &thinking{Type: "adaptive", Display: "summarized"}
		r.OutputConfig = &outputConfig{Effort: string(effort)}
	}
}

// openRoundWithoutThinking reports whether the last answer called tools and
// does not begin with thinking. With a budget such an answer is refused, so
// thinking stays off until the round is over: its thinking was another
// model's, was rejected, or was never there.
func (r *request) openRoundWithoutThinking() bool {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		m := r.Messages[i]
		if m.Role != "assistant" {
			continue
		}
		if m.Content[0].isThinking() {
			return false
		}
		for _, c := range m.Content {
			if c.Type == "tool_use" {
				return true
			}
		}
		return false
	}
	return false
}

func (c *content) isThinking() bool {
	return c.Type == "thinking" || c.Type == "redacted_thinking"
}

// lookBack is how many blocks the server looks back from a breakpoint for an
// earlier one, with a margin.
const lookBack = 16

// setCache places the cache breakpoints: behind the tools and the system
// prompt, and at the end of the messages. The one at the previous end lets the
// server find what it wrote there when a round has many blocks.
func (r *request) setCache(mode string) {
	if mode == off {
		return
	}
	mark := &cacheControl{Type: "ephemeral"}
	switch {
	case len(r.System) > 0:
		r.System[len(r.System)-1].CacheControl = mark
	case len(r.Tools) > 0:
		r.Tools[len(r.Tools)-1].CacheControl = mark
	}
	if mode == cacheAuto {
		r.CacheControl = mark
	}
	ends, since := 0, 0
	for i := len(r.Messages) - 1; i >= 0 && ends < 2; i-- {
		m := r.Messages[i]
		if m.Role == "user" {
			ends++
			if mode != cacheAuto || (ends == 2 && since > lookBack) {
				m.Content[len(m.Content)-1].CacheControl = mark
			}
		}
		since += len(m.Content)
	}
}
