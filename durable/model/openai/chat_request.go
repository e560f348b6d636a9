package openai

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// chatHead is the body of a Chat Completions request without its messages.
type chatHead struct {
	Model               string         `json:"model"`
	Stream              bool           `json:"stream"`
	StreamOptions       *streamOptions `json:"stream_options,omitempty"`
	MaxCompletionTokens int            `json:"max_completion_tokens,omitempty"`
	MaxTokens           int            `json:"max_tokens,omitempty"`
	ReasoningEffort     string         `json:"reasoning_effort,omitempty"`
	Reasoning           *effortJSON    `json:"reasoning,omitempty"`
	EnableThinking      *bool          `json:"enable_thinking,omitempty"`
	ChatTemplateKwargs  *templateJSON  `json:"chat_template_kwargs,omitempty"`
	Thinking            *typeJSON      `json:"thinking,omitempty"`
	PromptCacheKey      string         `json:"prompt_cache_key,omitempty"`
	Tools               []chatTool     `json:"tools,omitempty"`
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type effortJSON struct {
	Effort  string `json:"effort"`
	Summary string `json:"summary,omitempty"`
}

type templateJSON struct {
	EnableThinking bool `json:"enable_thinking"`
}

type typeJSON struct {
	Type string `json:"type"`
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict,omitempty"`
}

// chatMessage is a message of any role. Content is a string, a list of
// [chatPart], or nil for null.
type chatMessage struct {
	Role             string            `json:"role"`
	Name             string            `json:"name,omitempty"`
	ToolCallID       string            `json:"tool_call_id,omitempty"`
	ReasoningContent *string           `json:"reasoning_content,omitempty"`
	Reasoning        *string           `json:"reasoning,omitempty"`
	ReasoningDetails json.RawMessage   `json:"reasoning_details,omitempty"`
	Content          any               `json:"content"`
	ToolCalls        []json.RawMessage `json:"tool_calls,omitempty"`
}

type chatPart struct {
	Type     string    `json:"type"`
	Text     string    `json:"text,omitempty"`
	ImageURL *imageURL `json:"image_url,omitempty"`
}

type imageURL struct {
	URL string `json:"url"`
}

// chatThinking is the Raw of a thinking block: the field it came in, and the
// details that go back in its place.
type chatThinking struct {
	Field   string          `json:"field,omitempty"`
	Details json.RawMessage `json:"details,omitempty"`
}

// chatCallRaw is the Raw of a tool call: the fields that the server added.
type chatCallRaw struct {
	Extra map[string]json.RawMessage `json:"extra"`
}

// chatBody renders a request.
func chatBody(req *model.Request, own bool) ([]byte, error) {
	if err := knownQuirks(&req.Model); err != nil {
		return nil, err
	}
	q := &quirks{info: &req.Model, own: own}
	r := &chatRenderer{
		req: req, q: q, ids: callIDs{limit: maxChatID},
		systemRole:   q.get(QuirkSystemRole, roleSystem),
		resultName:   q.is(QuirkToolResultName, false),
		resultImages: q.is(QuirkToolResultImages, false),
		reasoningOut: q.get(QuirkReasoningOut, fieldAuto),
		required:     q.is(QuirkReasoningRequired, false),
	}
	if r.systemRole == roleInstructions {
		r.systemRole = roleSystem
	}
	inline := q.get(QuirkSystemUpdates, q.whose(updatesInline, updatesFold)) == updatesInline
	t := newTranscript(req.Messages, inline)
	head := r.head(t.tools)
	if t.prompt != "" {
		r.add(&chatMessage{Role: r.systemRole, Content: t.prompt})
	}
	for _, m := range t.rest {
		r.message(m)
	}
	r.flushImages()
	if r.err != nil {
		return nil, r.err
	}
	return body(head, "messages", r.items)
}

type chatRenderer struct {
	req          *model.Request
	q            *quirks
	ids          callIDs
	systemRole   string
	resultName   bool
	resultImages bool
	reasoningOut string
	required     bool

	items  []json.RawMessage
	images []chatPart // of the results since the last answer
	err    error
}

func (r *chatRenderer) head(tools []model.Tool) *chatHead {
	h := &chatHead{Model: r.req.Model.ID, Stream: true}
	if r.q.is(QuirkStreamUsage, true) {
		h.StreamOptions = &streamOptions{IncludeUsage: true}
	}
	if r.q.get(QuirkMaxTokens, r.q.whose(maxTokensNew, maxTokensOld)) == maxTokensNew {
		h.MaxCompletionTokens = maxOutput(r.req)
	} else {
		h.MaxTokens = maxOutput(r.req)
	}
	if r.q.is(QuirkCacheKey, r.q.own) {
		h.PromptCacheKey = cacheKey(r.req.SessionID)
	}
	r.effort(h)
	var strict *bool
	if s := r.q.get(QuirkStrict, strictOmit); s != strictOmit {
		value := s == on
		strict = &value
	}
	for i := range tools {
		t := &tools[i]
		h.Tools = append(h.Tools, chatTool{"function", chatFunction{t.Name, t.Description, schema(t), strict}})
	}
	return h
}

// effort says the thinking level in the form the server knows. A switch that
// can only be on or off is only sent to a model that can think.
func (r *chatRenderer) effort(h *chatHead) {
	level := r.req.ThinkingLevel
	thinks := level != "" && level != model.ThinkingOff
	known := thinks || len(r.req.Model.ThinkingLevels) > 0
	word := r.q.effort(level)
	switch r.q.get(QuirkEffort, effortWord) {
	case effortWord:
		h.ReasoningEffort = word
	case effortObject:
		if word != "" {
			h.Reasoning = &effortJSON{Effort: word}
		}
	case effortEnable:
		if known {
			h.EnableThinking = &thinks
		}
	case effortTemplate:
		if known {
			h.ChatTemplateKwargs = &templateJSON{thinks}
		}
	case effortThinking:
		if known {
			h.Thinking = &typeJSON{"disabled"}
			if thinks {
				h.Thinking.Type = "enabled"
			}
		}
	}
}

func (r *chatRenderer) add(m *chatMessage) {
	raw, err := wire.Marshal(m)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.items = append(r.items, raw)
}

func (r *chatRenderer) message(m *model.Message) {
	if m.Role != model.RoleToolResult {
		r.flushImages()
	}
	switch m.Role {
	case model.RoleSystem:
		r.add(&chatMessage{Role: r.systemRole, Content: updateText(m)})
	case model.RoleUser:
		text, images := joinText(m, r.req.Model.Images, "\n\n")
		var content any = cmp.Or(text, emptyMessage)
		if len(images) > 0 {
			content = chatParts(m)
		}
		r.add(&chatMessage{Role: roleUser, Content: content})
	case model.RoleAssistant:
		r.assistant(m)
	case model.RoleToolResult:
		r.result(m)
	}
}

// chatParts returns text and images in their order.
func chatParts(m *model.Message) []chatPart {
	var parts []chatPart
	for i := range m.Content {
		switch b := &m.Content[i]; {
		case b.Type == model.BlockText && !blank(b.Text):
			parts = append(parts, chatPart{Type: "text", Text: b.Text})
		case b.Type == model.BlockImage:
			parts = append(parts, imagePart(b))
		}
	}
	return parts
}

func imagePart(b *model.Block) chatPart {
	return chatPart{Type: "image_url", ImageURL: &imageURL{dataURL(b)}}
}

func (r *chatRenderer) result(m *model.Message) {
	text, images := joinText(m, r.req.Model.Images, "\n")
	out := &chatMessage{Role: "tool", ToolCallID: r.ids.result(m.ToolCallID)}
	if r.resultName {
		out.Name = safeName(m.ToolName)
	}
	switch {
	case r.resultImages && len(images) > 0:
		out.Content = chatParts(m)
	case len(images) > 0:
		out.Content = strings.TrimPrefix(text+"\n"+imagesFollow, "\n")
		r.images = append(r.images, chatPart{Type: "text", Text: imagesOf(out.ToolCallID)})
		for _, b := range images {
			r.images = append(r.images, imagePart(b))
		}
	default:
		out.Content = cmp.Or(text, noOutput)
	}
	r.add(out)
}

// flushImages sends the images of a round's results, which may only stand
// behind all of them.
func (r *chatRenderer) flushImages() {
	if len(r.images) > 0 {
		r.add(&chatMessage{Role: roleUser, Content: r.images})
		r.images = nil
	}
}

func (r *chatRenderer) assistant(m *model.Message) {
	own := madeBy(m, &r.req.Model)
	out := &chatMessage{Role: "assistant"}
	if text := answerText(m, own); text != "" {
		out.Content = text
	}
	for i := range m.Content {
		if b := &m.Content[i]; b.Type == model.BlockToolCall {
			out.ToolCalls = append(out.ToolCalls, r.call(b, own))
		}
	}
	if out.Content == nil && out.ToolCalls == nil {
		return // thinking alone is no message
	}
	if own && !r.req.DropThinking {
		r.thinking(m, out)
	}
	r.requireReasoning(out)
	r.add(out)
}

// answerText returns the text of an answer. The pieces of this model's were
// one content; those of another are paragraphs.
func answerText(m *model.Message, own bool) string {
	if !own {
		text, _ := joinText(m, false, "\n\n")
		return text
	}
	if text := m.Text(); !blank(text) {
		return text
	}
	return ""
}

// thinking gives out the thinking of m in the field where the server wants it.
func (r *chatRenderer) thinking(m *model.Message, out *chatMessage) {
	var texts []string
	field := ""
	for i := range m.Content {
		b := &m.Content[i]
		if b.Type != model.BlockThinking {
			continue
		}
		texts = append(texts, b.Thinking)
		var raw chatThinking
		if json.Unmarshal([]byte(b.Raw), &raw) != nil {
			continue
		}
		if raw.Field != "" {
			field = raw.Field
		}
		if len(raw.Details) > 0 && r.reasoningOut == fieldAuto {
			out.ReasoningDetails = raw.Details
		}
	}
	if r.reasoningOut != fieldAuto {
		field = r.reasoningOut
	}
	text := strings.Join(texts, "")
	if text == "" || out.ReasoningDetails != nil {
		return
	}
	switch field {
	case fieldContent:
		out.ReasoningContent = &text
	case fieldReasoning:
		out.Reasoning = &text
	}
}

func (r *chatRenderer) requireReasoning(out *chatMessage) {
	if !r.required || out.ReasoningContent != nil || out.Reasoning != nil || out.ReasoningDetails != nil {
		return
	}
	empty := ""
	if r.reasoningOut == fieldReasoning {
		out.Reasoning = &empty
	} else {
		out.ReasoningContent = &empty
	}
}

// call renders a tool call. Raw holds the fields that the server added to it.
func (r *chatRenderer) call(b *model.Block, own bool) json.RawMessage {
	type function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	raw, err := wire.Marshal(struct {
		ID       string   `json:"id"`
		Type     string   `json:"type"`
		Function function `json:"function"`
	}{r.ids.call(b.ID, own), "function", function{safeName(b.Name), argumentText(b)}})
	if err != nil && r.err == nil {
		r.err = err
	}
	if !own || b.Raw == "" {
		return raw
	}
	var added chatCallRaw
	if json.Unmarshal([]byte(b.Raw), &added) != nil {
		return raw
	}
	for _, key := range slices.Sorted(maps.Keys(added.Extra)) {
		if knownCallField(key) {
			continue
		}
		name, err := wire.Marshal(key)
		if err != nil {
			continue
		}
		raw = append(raw[:len(raw)-1], ',')
		raw = append(append(append(raw, name...), ':'), added.Extra[key]...)
		raw = append(raw, '}')
	}
	return raw
}

// knownCallField reports whether a field of a tool call is one of the API's
// own.
func knownCallField(key string) bool {
	switch key {
	case "index", "id", "type", "function":
		return true
	}
	return false
}
