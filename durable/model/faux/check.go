package faux

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable/model"
)

// maxImage is the most bytes an image may have as base64, the smallest limit
// of the vendors.
const maxImage = 5 << 20

var imageTypes = []string{"image/png", "image/jpeg", "image/gif", "image/webp"}

// Check returns what a strict provider would refuse of a request (E13), as an
// [*model.Error] of class invalid_request that names the violation and the
// message's position, else nil:
//
//   - the first message is the user's, the last is the user's or a result
//   - every tool call is followed directly by exactly one result, in call
//     order, and no result stands elsewhere
//   - call ids are unique and not empty, calls have a name, arguments are a
//     JSON object without lone surrogates
//   - no message is empty, no text blank, all text is valid UTF-8
//   - each role holds only blocks it may hold; images have a known type and size
//   - thinking that this package signed is unchanged
//   - no answer that failed, was aborted or deferred
//   - tool declarations are distinct and have the schema of an object
//   - the output limit is at least 1 and the thinking level one the model knows
func Check(req *model.Request) error {
	c := checker{ids: map[string]bool{}}
	if err := c.request(req); err != nil {
		return &model.Error{Class: model.ClassInvalidRequest, Message: err.Error()}
	}
	return nil
}

type checker struct {
	ids  map[string]bool
	open []string // calls of the last answer without a result yet
	last model.Role
}

func (c *checker) request(req *model.Request) error {
	if req.MaxOutputTokens < 1 {
		return fmt.Errorf("output limit is %d", req.MaxOutputTokens)
	}
	l := req.ThinkingLevel
	if l != "" && l != model.ThinkingOff && !slices.Contains(req.Model.ThinkingLevels, l) {
		return fmt.Errorf("thinking level %q is not known to the model", l)
	}
	var sys model.System
	for i := range req.Messages {
		m := &req.Messages[i]
		if err := c.message(m); err != nil {
			return fmt.Errorf("message %d (%s): %w", i, m.Role, err)
		}
		if m.Role == model.RoleSystem {
			sys.Apply(m)
		}
	}
	if len(c.open) > 0 {
		return fmt.Errorf("tool call %q has no result", c.open[0])
	}
	switch c.last {
	case "":
		return errors.New("no message")
	case model.RoleAssistant:
		return errors.New("the last message is the assistant's")
	}
	return checkTools(sys.Tools)
}

func (c *checker) message(m *model.Message) error {
	if len(c.open) > 0 && m.Role != model.RoleToolResult {
		return fmt.Errorf("tool call %q has no result directly after it", c.open[0])
	}
	if m.Role == model.RoleSystem {
		return checkSections(m)
	}
	if blocksOf[m.Role] == nil {
		return errors.New("role is unknown")
	}
	if c.last == "" && m.Role != model.RoleUser {
		return errors.New("the first message is not the user's")
	}
	c.last = m.Role
	if len(m.Content) == 0 {
		return errors.New("message is empty")
	}
	for i := range m.Content {
		if err := c.block(m, &m.Content[i]); err != nil {
			return fmt.Errorf("block %d: %w", i, err)
		}
	}
	switch m.Role {
	case model.RoleAssistant:
		switch m.StopReason {
		case model.StopError, model.StopAborted, model.StopDeferred:
			return fmt.Errorf("answer ended with %s", m.StopReason)
		}
	case model.RoleToolResult:
		return c.result(m)
	}
	return nil
}

func (c *checker) result(m *model.Message) error {
	if len(c.open) == 0 {
		return fmt.Errorf("result of %q without a call before it", m.ToolCallID)
	}
	if m.ToolCallID != c.open[0] {
		return fmt.Errorf("result of %q where that of %q was expected", m.ToolCallID, c.open[0])
	}
	c.open = c.open[1:]
	return nil
}

