package openai

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// minResponseOutput is the smallest output limit the Responses API takes.
const minResponseOutput = 16

// responsesHead is the body of a Responses request without its input.
type responsesHead struct {
	Model           string         `json:"model"`
	Stream          bool           `json:"stream"`
	Store           bool           `json:"store"`
	Include         []string       `json:"include,omitempty"`
	MaxOutputTokens int            `json:"max_output_tokens"`
	Reasoning       *reasoningJSON `json:"reasoning,omitempty"`
	PromptCacheKey  string         `json:"prompt_cache_key,omitempty"`
	Instructions    string         `json:"instructions,omitempty"`
	Tools           []responseTool `json:"tools,omitempty"`
}

type reasoningJSON struct {
	Effort  string `json:"effort,omitempty"`
	Summary string `json:"summary,omitempty"`
}

type responseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict,omitempty"`
}

// inputMessage is a message item. Content is a string or a list of
// [inputPart].
type inputMessage struct {
	Role    string `json:"role"`
	Content any    `json:"content"`
	Phase   string `json:"phase,omitempty"`
}

type inputPart struct {
	Type     string `json:"type"`
	Text     string `json:"text,omitempty"`
	Detail   string `json:"detail,omitempty"`
	ImageURL string `json:"image_url,omitempty"`
}

