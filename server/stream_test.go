package server_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server"
)

// event is one server-sent event.
type event struct {
	id, name string
	data     map[string]any
}

// follower reads a stream.
type follower struct {
	t    *testing.T
	res  *http.Response
	r    *bufio.Reader
	seen []event
}

func (f *fixture) open(route string, headers ...string) *follower {
	f.t.Helper()
	res := f.send("GET", route, nil, headers...)
	f.t.Cleanup(func() { _ = res.Body.Close() })
	require.Equal(f.t, 200, res.StatusCode)
	require.Equal(f.t, "text/event-stream", res.Header.Get("Content-Type"))
	require.Equal(f.t, "no-store", res.Header.Get("Cache-Control"))
	require.Equal(f.t, "no", res.Header.Get("X-Accel-Buffering"))
	return &follower{t: f.t, res: res, r: bufio.NewReader(res.Body)}
}

func (f *fixture) follow(id durable.SubmissionID) *follower {
	f.t.Helper()
	return f.open(path("/v1/submissions/%d/stream", id))
}

// next returns the next event, nil at the end of the stream.
func (f *follower) next() *event {
	f.t.Helper()
	ev := &event{}
	for {
		line, err := f.r.ReadString('\n')
		if err != nil {
			require.ErrorContains(f.t, err, "EOF")
			require.Empty(f.t, line)
			return nil
		}
		line = strings.TrimSuffix(line, "\n")
		require.NotContains(f.t, line, apiKey)
		field, value, _ := strings.Cut(line, ": ")
		switch field {
		case "id":
			ev.id = value
		case "event":
			ev.name = value
		case "data":
			require.NoError(f.t, json.Unmarshal([]byte(value), &ev.data), line)
		case "":
			if ev.name != "" {
				f.seen = append(f.seen, *ev)
				return ev
			}
		}
	}
}

// until reads up to the first event of that name.
func (f *follower) until(name string) *event {
	f.t.Helper()
	for {
		ev := f.next()
		require.NotNil(f.t, ev, "the stream ended before %s: %v", name, f.names())
		if ev.name == name {
			return ev
		}
	}
}

// rest reads to the end.
func (f *follower) rest() *follower {
	f.t.Helper()
	for f.next() != nil {
	}
	return f
}

func (f *follower) names() (names []string) {
	for _, ev := range f.seen {
		names = append(names, ev.name)
	}
	return names
}

// text returns what a reader of the stream takes for the answer: the text of
// the last message that is not void.
func (f *follower) text() string {
	texts := map[any]string{}
	var order []any
	for _, ev := range f.seen {
		n := ev.data["message"]
		switch ev.name {
		case "message_start":
			order = append(order, n)
		case "text":
			texts[n] += ev.data["delta"].(string)
		case "message_void":
			require.Equal(f.t, n, order[len(order)-1])
			order = order[:len(order)-1]
		}
	}
	if len(order) == 0 {
		return ""
	}
	return texts[order[len(order)-1]]
}

// (S10)
func TestStream(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) { o.engine.PartialInterval = time.Millisecond })
	c := f.conversation(nil)
	hold := make(chan struct{})
	long := strings.Repeat("All work and no play. ", 70) // 1.5 KB
	f.faux.Push(
		faux.Step{Thinking: "hm", Text: "Let me see.", ToolCalls: []faux.ToolCall{{ID: "c1", Name: "echo", Arguments: json.RawMessage(`{"text":"a"}`)}}, Wait: hold},
		faux.Step{Text: long, ChunkMS: 1, ChunkSize: 20},
	)
	sub := f.submit(c.ID, input("r", "go"))
	early := f.follow(sub.ID)
	require.Equal(t, "placed", early.until("status").data["submission"].(map[string]any)["status"])
	close(hold)
	early.rest()
	done := f.wait(sub.ID)
	late := f.follow(sub.ID).rest()

	for name, s := range map[string]*follower{"early": early, "late": late} {
		require.Equal(t, long, done.Answer.Text, name)
		require.Equal(t, long, s.text(), name)
		last := s.seen[len(s.seen)-1]
		require.Equal(t, "done", last.name, name)
		require.Equal(t, long, last.data["submission"].(map[string]any)["answer"].(map[string]any)["text"], name)
		var call, result, end *event
		ids := map[string]bool{}
		for i := range s.seen {
			ev := &s.seen[i]
			require.NotEmpty(t, ev.id)
			require.False(t, ids[ev.id], "ids are distinct")
			ids[ev.id] = true
			switch ev.name {
			case "tool_call":
				call = ev
			case "tool_result":
				result = ev
			case "message_end":
				end = ev
			}
		}
		require.Equal(t, map[string]any{"message": 1.0, "toolCallId": "c1", "name": "echo", "arguments": map[string]any{"text": "a"}}, call.data, name)
		require.Equal(t, false, result.data["isError"], name)
		require.Equal(t, "echo: a", result.data["content"].([]any)[0].(map[string]any)["text"], name)
		require.EqualValues(t, done.AnswerEntryID, end.data["entryId"], name)
		require.Equal(t, "stop", end.data["stopReason"], name)
		require.Contains(t, s.names(), "thinking", name)
	}
	texts := 0
	for _, name := range early.names() {
		if name == "text" {
			texts++
		}
	}
	require.Greater(t, texts, 5, "a long answer comes in many pieces")
}

