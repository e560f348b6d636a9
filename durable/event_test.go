package durable_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// collect reads events of a conversation until it comes to rest, at most n of
// them when n is not 0.
func collect(r *rig, c *durable.Conversation, after string, n int) (out []durable.Event) {
	help(r.t)
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ev, err := range c.Events(ctx, after) {
			if err != nil {
				return
			}
			if out = append(out, ev); len(out) == n {
				return
			}
		}
	}()
	synctest.Wait()
	cancel()
	<-done
	return out
}

func eventIDs(events []durable.Event) (ids []string) {
	for _, ev := range events {
		ids = append(ids, ev.ID)
	}
	return ids
}

// A reader that comes back with the id of any event gets exactly those behind
// it, as long as they are kept (E17.2).
func TestEvents_ComeBack(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, tools(echoTool())).open()
		c := r.conversation()
		r.model.AddRules([]faux.Rule{
			{When: "go", Step: calls("echo", "a", "b")},
			{When: "echo", Step: faux.Step{Text: "a long answer", ChunkSize: 2, ChunkMS: 200}},
		}, 0)
		first := collect(r, c, "", 0)
		require.Len(t, first, 1)
		require.Equal(t, durable.EventSnapshot, first[0].Type)
		for i := range 3 {
			r.answer(r.send(c, fmt.Sprintf("go %d", i)))
		}
		after(time.Second)
		all := append(first, collect(r, c, first[0].ID, 0)...)
		require.Greater(t, len(all), 60)
		require.NotContains(t, fmt.Sprint(all[1:]), durable.EventSnapshot)
		boot, _, ok := strings.Cut(all[0].ID, "-")
		require.True(t, ok)
		for i := range all {
			require.True(t, strings.HasPrefix(all[i].ID, boot+"-"), all[i].ID)
			rest := collect(r, c, all[i].ID, 0)
			require.Equal(t, eventIDs(all[i+1:]), eventIDs(rest), "behind event %d", i)
			require.Equal(t, all[i+1:], append([]durable.Event{}, rest...))
		}
		for i := 0; i < len(all)-3; i += 7 { // a few at a time
			part := collect(r, c, all[i].ID, 3)
			require.Equal(t, eventIDs(all[i+1:i+4]), eventIDs(part))
		}
	})
}

// An id of another engine, an id that was never given out, and one that is not
// kept any more get a snapshot (E17.2).
func TestEvents_Snapshot(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.PartialInterval = time.Millisecond
		r.open()
		c := r.conversation()
		old := collect(r, c, "", 0)[0].ID
		r.model.Push(faux.Step{Text: strings.Repeat("word ", 600), ChunkSize: 2, ChunkMS: 10})
		r.answer(r.send(c, "go"))
		after(time.Second)
		boot, _, _ := strings.Cut(old, "-")
		for _, id := range []string{"", "nonsense", old, boot + "-0", boot + "-999999", boot + "-", boot + "-01", "0123456789abcdef-7"} {
			events := collect(r, c, id, 0)
			require.Len(t, events, 1, "%q", id)
			require.Equal(t, durable.EventSnapshot, events[0].Type)
			require.Len(t, events[0].Data.(durable.Snapshot).View.Entries, 2)
		}
		newest := collect(r, c, "", 0)[0].ID
		require.Empty(t, collect(r, c, newest, 0), "nothing happened since")
		r.restart()
		c = r.again(c)
		require.Equal(t, durable.EventSnapshot, collect(r, c, newest, 0)[0].Type)
	})
}

// A snapshot in the middle of everything says what somebody needs who comes
// late: the message that is written, the tools that run with their output, the
// inbox (E17.2).
func TestEvents_SnapshotOfRunning(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, tools(toolOf(durable.ToolSpec{Name: "work"}, func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
			call.Output([]byte("half of " + arg + "\n"))
			<-time.After(time.Hour)
			return durable.TextResult("all of " + arg), nil
		})))
		r.open()
		c := r.conversation()
		first := calls("work", "a", "b")
		first.Text, first.Thinking, first.ChunkSize, first.ChunkMS = "I start", "hm, well", 2, 1000
		r.model.Push(first, text("done"))
		sub := r.send(c, "go")
		queued := r.send(c, "next")

		after(6500 * time.Millisecond)
		snap := r.snapshot(c)
		require.True(t, snap.View.Busy)
		require.Equal(t, "hm, well", snap.Partial.Thinking)
		require.Equal(t, "I star", snap.Partial.Text)
		require.Equal(t, sub.ID(), snap.Partial.SubmissionID)
		require.Empty(t, snap.RunningTools)
		require.Len(t, snap.View.Submissions, 2)
		require.Equal(t, queued.ID(), snap.View.Submissions[1].ID)
		require.Equal(t, durable.SubmissionQueued, snap.View.Submissions[1].Status)

		after(time.Minute)
		snap = r.snapshot(c)
		require.Nil(t, snap.Partial)
		require.Len(t, snap.RunningTools, 2)
		require.Equal(t, "work", snap.RunningTools[0].ToolName)
		require.JSONEq(t, `{"text":"a"}`, string(snap.RunningTools[0].Arguments))
		require.Equal(t, "half of a\n", snap.RunningTools[0].Output)
		require.Equal(t, "half of b\n", snap.RunningTools[1].Output)

		r.model.Push(text("and done"))
		after(2 * time.Hour)
		snap = r.snapshot(c)
		require.False(t, snap.View.Busy)
		require.Empty(t, snap.RunningTools)
		require.Empty(t, snap.View.Submissions)
		require.Contains(t, string(snap.View.Docs["pi.usage"]), "faux/faux-1")
	})
}
