package durable_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// screen is what somebody shows who reads the events of a conversation, comes
// back with the last id when a sequence ends, and may be slow.
type screen struct {
	last string        // id of the last event
	pace chan struct{} // nil: reads as fast as it can
	stop func()        // ends the reading and waits for that

	mu        sync.Mutex
	text      string // of the newest message that stands
	open      *strings.Builder
	snapshots int
	bad       error
}

// start begins to read, behind what was read before.
func (s *screen) start(ctx context.Context, c *durable.Conversation) *screen {
	if s.stop != nil {
		s.stop()
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	s.stop = func() { cancel(); <-done }
	go func() {
		defer close(done)
		s.watch(ctx, c)
	}()
	return s
}

// watch reads until ctx ends or the engine closes.
func (s *screen) watch(ctx context.Context, c *durable.Conversation) {
	for ev, err := range c.Events(ctx, s.last) {
		if err != nil {
			return
		}
		s.show(ev)
		if s.pace != nil {
			select {
			case <-s.pace:
			case <-ctx.Done():
				return
			}
		}
	}
}

func (s *screen) show(ev durable.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = ev.ID
	fail := func(format string, args ...any) {
		if s.bad == nil {
			s.bad = fmt.Errorf(format, args...)
		}
	}
	switch d := ev.Data.(type) {
	case durable.Snapshot:
		s.snapshots++
		s.open, s.text = nil, ""
		for _, e := range d.View.Entries {
			if stands(e) {
				s.text = e.Model[0].Text()
			}
		}
		if d.Partial != nil {
			s.open = &strings.Builder{}
			s.open.WriteString(d.Partial.Text)
		}
	case durable.MessageEvent:
		switch ev.Type {
		case durable.EventMessageStart:
			if s.open != nil {
				fail("a message begins within another one")
			}
			s.open = &strings.Builder{}
		case durable.EventMessageUpdate:
			if s.open == nil {
				fail("an update of no message")
			} else if d.Kind == model.DeltaText {
				s.open.WriteString(d.Delta.Text)
			}
		case durable.EventMessageVoid:
			s.open = nil
		case durable.EventMessageEnd:
			if s.open == nil {
				fail("the end of no message")
				return
			}
			s.text, s.open = s.open.String(), nil
		}
	}
}

func (s *screen) shows() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open != nil {
		return "", errors.New("a message is open")
	}
	return s.text, s.bad
}

// stands reports whether an entry is an answer, and not one that was cut off
// by a restart and begun again.
func stands(e durable.Entry) bool {
	return e.Kind == durable.KindAssistant && string(e.Data) != `{"void":true}`
}

// streamStep draws an answer of the model, or a part of one that fails.
func streamStep(rt *rapid.T, n int) faux.Step {
	s := faux.Step{
		Text:      rapid.StringMatching(`[a-zäö€😀 \n]{0,40}`).Draw(rt, "text"),
		ChunkSize: rapid.IntRange(1, 9).Draw(rt, "chunk size"),
		ChunkMS:   int64(rapid.SampledFrom([]int{0, 1, 4, 30, 101, 400}).Draw(rt, "chunk ms")),
		DelayMS:   int64(rapid.SampledFrom([]int{0, 0, 3, 500}).Draw(rt, "delay")),
		Usage:     &model.Usage{},
	}
	if strings.TrimSpace(s.Text) == "" {
		s.Text = fmt.Sprintf("step %d", n)
	}
	if rapid.IntRange(0, 3).Draw(rt, "thinks") == 0 {
		s.Thinking = rapid.StringMatching(`[a-z ]{1,20}`).Draw(rt, "thinking")
	}
	switch rapid.SampledFrom([]string{"fails", "calls", "calls", "fails for good", "answers"}).Draw(rt, "end") {
	case "fails":
		s.Error = &faux.Error{Class: model.ClassOverloaded, Message: "scripted"}
	case "calls":
		s.ToolCalls = calls("echo", fmt.Sprint("call of step ", n)).ToolCalls
	case "fails for good":
		s.Error = &faux.Error{Class: model.ClassContentFilter, Message: "scripted"}
	}
	return s
}

// TestStream_Random gives a run random answers in random pieces, failures that
// are repeated, tool rounds, restarts and perhaps an abort, and has readers
// that come early, late, again after a restart, and slow ones. What each of
// them has on the screen in the end is the text that is stored (E17.4, E17.5).
func TestStream_Random(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		bubble(t, func(t *testing.T) { streamScript(rt, t) })
	})
}

