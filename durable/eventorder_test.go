package durable_test

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

// listener reads the stream of a submission as it comes.
type listener struct {
	r    *rig
	done chan struct{}

	mu     sync.Mutex
	events []durable.StreamEvent
	err    error
}

// listen begins to read the stream of a submission.
func listen(r *rig, s *durable.Submission) *listener {
	l := &listener{r: r, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		for ev, err := range s.Stream(r.ctx) {
			l.mu.Lock()
			if err != nil {
				l.err = err
			} else {
				l.events = append(l.events, ev)
			}
			l.mu.Unlock()
		}
	}()
	return l
}

// end waits for the end of the stream.
func (l *listener) end() *listener {
	help(l.r.t)
	ctx, cancel := context.WithTimeout(l.r.ctx, 30*time.Second)
	defer cancel()
	select {
	case <-l.done:
	case <-ctx.Done():
		require.FailNow(l.r.t, "the stream does not end")
	}
	return l
}

// text is what a reader has in the end: the text of the last message that is
// not void (E17.5).
func (l *listener) text() string {
	help(l.r.t)
	l.mu.Lock()
	defer l.mu.Unlock()
	require.NoError(l.r.t, l.err)
	messages := map[int]*strings.Builder{}
	last := 0
	for _, ev := range l.events {
		switch ev.Type {
		case durable.StreamMessageStart:
			require.Nil(l.r.t, messages[ev.Message], "message %d begins twice", ev.Message)
			messages[ev.Message] = &strings.Builder{}
		case durable.StreamText:
			messages[ev.Message].WriteString(ev.Delta)
		case durable.StreamMessageVoid:
			delete(messages, ev.Message)
		case durable.StreamMessageEnd:
			last = ev.Message
		}
	}
	if messages[last] == nil {
		return ""
	}
	return messages[last].String()
}
