package chat

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
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
	// Terminal: somebody sits in front of it. It gets a prompt and colours.
	Terminal bool
	// Interrupts receives what Ctrl-C sends: the first one while a run goes on
	// aborts it, any other one leaves.
	Interrupts <-chan os.Signal
}

// ErrUnanswered: the only message was not answered.
var ErrUnanswered = errors.New("the message was not answered")

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
		return fmt.Errorf("conversation: %w", err)
	}
	s := &session{o, conv}
	s.greet()
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
	for {
		s.prompt()
		select {
		case <-o.Interrupts:
			return errLeave
		case <-ctx.Done():
			return ctx.Err()
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			switch text := strings.TrimSpace(line); text {
			case "":
			case "/quit", "/exit":
				return nil
			default:
				if _, err := s.turn(ctx, text); err != nil {
					return err
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
		fmt.Fprintf(s.o.Err, "Ctrl-C aborts an answer, a second one leaves. To come back: wp-durable chat -c %d\n", s.conv.ID)
	}
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
		if ctx.Err() != nil || !s.again(ctx, attempt, err) {
			return nil, err
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
	return " " + string(s.Detail)
}

// submit hands the message over, once, however often it must be tried.
func (s *session) submit(ctx context.Context, text string) (*server.Submission, error) {
	var random [12]byte
	_, _ = rand.Read(random[:]) // never fails
	requestID := "chat-" + hex.EncodeToString(random[:])
	for attempt := 0; ; attempt++ {
		sub, err := s.o.Client.Submit(ctx, s.conv.ID, requestID, text)
		if err == nil || ctx.Err() != nil || !s.again(ctx, attempt, err) {
			return sub, err
		}
	}
}

// again waits before another attempt, false when there is to be none: the
// server says no, or it does not come back.
func (s *session) again(ctx context.Context, attempt int, err error) bool {
	const attempts, pause = 30, time.Second
	var refused *Error
	if errors.As(err, &refused) && refused.Status != 503 || attempt >= attempts {
		return false
	}
	t := time.NewTimer(pause)
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
