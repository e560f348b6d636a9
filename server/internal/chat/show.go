package chat

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/wp-durable/wp-durable/server"
)

// printer shows the events of a submission. After a reconnect the past comes
// again; only what was not shown is.
type printer struct {
	out, err io.Writer
	colour   bool

	shown   map[int]string  // text of each message on the screen
	got     map[int]string  // text of each message that this connection brought
	calls   map[string]bool // tool calls and results that were shown
	output  map[string]int  // bytes of each call's output that were shown
	arrived map[string]int  // bytes of it that this connection brought
	column  bool            // the line on the screen has text in it
	done    *server.Submission
}

func newPrinter(out, errOut io.Writer, colour bool) *printer {
	p := &printer{out: out, err: errOut, colour: colour, shown: map[int]string{}, calls: map[string]bool{}, output: map[string]int{}}
	p.reconnected()
	return p
}

// reconnected says that the events begin again.
func (p *printer) reconnected() {
	p.got, p.arrived = map[int]string{}, map[string]int{}
}

// remark writes a line that is not the model's.
func (p *printer) remark(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.endLine()
	if p.colour {
		text = "\x1b[2m" + text + "\x1b[0m"
	}
	fmt.Fprintln(p.err, text)
}

func (p *printer) endLine() {
	if p.column {
		fmt.Fprintln(p.out)
		p.column = false
	}
}

// event shows one event.
func (p *printer) event(name string, data []byte) error {
	var d struct {
		Message    int                `json:"message"`
		Delta      string             `json:"delta"`
		Reason     string             `json:"reason"`
		ToolCallID string             `json:"toolCallId"`
		Name       string             `json:"name"`
		Arguments  json.RawMessage    `json:"arguments"`
		Reset      bool               `json:"reset"`
		IsError    bool               `json:"isError"`
		Submission *server.Submission `json:"submission"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("event %s: %w", name, err)
	}
	switch name {
	case "text":
		p.text(d.Message, d.Delta)
	case "message_void":
		if p.shown[d.Message] != "" {
			p.remark("[taken back: %s]", d.Reason)
			p.shown[d.Message] = ""
		}
	case "message_end":
		p.endLine()
	case "tool_call":
		if p.once("call " + d.ToolCallID) {
			p.remark("> %s %s", d.Name, d.Arguments)
		}
	case "tool_output":
		p.toolOutput(d.ToolCallID, d.Delta, d.Reset)
	case "tool_result":
		if p.once("result "+d.ToolCallID) && d.IsError {
			p.remark("> the call failed")
		}
	case "done":
		p.endLine()
		p.done = d.Submission
	}
	return nil
}

func (p *printer) once(key string) bool {
	first := !p.calls[key]
	p.calls[key] = true
	return first
}

func (p *printer) text(message int, delta string) {
	p.got[message] += delta
	got, shown := p.got[message], p.shown[message]
	switch {
	case strings.HasPrefix(shown, got):
		return
	case strings.HasPrefix(got, shown):
		delta = got[len(shown):]
	}
	p.shown[message] = got
	fmt.Fprint(p.out, delta)
	p.column = !strings.HasSuffix(delta, "\n")
}

func (p *printer) toolOutput(id, delta string, reset bool) {
	if reset {
		p.arrived[id] = 0
	}
	before := p.arrived[id]
	p.arrived[id] += len(delta)
	if skip := p.output[id] - before; skip > 0 {
		delta = delta[min(skip, len(delta)):]
	}
	p.output[id] = max(p.output[id], p.arrived[id])
	if text := strings.TrimRight(delta, "\n"); text != "" {
		p.remark("%s", text)
	}
}