var blocksOf = map[model.Role][]model.BlockType{
	model.RoleUser:       {model.BlockText, model.BlockImage},
	model.RoleAssistant:  {model.BlockText, model.BlockThinking, model.BlockToolCall},
	model.RoleToolResult: {model.BlockText, model.BlockImage},
}

func (c *checker) block(m *model.Message, b *model.Block) error {
	if !slices.Contains(blocksOf[m.Role], b.Type) {
		return fmt.Errorf("%q block", b.Type)
	}
	switch b.Type {
	case model.BlockText:
		if strings.TrimSpace(b.Text) == "" {
			return errors.New("blank text")
		}
		return validUTF8("text", b.Text)
	case model.BlockThinking:
		if strings.HasPrefix(b.Signature, signaturePrefix) && b.Signature != sign(b.Thinking) {
			return errors.New("thinking was changed after it was signed")
		}
		return validUTF8("thinking", b.Thinking)
	case model.BlockImage:
		return checkImage(b)
	default:
		return c.call(b)
	}
}

func (c *checker) call(b *model.Block) error {
	switch {
	case b.ID == "":
		return errors.New("tool call without an id")
	case c.ids[b.ID]:
		return fmt.Errorf("tool call id %q is used twice", b.ID)
	case b.Name == "":
		return fmt.Errorf("tool call %q without a name", b.ID)
	}
	c.ids[b.ID] = true
	c.open = append(c.open, b.ID)
	args := string(b.Arguments)
	if !json.Valid(b.Arguments) || !strings.HasPrefix(strings.TrimLeft(args, " \t\r\n"), "{") {
		return fmt.Errorf("arguments of %q are not a JSON object", b.ID)
	}
	if hasLoneSurrogate(args) {
		return fmt.Errorf("arguments of %q hold a lone surrogate", b.ID)
	}
	for _, s := range []string{b.ID, b.Name, args} {
		if err := validUTF8("tool call", s); err != nil {
			return err
		}
	}
	return nil
}

// hasLoneSurrogate looks for a \uD800-\uDFFF escape of valid JSON that is not
// part of a pair.
func hasLoneSurrogate(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			continue
		}
		unit, ok := escaped(s[i:])
		if !ok {
			i++ // the escaped character, which may be a backslash
			continue
		}
		i += 5
		switch {
		case unit >= 0xDC00 && unit <= 0xDFFF:
			return true
		case unit >= 0xD800 && unit <= 0xDBFF:
			low, ok := escaped(s[i+1:])
			if !ok || low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		}
	}
	return false
}

// escaped reads a \uXXXX escape at the start of s.
func escaped(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range s[2:6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | c
	}
	return r, true
}

func checkImage(b *model.Block) error {
	switch n := (len(b.Data) + 2) / 3 * 4; {
	case n == 0:
		return errors.New("image without data")
	case n > maxImage:
		return fmt.Errorf("image of %d bytes as base64, more than %d", n, maxImage)
	case !slices.Contains(imageTypes, b.MimeType):
		return fmt.Errorf("image type %q", b.MimeType)
	}
	return nil
}

func checkSections(m *model.Message) error {
	for i := range m.Sections {
		if err := validUTF8("section "+m.Sections[i].Key, m.Sections[i].Text); err != nil {
			return err
		}
	}
	return nil
}

func checkTools(tools []model.Tool) error {
	names := map[string]bool{}
	for i := range tools {
		t := &tools[i]
		if t.Name == "" || names[t.Name] {
			return fmt.Errorf("tool name %q is empty or used twice", t.Name)
		}
		names[t.Name] = true
		var schema struct {
			Type string `json:"type"`
		}
		if err := json.Unmarshal(t.Parameters, &schema); err != nil || schema.Type != "object" {
			return fmt.Errorf("tool %q: parameters are not the schema of an object", t.Name)
		}
		if err := validUTF8("tool "+t.Name, t.Description); err != nil {
			return err
		}
	}
	return nil
}

func validUTF8(what, s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("%s is not valid UTF-8", what)
	}
	return nil
}
