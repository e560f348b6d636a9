package durable_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// The tests of this file count what is allocated, not time. They do not run
// beside others, which would be counted too.

// allocated returns how many bytes fn and what it sets off allocate.
func allocated(fn func()) float64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// costRig is a rig whose store and model remember nothing for tests.
func costRig(t *testing.T, handler func(req *model.Request) (faux.Step, bool), exts ...durable.Extension) *rig {
	t.Helper()
	r := newRig(t, exts...)
	r.opts.Logger = slog.New(slog.DiscardHandler)
	r.store = memstore.New()
	if handler != nil {
		r.provide(faux.New(&faux.Options{KeepRequests: -1, Handler: handler}))
	}
	return r
}

// An input that waits behind 4,000 others costs little more than one behind
// 100: what a commit writes and copies is not the queue (E18).
func TestCost_LongQueue(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	r := costRig(t, func(*model.Request) (faux.Step, bool) { return faux.Step{Text: "a", Wait: hold}, true }).open()
	c := r.conversation()
	r.send(c, "go")
	send := func(n int) func() {
		return func() {
			for range n {
				r.send(c, "wait for your turn")
			}
		}
	}
	send(100)()
	short := allocated(send(100)) / 100
	send(3700)()
	long := allocated(send(100)) / 100
	t.Logf("%.0f bytes behind 100, %.0f behind 4,000", short, long)
	// A list of ids or pointers may be copied a few times; a record may not.
	require.Less(t, long-short, 4000*8*4.0, "more bytes for each input")
}

// A long answer costs in proportion to its length: four times the pieces, four
// times the memory (E12.2, E18).
func TestCost_LongAnswer(t *testing.T) {
	cost := func(pieces int) (bytes float64) {
		bubble(t, func(t *testing.T) {
			r := costRig(t, func(*model.Request) (faux.Step, bool) {
				return faux.Step{Text: strings.Repeat("0123456789", 4*pieces), ChunkSize: 40, ChunkMS: 200}, true
			}).open()
			c := r.conversation()
			bytes = allocated(func() {
				s := r.send(c, "go")
				after(time.Hour)
				require.NotNil(t, r.record(s).SettledAt)
			})
		})
		return bytes
	}
	cost(100)
	short, long := cost(1000), cost(4000)
	t.Logf("%.0f bytes for 1,000 pieces, %.0f for 4,000", short, long)
	require.Less(t, long/short, 5.0)
}

// Turn 1000 of a conversation costs at most 1.25 times what turn 10 does (E18).
func TestCost_LongConversation(t *testing.T) {
	usage := &model.Usage{Input: 10, Output: 1, Total: 11}
	r := costRig(t, func(req *model.Request) (faux.Step, bool) {
		if req.Messages[len(req.Messages)-1].Role == model.RoleToolResult {
			return faux.Step{Text: "done", Usage: usage}, true
		}
		return faux.Step{Usage: usage, ToolCalls: []faux.ToolCall{{ID: "x", Name: "echo", Arguments: json.RawMessage(`{"text":"a"}`)}}}, true
	}, tools(echoTool())).open()
	c := r.conversation()
	var turns []float64
	for range 1050 {
		turns = append(turns, allocated(func() {
			require.Equal(t, durable.SubmissionDone, r.wait(r.send(c, "please do")).Status)
		}))
	}
	// The median leaves out the turns in which a list had to grow; the mean of
	// many has them in proportion.
	early, late := median(turns[10:60]), median(turns[1000:])
	t.Logf("%.0f bytes for turn 10, %.0f for turn 1,000", early, late)
	require.Less(t, late/early, 1.25)
	early, late = mean(turns[10:510]), mean(turns[510:])
	t.Logf("%.0f bytes on average up to turn 510, %.0f from there on", early, late)
	require.Less(t, late/early, 1.25)
}

func median(v []float64) float64 { return slices.Sorted(slices.Values(v))[len(v)/2] }

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}

// What is remembered for readers that come back is bounded in bytes, also when
// every event is a long list (E17.2).
func TestCost_RememberedEvents(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	r := costRig(t, func(*model.Request) (faux.Step, bool) { return faux.Step{Text: "a", Wait: hold}, true }).open()
	c := r.conversation()
	r.send(c, "go")
	for range 4000 {
		r.send(c, "wait for your turn")
	}
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	var inbox []durable.Event // as they came
	for ev, err := range c.Events(ctx, "") {
		require.NoError(t, err)
		if ev.Type == durable.EventInboxUpdate {
			inbox = append(inbox, ev)
		}
		if len(inbox) == 100 {
			break
		}
		if ev.Type == durable.EventSnapshot || ev.Type == durable.EventInboxUpdate {
			r.send(c, "and another")
		}
	}
	first := func(after durable.Event) durable.EventType {
		for ev, err := range c.Events(r.ctx, after.ID) {
			require.NoError(t, err)
			return ev.Type
		}
		return ""
	}
	// Each names 4,000 inputs and more, 32 KB: 1 MiB has room for some 30.
	require.Equal(t, durable.EventSnapshot, first(inbox[len(inbox)-50]), "50 updates back")
	require.NotEqual(t, durable.EventSnapshot, first(inbox[len(inbox)-20]), "20 updates back")
}