func streamScript(rt *rapid.T, t *testing.T) {
	var steps []faux.Step
	for i := range rapid.IntRange(1, 6).Draw(rt, "answers") {
		steps = append(steps, streamStep(rt, i))
	}
	n := 0
	r := makeRig(rt, t.Context(), tools(echoTool()))
	r.model = faux.New(&faux.Options{Strict: true, Handler: func(*model.Request) (faux.Step, bool) {
		if n++; n <= len(steps) {
			return steps[n-1], true
		}
		return faux.Step{Text: "the end", ChunkSize: 2, ChunkMS: 20, Usage: &model.Usage{}}, true
	}})
	r.provide(r.model)
	r.opts.PartialInterval = time.Duration(rapid.SampledFrom([]int{1, 20, 100}).Draw(rt, "partial interval")) * time.Millisecond
	r.open()
	defer r.finish()
	ctx, cancel := context.WithCancel(r.ctx)
	defer synctest.Wait()
	defer cancel()

	c := r.conversation()
	screens := []*screen{{}, {pace: make(chan struct{})}}
	reading := func() {
		for _, s := range screens {
			s.start(ctx, c)
		}
	}
	reading()
	synctest.Wait()
	sub := r.send(c, "go")
	listeners := []*listener{listen(r, sub)}
	for range rapid.IntRange(0, 6).Draw(rt, "interruptions") {
		after(time.Duration(rapid.IntRange(0, 700).Draw(rt, "ms")) * time.Millisecond)
		switch rapid.SampledFrom([]string{"read on", "come late", "look late", "restart", "abort"}).Draw(rt, "op") {
		case "read on":
			select {
			case screens[1].pace <- struct{}{}:
			default:
			}
			synctest.Wait()
		case "come late":
			listeners = append(listeners, listen(r, sub))
		case "look late":
			screens = append(screens, (&screen{}).start(ctx, c))
		case "restart":
			r.close()
			synctest.Wait()
			r.open()
			c = r.again(c)
			var err error
			sub, err = r.engine.Submission(r.ctx, sub.ID())
			require.NoError(rt, err)
			reading()
			listeners = []*listener{listen(r, sub)}
		case "abort":
			if rapid.IntRange(0, 3).Draw(rt, "really") == 0 {
				_, err := c.Abort(r.ctx, nil)
				require.NoError(rt, err)
			}
		}
	}
	rec := r.wait(sub)
	after(time.Hour)
	close(screens[1].pace) // the slow one reads what is left
	synctest.Wait()
	listeners = append(listeners, listen(r, sub))
	synctest.Wait()

	want := ""
	for _, e := range r.entries(c) {
		if stands(e) {
			want = e.Model[0].Text()
		}
	}
	if rec.AnswerEntryID != 0 {
		m, err := sub.Answer(r.ctx)
		require.NoError(rt, err)
		require.Equal(rt, m.Text(), want)
	}
	for i, l := range listeners {
		require.Equal(rt, want, l.end().text(), "listener %d of %d", i, len(listeners))
	}
	for i, s := range screens {
		got, err := s.shows()
		require.NoError(rt, err, "screen %d", i)
		require.Equal(rt, want, got, "screen %d", i)
	}
}

// TestStream_SlowReader has a reader that stands still while an answer of many
// more pieces comes than are kept for it. The run does not wait for it, and it
// has the whole text in the end (E17.4, E17.5).
func TestStream_SlowReader(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.PartialInterval = time.Millisecond
		r.open()
		c := r.conversation()
		answer := strings.Repeat("many words ", 600)
		r.model.Push(faux.Step{Text: answer, ChunkSize: 2, ChunkMS: 4})
		sub := r.send(c, "go")
		var voids, pieces int
		var shown strings.Builder
		for ev, err := range sub.Stream(r.ctx) {
			require.NoError(t, err)
			switch ev.Type {
			case durable.StreamText:
				if pieces++; pieces == 1 {
					r.wait(sub) // reads on when all is over
				}
				shown.WriteString(ev.Delta)
			case durable.StreamMessageVoid:
				voids++
				shown.Reset()
			}
		}
		require.Equal(t, answer, shown.String())
		require.Equal(t, 1, voids, "what was missed is shown anew")
		_, outputs := r.history.counts()
		require.Greater(t, outputs, 1500, "pieces")
	})
}
