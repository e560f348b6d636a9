package chat

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server"
)

// Options configure [Run].
type Options struct {
	Client *Client
	// Conversation to resume; 0 begins one.
	Conversation int64
	// Message, when not empty, is the only one; else lines of In are.
	Message string
	In      io.Reader
	Out     io.Writer
	Err     io.Writer
	// Command is the command line that chats, for the hint how to come back.
	// Default: "wp-durable chat".
	Command string
	// Terminal: somebody sits in front of it. It gets a prompt and colours.
	Terminal bool
	// Interrupts receives what Ctrl-C sends: the first one while a run goes on
	// aborts it, any other one leaves.
	Interrupts <-chan os.Signal

	pause time.Duration // between attempts to reach the server, default 1 s
}

// ErrUnanswered: a message was not answered, and nobody sat in front of it.
var ErrUnanswered = errors.New("a message was not answered")

// errLeave: the user wants to leave.
var errLeave = errors.New("interrupted")

// IsLeave reports whether Run ended because the user interrupted it.
func IsLeave(err error) bool { return errors.Is(err, errLeave) }

// session is one call of Run.
type session struct {
	o    *Options
	conv *server.Conversation
}

// Run talks until the input ends or the user leaves.
func Run(ctx context.Context, o *Options) error {
	conv, err := o.Client.Conversation(ctx, o.Conversation)
	if err != nil {
		return err
	}
	s := &session{o, conv}
	s.greet()
	if o.Conversation != 0 {
		if err := s.recall(ctx); err != nil {
			return err
		}
	}
	if o.Message != "" {
		sub, err := s.turn(ctx, o.Message)
		if err == nil && sub.Status != string(durable.SubmissionDone) {
			err = ErrUnanswered
		}
		return err
	}
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	lines := readLines(ctx, o.In)
	var unanswered error
	for {
		s.prompt()
		select {
		case <-o.Interrupts:
			return errLeave
		case <-ctx.Done():
			return ctx.Err()
		case line, ok := <-lines:
			if !ok {
				return unanswered
			}
			switch text := strings.TrimSpace(line); text {
			case "":
			case "/quit", "/exit":
				return unanswered
			default:
				sub, err := s.turn(ctx, text)
				if err != nil {
					return err
				}
				if sub.Status != string(durable.SubmissionDone) && !o.Terminal {
					unanswered = ErrUnanswered
				}
			}
		}
	}
}