type inputCall struct {
	Type      string `json:"type"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type inputResult struct {
	Type   string `json:"type"`
	CallID string `json:"call_id"`
	Output any    `json:"output"` // a string or a list of inputPart
}

// responsesBody renders a request.
func responsesBody(req *model.Request, own bool) ([]byte, error) {
	if err := knownQuirks(&req.Model); err != nil {
		return nil, err
	}
	q := &quirks{info: &req.Model, own: own}
	role := q.get(QuirkSystemRole, roleInstructions)
	r := &responsesRenderer{
		req: req, ids: callIDs{limit: maxResponseID},
		updateRole:   role,
		resultImages: q.is(QuirkToolResultImages, true),
	}
	if role == roleInstructions {
		r.updateRole = roleDeveloper
	}
	inline := q.get(QuirkSystemUpdates, q.whose(updatesInline, updatesFold)) == updatesInline
	t := newTranscript(req.Messages, inline)
	head := r.head(q, t.tools)
	switch {
	case role == roleInstructions:
		head.Instructions = t.prompt
	case t.prompt != "":
		r.add(inputMessage{Role: role, Content: t.prompt})
	}
	for _, m := range t.rest {
		r.message(m)
	}
	r.flushImages()
	if r.err != nil {
		return nil, r.err
	}
	return body(head, "input", r.items)
}

type responsesRenderer struct {
	req          *model.Request
	ids          callIDs
	updateRole   string
	resultImages bool

	items  []json.RawMessage
	images []inputPart // of the results since the last answer
	err    error
}

func (r *responsesRenderer) head(q *quirks, tools []model.Tool) *responsesHead {
	info := &r.req.Model
	h := &responsesHead{Model: info.ID, Stream: true, MaxOutputTokens: max(maxOutput(r.req), minResponseOutput)}
	thinks := len(info.ThinkingLevels) > 0
	if q.is(QuirkEncryptedReasoning, thinks) {
		h.Include = []string{"reasoning.encrypted_content"}
	}
	level := r.req.ThinkingLevel
	effort := q.effort(level)
	summary := q.get(QuirkSummary, "auto")
	if summary == off || level == "" || level == model.ThinkingOff {
		summary = ""
	}
	if effort != "" || summary != "" {
		h.Reasoning = &reasoningJSON{Effort: effort, Summary: summary}
	}
	if q.is(QuirkCacheKey, q.own) {
		h.PromptCacheKey = cacheKey(r.req.SessionID)
	}
	var strict *bool
	if s := q.get(QuirkStrict, off); s != strictOmit {
		value := s == on
		strict = &value
	}
	for i := range tools {
		t := &tools[i]
		h.Tools = append(h.Tools, responseTool{"function", t.Name, t.Description, schema(t), strict})
	}
	return h
}

func (r *responsesRenderer) add(item any) {
	raw, err := wire.Marshal(item)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.items = append(r.items, raw)
}

func (r *responsesRenderer) message(m *model.Message) {
	if m.Role != model.RoleToolResult {
		r.flushImages()
	}
	switch m.Role {
	case model.RoleSystem:
		r.add(inputMessage{Role: r.updateRole, Content: updateText(m)})
	case model.RoleUser:
		parts := r.parts(m)
		if len(parts) == 0 {
			parts = []inputPart{{Type: "input_text", Text: emptyMessage}}
		}
		r.add(inputMessage{Role: roleUser, Content: parts})
	case model.RoleAssistant:
		r.assistant(m)
	case model.RoleToolResult:
		r.result(m)
	}
}

// parts renders the content of a user message.
func (r *responsesRenderer) parts(m *model.Message) []inputPart {
	var parts []inputPart
	for i := range m.Content {
		switch b := &m.Content[i]; {
		case b.Type == model.BlockText && !blank(b.Text):
			parts = append(parts, inputPart{Type: "input_text", Text: b.Text})
		case b.Type == model.BlockImage && r.req.Model.Images:
			parts = append(parts, inputImage(b))
		case b.Type == model.BlockImage:
			parts = append(parts, inputPart{Type: "input_text", Text: imageLeftOut})
		}
	}
	return parts
}

func inputImage(b *model.Block) inputPart {
	return inputPart{Type: "input_image", Detail: "auto", ImageURL: dataURL(b)}
}

func (r *responsesRenderer) result(m *model.Message) {
	out := inputResult{Type: "function_call_output", CallID: r.ids.result(m.ToolCallID)}
	text, images := joinText(m, r.req.Model.Images, "\n")
	switch {
	case len(images) > 0 && r.resultImages:
		out.Output = r.parts(m)
	case len(images) > 0:
		out.Output = strings.TrimPrefix(text+"\n"+imagesFollow, "\n")
		r.images = append(r.images, inputPart{Type: "input_text", Text: imagesOf(out.CallID)})
		for _, b := range images {
			r.images = append(r.images, inputImage(b))
		}
	default:
		out.Output = cmp.Or(text, noOutput)
	}
	r.add(out)
}

func (r *responsesRenderer) flushImages() {
	if len(r.images) > 0 {
		r.add(inputMessage{Role: roleUser, Content: r.images})
		r.images = nil
	}
}

// assistant gives back an answer: the items of this model as they came, those
// of another as plain text and calls. Items only keep their ids when all the
// reasoning they belong to goes along; an answer that the output limit cut off
// has reasoning without its item, so it is given back plainly.
func (r *responsesRenderer) assistant(m *model.Message) {
	own := madeBy(m, &r.req.Model)
	asCame := own && !r.req.DropThinking && m.StopReason != model.StopLength && replayable(m)
	for i := range m.Content {
		switch b := &m.Content[i]; b.Type {
		case model.BlockThinking:
			if asCame {
				r.items = append(r.items, json.RawMessage(b.Raw))
			}
		case model.BlockText:
			it := readItem(b.Raw)
			switch {
			case asCame && it.Type == itemMessage && it.text() == b.Text:
				r.items = append(r.items, json.RawMessage(b.Raw))
			case !blank(b.Text):
				out := inputMessage{Role: "assistant", Content: b.Text}
				if own {
					out.Phase = it.Phase
				}
				r.add(out)
			}
		case model.BlockToolCall:
			it := readItem(b.Raw)
			id := r.ids.call(b.ID, own)
			if asCame && it.sameCall(b) {
				r.items = append(r.items, json.RawMessage(b.Raw))
				continue
			}
			r.add(inputCall{Type: itemCall, CallID: id, Name: safeName(b.Name), Arguments: argumentText(b)})
		}
	}
}

// replayable reports whether every thinking block of m is a reasoning item
// that can go back, with an item of the answer behind it.
func replayable(m *model.Message) bool {
	follows := false
	for i := len(m.Content) - 1; i >= 0; i-- {
		b := &m.Content[i]
		if b.Type != model.BlockThinking {
			follows = true
			continue
		}
		it := readItem(b.Raw)
		if !follows || it.Type != itemReasoning || it.EncryptedContent == "" {
			return false
		}
	}
	return true
}
