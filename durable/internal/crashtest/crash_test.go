package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/internal/transcript"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

// TestCrash kills the program right before and right after each commit that it
// makes, starts it again, kills it once more soon after, lets it come to its
// end and then looks at what is stored and at what the world has seen (E2.1 to
// E2.9, E15, E20).
func TestCrash(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "crashtest")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprintf("after %v", after), func(t *testing.T) {
			t.Parallel()
			step := 1
			if testing.Short() {
				step = 7
			}
			n := 1
			for ; ; n += step {
				dir := t.TempDir()
				c := &crash{t: t, program: program, db: filepath.Join(dir, "crash.db"), world: filepath.Join(dir, "world.log")}
				killed := c.start(n, after)
				if killed {
					c.start(1+n%4, !after)
				}
				require.False(t, c.start(0, false))
				c.check()
				if t.Failed() {
					t.Fatalf("killed at commit %d", n)
				}
				if !killed {
					break
				}
			}
			t.Logf("killed at %d commits", n/step)
			require.Greater(t, n, 25, "commits of the script")
		})
	}
}

type crash struct {
	t                  *testing.T
	program, db, world string
}

// start runs the program to its end and reports whether it killed itself.
func (c *crash) start(kill int, after bool) bool {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.program, "-db", c.db, "-world", c.world, "-kill", fmt.Sprint(kill), fmt.Sprintf("-after=%v", after))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) } // tells where it stands
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if ok && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && ctx.Err() == nil {
		return true
	}
	require.NoError(c.t, err, "killed at commit %d, after %v: %s", kill, after, &out)
	return false
}

// check looks at the database and the log of effects.
func (c *crash) check() {
	t, ctx := c.t, c.t.Context()
	t.Helper()
	store, err := sqlite.Open(ctx, c.db, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, store.Close()) }()
	effects := c.effects()
	require.LessOrEqual(t, effects["start run a"], 1, "starts of a tool that must not run twice (E2.6)")
	require.GreaterOrEqual(t, len(effects), 8)

	root, err := store.Claimed(ctx, "crash", "root")
	require.NoError(t, err)
	convs, err := store.Conversations(ctx, durable.ConversationQuery{Limit: 100})
	require.NoError(t, err)
	require.Len(t, convs, 2, "the conversation, and the one below it")
	live, err := store.LiveTrees(ctx, 0, 10)
	require.NoError(t, err)
	require.Empty(t, live)
	open, err := store.OpenSubmissions(ctx, durable.ConversationID(root))
	require.NoError(t, err)
	require.Empty(t, open, "submissions that were not settled (E2.7)")

	ids := map[int64]string{}
	taken := func(id int64, what string) {
		require.Empty(t, ids[id], "id %d of a %s is given out twice (E3)", id, what)
		ids[id] = what
	}
	tasks, err := store.Tasks(ctx, durable.TaskQuery{})
	require.NoError(t, err)
	for _, rec := range tasks {
		taken(int64(rec.ID), "task")
		require.Equal(t, durable.TaskTerminal, rec.State.Status)
		parts, err := store.Partial(ctx, rec.ID)
		require.NoError(t, err)
		require.Empty(t, parts, "running output of an ended task")
		if rec.Kind == "crash.group" {
			require.Equal(t, durable.OutcomeCompleted, rec.State.Outcome.Status)
		}
	}
	for _, conv := range convs {
		taken(int64(conv.ID), "conversation")
		c.checkConversation(ctx, store, conv, taken, effects)
	}
}

// effects counts the lines of the log.
func (c *crash) effects() map[string]int {
	data, err := os.ReadFile(c.world)
	require.NoError(c.t, err)
	out := map[string]int{}
	for line := range strings.Lines(string(data)) {
		out[strings.TrimSuffix(line, "\n")]++
	}
	return out
}