// readLines passes on lines until the input or ctx ends. A read that waits for
// a person cannot be stopped: the goroutine ends with the input or the program.
func readLines(ctx context.Context, in io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		r := bufio.NewReader(in)
		for {
			line, err := r.ReadString('\n')
			if line != "" {
				select {
				case lines <- line:
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

func (s *session) greet() {
	name := "no model"
	if m := s.conv.Agent.Model; m != nil {
		name = m.Provider + "/" + m.ModelID
	}
	verb := "conversation"
	if s.o.Conversation != 0 {
		verb = "resumed conversation"
	}
	fmt.Fprintf(s.o.Err, "%s %d, model %s\n", verb, s.conv.ID, name)
	if s.o.Terminal && s.o.Message == "" {
		fmt.Fprintf(s.o.Err, "Ctrl-C aborts an answer, a second one leaves. To come back: %s\n", s.comeBack())
	}
}

// comeBack returns the command line that resumes the conversation.
func (s *session) comeBack() string {
	return fmt.Sprintf("%s -c %d", cmp.Or(s.o.Command, "wp-durable chat"), s.conv.ID)
}

// recall shows the last exchange of the conversation, shortened.
func (s *session) recall(ctx context.Context) error {
	said, err := s.o.Client.LastExchange(ctx, s.conv.ID)
	if err != nil {
		return err
	}
	for _, m := range said {
		fmt.Fprintf(s.o.Err, "%s: %s\n", m.Who, shortened(m.Text))
	}
	return nil
}

// shortened returns the beginning of a text, on one line.
func shortened(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}

func (s *session) prompt() {
	if s.o.Terminal {
		fmt.Fprint(s.o.Err, "\n> ")
	}
}

// turn sends a message and shows the answer as it comes. It survives restarts
// of the server.
func (s *session) turn(ctx context.Context, text string) (_ *server.Submission, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := newPrinter(s.o.Out, s.o.Err, s.o.Terminal)
	ended := make(chan struct{})
	aborts := make(chan struct{})
	go func() {
		defer close(aborts)
		s.watchInterrupts(ctx, cancel, ended)
	}()
	defer func() {
		close(ended)
		<-aborts
		if errors.Is(context.Cause(ctx), errLeave) {
			err = errLeave // also when the run has just ended
		}
	}()

	sub, err := s.submit(ctx, text)
	if err != nil {
		return nil, err
	}
	for attempt := 0; ; attempt++ {
		err := s.o.Client.Stream(ctx, sub.ID, p.event)
		if err == nil {
			break
		}
		if attempt == 0 && unreachable(err) && ctx.Err() == nil {
			p.remark("[connection lost, waiting for the server]")
		}
		if ctx.Err() != nil || !s.again(ctx, attempt, err) {
			return nil, s.lost(err, "the message is stored and will be answered once the server runs again; to see it: "+s.comeBack())
		}
		p.reconnected()
	}
	done := p.done
	if done.Status != string(durable.SubmissionDone) {
		p.remark("[no answer: %s%s]", done.Reason, detail(done))
	} else if done.Answer != nil && done.Answer.StopReason == "length" {
		p.remark("[the output limit cut the answer]")
	}
	return done, nil
}

func detail(s *server.Submission) string {
	if len(s.Detail) == 0 {
		return ""
	}
	var d map[string]any
	if json.Unmarshal(s.Detail, &d) != nil {
		return ": " + strings.Trim(string(s.Detail), `"`)
	}
	if message, ok := d["message"].(string); ok && message != "" {
		if class, ok := d["class"].(string); ok {
			return fmt.Sprintf(": %s (%s)", message, class)
		}
		return ": " + message
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(d)) {
		parts = append(parts, fmt.Sprintf("%s %v", name, d[name]))
	}
	return ": " + strings.Join(parts, ", ")
}

// unreachable reports whether an error is no answer of a server.
func unreachable(err error) bool {
	var refused *Error
	return !errors.As(err, &refused)
}

// lost returns the error of a server that cannot be reached any more, with what
// that means; other errors stay as they are.
func (s *session) lost(err error, meaning string) error {
	if !unreachable(err) || errors.Is(err, context.Canceled) {
		return err
	}
	return errors.New("the server cannot be reached; " + meaning)
}

// submit hands the message over, once, however often it must be tried.
func (s *session) submit(ctx context.Context, text string) (*server.Submission, error) {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	requestID := "chat-" + hex.EncodeToString(random[:])
	for attempt := 0; ; attempt++ {
		sub, err := s.o.Client.Submit(ctx, s.conv.ID, requestID, text)
		if err == nil || ctx.Err() != nil {
			return sub, err
		}
		if attempt == 0 && unreachable(err) {
			fmt.Fprintln(s.o.Err, "[connection lost, waiting for the server]")
		}
		if !s.again(ctx, attempt, err) {
			return nil, s.lost(err, "whether it has the message is not known; to see: "+s.comeBack())
		}
	}
}

// again waits before another attempt, false when there is to be none: the
// server says no, or it does not come back.
func (s *session) again(ctx context.Context, attempt int, err error) bool {
	const attempts = 30
	var refused *Error
	if errors.As(err, &refused) && refused.Status != 503 || attempt >= attempts {
		return false
	}
	t := time.NewTimer(cmp.Or(s.o.pause, time.Second))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// watchInterrupts aborts the run at the first interrupt and leaves at the next.
func (s *session) watchInterrupts(ctx context.Context, leave context.CancelCauseFunc, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-s.o.Interrupts:
	}
	fmt.Fprintln(s.o.Err, "\n[aborting; Ctrl-C again leaves]")
	aborted := make(chan error, 1)
	go func() { aborted <- s.o.Client.Abort(ctx, s.conv.ID) }()
	select {
	case <-ended:
	case <-s.o.Interrupts:
		leave(errLeave)
	}
	if err := <-aborted; err != nil && ctx.Err() == nil {
		fmt.Fprintln(s.o.Err, "[abort:", err, "]")
	}
}
