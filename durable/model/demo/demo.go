package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable/model"
)

// ProviderID and ModelID name the model that [Model] describes.
const (
	ProviderID = "demo"
	ModelID    = "demo"
)

// Model describes the demo. It costs nothing.
func Model() model.Info {
	return model.Info{
		Provider: ProviderID, ID: ModelID, Name: "Scripted demo",
		ContextWindow: 200_000, MaxOutput: 32_000,
		Prices: &model.Prices{}, Images: true,
	}
}

// Options are the settings of a [Provider]; nil and the zero value work.
type Options struct {
	// WordDelay passes between two words. Default 15 ms; negative: none.
	WordDelay time.Duration
	// Hint tells the user how to get a real model; it ends the answers that
	// explain the demo. Default: to set ANTHROPIC_API_KEY or OPENAI_API_KEY.
	Hint string
}

const defaultHint = "To talk to a real model, set ANTHROPIC_API_KEY or OPENAI_API_KEY and start again."

// Provider is the demo. It is safe for concurrent use.
type Provider struct {
	delay time.Duration
	hint  string
}

var _ model.Provider = (*Provider)(nil)

// New returns the demo.
func New(opts *Options) *Provider {
	if opts == nil {
		opts = &Options{}
	}
	return &Provider{
		delay: cmp.Or(opts.WordDelay, 15*time.Millisecond),
		hint:  cmp.Or(opts.Hint, defaultHint),
	}
}

// Stream answers req from the script, a word at a time. A word counts as a
// token: an answer with more words than the request allows ends with length.
func (p *Provider) Stream(ctx context.Context, req *model.Request, emit func(model.Delta)) (*model.Response, error) {
	text, call := p.reply(req)
	msg := &model.Message{Role: model.RoleAssistant, StopReason: model.StopEnd}
	sent, n, err := p.say(ctx, text, req.MaxOutputTokens, emit)
	if sent != "" {
		msg.Content = append(msg.Content, model.Text(sent))
	}
	u := model.Usage{Input: estimate(req), Output: int64(n)}
	switch {
	case err != nil:
		msg.StopReason, msg.ErrorMessage = model.StopAborted, err.Message
	case sent != text:
		msg.StopReason = model.StopLength
	case call != nil:
		emit(model.Delta{
			Kind: model.DeltaToolCall, Index: len(msg.Content), Text: string(call.Arguments),
			ToolCallID: call.ID, ToolName: call.Name,
		})
		msg.Content = append(msg.Content, *call)
		msg.StopReason = model.StopToolUse
		u.Output += int64(len(strings.Fields(string(call.Arguments))))
	}
	u.Price(req.Model.Prices)
	msg.Usage = &u
	if err != nil {
		return &model.Response{Message: msg}, err
	}
	return &model.Response{Message: msg}, nil
}

// say sends text word by word, at most limit words, and returns what it sent.
func (p *Provider) say(ctx context.Context, text string, limit int, emit func(model.Delta)) (string, int, *model.Error) {
	sent, n := 0, 0
	for sent < len(text) && (limit <= 0 || n < limit) {
		if err := p.pause(ctx, n > 0); err != nil {
			return text[:sent], n, err
		}
		word := firstWord(text[sent:])
		emit(model.Delta{Kind: model.DeltaText, Text: word})
		sent += len(word)
		n++
	}
	return text[:sent], n, nil
}

func (p *Provider) pause(ctx context.Context, wait bool) *model.Error {
	if wait && p.delay > 0 {
		t := time.NewTimer(p.delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	cause := context.Cause(ctx)
	if cause == nil {
		return nil
	}
	class := model.ClassAborted
	if errors.Is(cause, context.DeadlineExceeded) {
		class = model.ClassTimeout
	}
	return &model.Error{Class: class, Message: "request cancelled", Err: cause}
}

// firstWord returns the first word of s with the white space before it.
func firstWord(s string) string {
	word := false
	for i, r := range s {
		if !unicode.IsSpace(r) {
			word = true
		} else if word {
			return s[:i]
		}
	}
	return s
}

// estimate counts four characters of the request as a token.
func estimate(req *model.Request) int64 {
	n := 0
	for i := range req.Messages {
		m := &req.Messages[i]
		for j := range m.Content {
			n += utf8.RuneCountInString(m.Content[j].Text) + len(m.Content[j].Arguments)
		}
		for j := range m.Sections {
			n += utf8.RuneCountInString(m.Sections[j].Text)
		}
		for j := range m.ToolsAdded {
			n += len(m.ToolsAdded[j].Description) + len(m.ToolsAdded[j].Parameters)
		}
	}
	return int64(n+3) / 4
}

// newCall returns a call with an id that the request does not have.
func newCall(req *model.Request, name string, args map[string]string) (*model.Block, error) {
	used := map[string]bool{}
	for i := range req.Messages {
		for _, b := range req.Messages[i].Content {
			if b.Type == model.BlockToolCall {
				used[b.ID] = true
			}
		}
	}
	n := len(used) + 1
	for used[fmt.Sprintf("demo_%d", n)] {
		n++
	}
	text, err := marshal(args)
	if err != nil {
		return nil, err
	}
	return &model.Block{
		Type: model.BlockToolCall, ID: fmt.Sprintf("demo_%d", n), Name: name, Arguments: text,
	}, nil
}