// want says how each submission must have ended, by request id.
var want = map[string]struct {
	status  durable.SubmissionStatus
	answers []string
}{
	"use tools":      {durable.SubmissionDone, []string{"the tools have run", "answer to change of plan"}},
	"change of plan": {durable.SubmissionDone, []string{"answer to change of plan"}},
	"and then":       {durable.SubmissionDone, []string{"answer to and then"}},
	"a note":         {durable.SubmissionDone, nil},
	"without end":    {durable.SubmissionUnanswered, nil},
	"the last word":  {durable.SubmissionDone, []string{"answer to the last word"}},
	"below":          {durable.SubmissionDone, []string{"answer to below"}},
}

func (c *crash) checkConversation(ctx context.Context, store durable.Store, conv durable.ConversationRecord, taken func(int64, string), effects map[string]int) {
	t := c.t
	entries, err := store.Entries(ctx, durable.EntryQuery{ConversationID: conv.ID})
	require.NoError(t, err)
	byID := map[durable.EntryID]*durable.Entry{}
	said := map[string]int{}
	calls, results := map[string]int{}, map[string]int{}
	var usage model.Usage
	tr := transcript.New()
	for i := range entries {
		e := &entries[i]
		taken(int64(e.ID), "entry")
		byID[e.ID] = e
		tr.Append(transcript.Item{ID: int64(e.ID), Messages: e.Model, Head: int64(e.Head)})
		switch e.Kind {
		case durable.KindUser:
			said[e.Model[0].Text()]++
		case durable.KindAssistant:
			for _, call := range e.Model[0].ToolCalls() {
				calls[call.ID]++
			}
			usage.Add(e.Model[0].Usage)
		case durable.KindToolResult:
			results[e.Model[0].ToolCallID]++
		}
	}
	require.Equal(t, calls, results, "each call has one result (E2.8)")
	for text, n := range said {
		require.Equal(t, 1, n, "user entries that say %q (E2.5)", text)
	}
	next := append(tr.Messages(), model.UserMessage("next", time.Now()))
	require.NoError(t, faux.Check(&model.Request{Model: faux.Model(), MaxOutputTokens: 100, Messages: next}))

	requests := []string{"use tools", "change of plan", "and then", "a note", "without end", "the last word"}
	if conv.Owner != nil {
		requests = []string{"below"}
	}
	settled := map[durable.SubmissionID]int{}
	for _, id := range requests {
		sub, err := store.SubmissionByRequest(ctx, conv.ID, id)
		require.NoError(t, err, "%s", id)
		taken(int64(sub.ID), "submission")
		settled[sub.ID] = 1
		require.Equal(t, want[id].status, sub.Status, "%s: %s %s", id, sub.Reason, sub.Detail)
		for line := range effects {
			var n durable.SubmissionID
			if _, err := fmt.Sscanf(line, "submission %d is", &n); err == nil && strings.HasSuffix(line, " is "+id) {
				require.Equal(t, sub.ID, n, "%s was acknowledged as another submission (E2.4, E2.5)", id)
			}
		}
		switch {
		case sub.Status == durable.SubmissionUnanswered:
			require.Equal(t, durable.ReasonAborted, sub.Reason)
		case sub.Type == durable.SubmissionInput:
			require.NotNil(t, byID[sub.AnswerEntryID], "%s", id)
			require.Contains(t, want[id].answers, byID[sub.AnswerEntryID].Model[0].Text())
		default:
			require.Equal(t, "crash.note", byID[sub.EntryID].Kind)
		}
	}
	var counted callbacks
	c.document(ctx, store, conv.ID, callbacksDoc.Kind(), &counted)
	require.Equal(t, settled, counted.Settled, "each submission is settled once, with what the host wrote then")
	var totals durable.UsageTotals
	c.document(ctx, store, conv.ID, "pi.usage", &totals)
	require.Equal(t, usage.Total, totals.Models["faux/faux-1"].Total, "usage is that of the entries (E15)")
}

func (c *crash) document(ctx context.Context, store durable.Store, owner durable.ConversationID, kind string, out any) {
	rec, err := store.Document(ctx, durable.DocKey{Scope: durable.ScopeConversation, Owner: int64(owner), Kind: kind})
	require.NoError(c.t, err)
	require.NoError(c.t, json.Unmarshal(rec.Value, out))
}