// (S10) A message that a retry replaces is declared void.
func TestStream_Void(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) {
		o.engine.Retry = durable.RetryPolicy{Max: 1, Base: 1}
	})
	c := f.conversation(nil)
	f.faux.Push(faux.Step{Text: "half", Error: &faux.Error{Class: "overloaded"}}, faux.Step{Text: "whole"})
	sub := f.submit(c.ID, input("r", "go"))
	s := f.follow(sub.ID).rest()
	require.Equal(t, "whole", s.text())
	require.Equal(t, "whole", f.wait(sub.ID).Answer.Text)
}

// (S3, E17.2)
func TestEvents(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	route := path("/v1/conversations/%d/events", c.ID)
	hold := make(chan struct{})
	f.faux.Push(faux.Step{Text: "one", Wait: hold}, faux.Step{Text: "two"})
	s := f.open(route)
	snap := s.until("snapshot")
	require.Equal(t, false, snap.data["view"].(map[string]any)["busy"])
	f.submit(c.ID, input("r1", "go"))
	entry := s.until("entry_appended").data["entry"].(map[string]any)
	require.Contains(t, []any{"pi.user", "pi.system"}, entry["kind"])
	close(hold)
	end := s.until("run_end")
	require.EqualValues(t, c.ID, end.data["conversationId"])
	require.Equal(t, "completed", end.data["outcome"])
	require.Contains(t, s.names(), "message_update")
	for _, ev := range s.seen {
		require.NotContains(t, ev.data, "contentHash")
		if ev.name == "submission" {
			require.NotContains(t, ev.data["submission"], "contentHash")
		}
	}

	// Reconnecting with the last id brings exactly what was missed.
	require.NoError(t, s.res.Body.Close())
	f.wait(f.submit(c.ID, input("r2", "go")).ID)
	resumed := f.open(route, "Last-Event-ID", end.id)
	first := resumed.next()
	require.NotEqual(t, "snapshot", first.name)
	resumed.until("run_end")
	texts := ""
	for _, ev := range resumed.seen {
		if ev.name == "message_update" {
			texts += ev.data["delta"].(string)
		}
	}
	require.Equal(t, "two", texts)

	// An id of another engine brings a snapshot.
	require.Equal(t, "snapshot", f.open(route, "Last-Event-ID", "nonsense").next().name)
	f.do("GET", "/v1/conversations/99/events", nil).problem(404, "not_found")
}

// (S1.4, S1.5) Shutdown ends streams with bye, lets long polls answer at once,
// and refuses what comes later.
func TestShutdown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	f.faux.Push(faux.Step{ToolCalls: []faux.ToolCall{{Name: "hang"}}})
	sub := f.submit(c.ID, input("r", "go"))
	stream := f.follow(sub.ID)
	stream.until("tool_output")
	events := f.open(path("/v1/conversations/%d/events", c.ID))
	events.until("snapshot")
	polled := make(chan server.Submission, 1)
	go func() {
		var s server.Submission
		f.do("GET", path("/v1/submissions/%d/wait", sub.ID), nil).into(200, &s)
		polled <- s
	}()
	for {
		var st server.Status
		f.do("GET", "/v1/status", nil).into(200, &st)
		if st.Counts.Waits == 1 {
			require.EqualValues(t, 2, st.Counts.Streams)
			require.Equal(t, 1, st.Counts.Running)
			break
		}
	}
	f.server.Shutdown()
	f.server.Shutdown()
	for _, s := range []*follower{stream, events} {
		s.rest()
		last := s.seen[len(s.seen)-1]
		require.Equal(t, "bye", last.name)
		require.Positive(t, last.data["retryMs"])
	}
	s := <-polled
	require.True(t, s.TimedOut)
	a := f.do("GET", "/v1/status", nil)
	a.problem(503, "unavailable")
	require.NotEmpty(t, a.header.Get("Retry-After"))
}
