package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

var errLine = errors.New("connection lost")

// lossy is a store on a connection that breaks during one commit: whether that
// is stored the engine is not told, and the next reads fail.
type lossy struct {
	durable.Store

	mu     sync.Mutex
	pick   func(b *durable.Batch) bool // the commit
	stored bool                        // whether it is stored
	reads  int                         // how many reads fail then
	stays  bool                        // all of them do, until heal
	trees  int                         // how many times a tree cannot be read then
	hit    bool                        // it happened
	down   bool
}

func (l *lossy) Commit(ctx context.Context, b *durable.Batch) (durable.Seq, error) {
	l.mu.Lock()
	hit := !l.hit && l.pick != nil && l.pick(b)
	down := l.down
	if hit {
		l.hit, l.down = true, l.stays || l.reads > 0
	}
	l.mu.Unlock()
	switch {
	case down || hit && !l.stored:
		return 0, errLine
	case hit:
		if _, err := l.Store.Commit(ctx, b); err != nil {
			return 0, err
		}
		return 0, errLine
	}
	return l.Store.Commit(ctx, b)
}

// heal brings the connection back.
func (l *lossy) heal() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stays, l.reads, l.trees, l.down = false, 0, 0, false
}

func (l *lossy) happened() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hit
}

func reading[T any](l *lossy, fn func() (T, error)) (T, error) {
	l.mu.Lock()
	down := l.down
	if down && !l.stays {
		l.reads--
		l.down = l.reads > 0
	}
	l.mu.Unlock()
	if down {
		var none T
		return none, errLine
	}
	return fn()
}

func (l *lossy) Conversation(ctx context.Context, id durable.ConversationID) (durable.ConversationRecord, error) {
	return reading(l, func() (durable.ConversationRecord, error) { return l.Store.Conversation(ctx, id) })
}

func (l *lossy) TreeConversations(ctx context.Context, id durable.ConversationID) ([]durable.ConversationRecord, error) {
	l.mu.Lock()
	lost := l.hit && l.trees > 0
	if lost {
		l.trees--
	}
	l.mu.Unlock()
	if lost {
		return nil, errLine
	}
	return reading(l, func() ([]durable.ConversationRecord, error) { return l.Store.TreeConversations(ctx, id) })
}

func (l *lossy) Claimed(ctx context.Context, scope, key string) (int64, error) {
	return reading(l, func() (int64, error) { return l.Store.Claimed(ctx, scope, key) })
}

func (l *lossy) Entry(ctx context.Context, id durable.EntryID) (durable.Entry, error) {
	return reading(l, func() (durable.Entry, error) { return l.Store.Entry(ctx, id) })
}

func (l *lossy) Entries(ctx context.Context, q durable.EntryQuery) ([]durable.Entry, error) {
	return reading(l, func() ([]durable.Entry, error) { return l.Store.Entries(ctx, q) })
}

func (l *lossy) Task(ctx context.Context, id durable.TaskID) (durable.TaskRecord, error) {
	return reading(l, func() (durable.TaskRecord, error) { return l.Store.Task(ctx, id) })
}

func (l *lossy) Tasks(ctx context.Context, q durable.TaskQuery) ([]durable.TaskRecord, error) {
	return reading(l, func() ([]durable.TaskRecord, error) { return l.Store.Tasks(ctx, q) })
}

func (l *lossy) Partial(ctx context.Context, id durable.TaskID) ([][]byte, error) {
	return reading(l, func() ([][]byte, error) { return l.Store.Partial(ctx, id) })
}

func (l *lossy) Submission(ctx context.Context, id durable.SubmissionID) (durable.SubmissionRecord, error) {
	return reading(l, func() (durable.SubmissionRecord, error) { return l.Store.Submission(ctx, id) })
}

func (l *lossy) SubmissionByRequest(ctx context.Context, c durable.ConversationID, id string) (durable.SubmissionRecord, error) {
	return reading(l, func() (durable.SubmissionRecord, error) { return l.Store.SubmissionByRequest(ctx, c, id) })
}

func (l *lossy) OpenSubmissions(ctx context.Context, tree durable.ConversationID) ([]durable.SubmissionRecord, error) {
	return reading(l, func() ([]durable.SubmissionRecord, error) { return l.Store.OpenSubmissions(ctx, tree) })
}

func (l *lossy) Document(ctx context.Context, key durable.DocKey) (durable.DocRecord, error) {
	return reading(l, func() (durable.DocRecord, error) { return l.Store.Document(ctx, key) })
}

// lossyRig is a rig on such a store.
func lossyRig(t *testing.T, pick func(b *durable.Batch) bool, exts ...durable.Extension) (*rig, *lossy) {
	t.Helper()
	r := newRig(t, exts...)
	l := &lossy{Store: r.history, pick: pick}
	r.store = l
	return r, l
}

func submits(b *durable.Batch) bool { return len(b.Submissions) > 0 }

// TestUncertain_EveryCommit loses the connection at each commit of a run with
// a streamed answer, a tool with running output and a second answer. Whatever
// became of the commit, the run ends as if nothing had been: no entry twice, no
// request and no tool twice, its cost counted once, and every reader sees the
// text that is stored (E4.3, E2.2, E2.6, E2.7, E15, E17.5).
func TestUncertain_EveryCommit(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{true, false} {
		for _, down := range []struct {
			name         string
			reads, trees int
		}{{"at once", 0, 0}, {"after one read", 1, 0}, {"after five reads", 5, 0}, {"but not the tree", 0, 2}} {
			t.Run(fmt.Sprintf("stored %v, back %s", stored, down.name), func(t *testing.T) {
				t.Parallel()
				n := 1
				for hit := true; hit; n++ {
					hit = false
					bubble(t, func(t *testing.T) {
						left := n
						r, l := lossyRig(t, nil)
						l.pick = func(*durable.Batch) bool { left--; return left == 0 }
						l.stored, l.reads, l.trees = stored, down.reads, down.trees
						uncertainRun(t, r, l)
						hit = l.happened()
					})
				}
				require.Greater(t, n, 12, "commits of the run")
			})
		}
	}
}

func uncertainRun(t *testing.T, r *rig, l *lossy) {
	var starts atomic.Int32
	readable := l.trees == 0
	require.NoError(t, r.opts.Registry.Install(tools(tool("look", func(_ context.Context, call *durable.ToolCall, _ string) (durable.ToolResult, error) {
		starts.Add(1)
		for range 3 {
			call.Output([]byte("half\n"))
			<-time.After(time.Second)
		}
		return durable.TextResult("seen"), nil
	}))))
	r.open()
	usage := &model.Usage{Input: 10, Output: 5, Total: 15}
	look := call("look", `{"text":"a"}`)
	look.Text, look.ChunkSize, look.ChunkMS, look.Usage = "let me look at it", 4, 200, usage
	r.model.Push(look, faux.Step{Text: "this is what I saw", ChunkSize: 4, ChunkMS: 200, Usage: usage})

	c, err := r.engine.NewConversation(r.ctx, &durable.ConversationParams{Claim: &durable.Claim{Scope: "test", Key: "a"}})
	require.NoError(t, err)
	p := &durable.SubmitParams{RequestID: "a", Content: []model.Block{model.Text("go")}}
	s, known, err := c.Submit(r.ctx, p)
	for errors.Is(err, errLine) { // nothing was written: the tree could not be read
		after(time.Second)
		s, known, err = c.Submit(r.ctx, p)
	}
	require.NoError(t, err)
	require.False(t, known)
	var live *listener
	if readable { // else its reader may be told so
		live = listen(r, s)
	}
	after(time.Minute)
	require.Equal(t, "this is what I saw", r.answer(s))
	l.heal()

	if live != nil {
		require.Equal(t, "this is what I saw", live.end().text(), "as it was shown")
	}
	require.Equal(t, "this is what I saw", listen(r, s).end().text(), "as it is shown later")
	require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.assistant"}, r.kinds(c))
	require.EqualValues(t, 1, starts.Load(), "starts of the tool")
	require.EqualValues(t, 2, r.model.Count(), "requests")
	total, err := c.Usage(r.ctx)
	require.NoError(t, err)
	require.EqualValues(t, 30, total.Models["faux/faux-1"].Total)
	owner, err := r.store.Claimed(r.ctx, "test", "a")
	require.NoError(t, err)
	require.EqualValues(t, c.ID(), owner)
	_, known, err = c.Submit(r.ctx, p)
	require.NoError(t, err)
	require.True(t, known, "admitted once (E2.5)")
	r.sameAsFresh(c)
}

// A caller that gives up leaves the question to the next user of the tree,
// which learns the truth before it does anything (E4.3, E2.5).
func TestUncertain_NextUserLearns(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{true, false} {
		t.Run(fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				r, l := lossyRig(t, submits)
				l.stored, l.stays = stored, true
				r.open()
				c := r.conversation()
				ctx, cancel := context.WithTimeout(r.ctx, time.Second)
				defer cancel()
				p := &durable.SubmitParams{RequestID: "a", Content: []model.Block{model.Text("go")}}
				_, _, err := c.Submit(ctx, p)
				require.ErrorIs(t, err, errLine)
				require.NotErrorIs(t, err, durable.ErrRejected, "nobody knows yet")
				_, _, err = c.Submit(r.ctx, p)
				require.ErrorIs(t, err, errLine, "while it is unknown nothing is admitted")

				l.heal()
				r.model.Push(text("once"))
				s, known, err := c.Submit(r.ctx, p)
				require.NoError(t, err)
				require.Equal(t, stored, known)
				require.Equal(t, "once", r.answer(s))
				require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
				after(time.Hour)
				require.EqualValues(t, 1, r.model.Count(), "requests")
			})
		})
	}
}

// An admitted input is answered also when nobody comes back for it (E2.7).
func TestUncertain_GoesOnByItself(t *testing.T) {
	t.Parallel()
	t.Run("the caller gave up", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T) {
			r, l := lossyRig(t, submits)
			l.stored, l.stays = true, true
			r.open()
			c := r.conversation()
			ctx, cancel := context.WithTimeout(r.ctx, time.Second)
			defer cancel()
			_, err := c.Send(ctx, "go")
			require.ErrorIs(t, err, errLine)
			r.model.Push(text("once"))
			l.heal()
			after(time.Minute)
			require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
		})
	})
	t.Run("the tree could not be read", func(t *testing.T) {
		t.Parallel()
		bubble(t, func(t *testing.T) {
			r, l := lossyRig(t, submits)
			l.stored, l.trees = true, 1
			r.open()
			c := r.conversation()
			r.model.Push(text("once"))
			_, err := c.Send(r.ctx, "go")
			require.NoError(t, err, "it is known to be stored")
			after(time.Minute)
			require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
		})
	})
}

// A tree whose commit is unresolved stays in memory however long that takes:
// were it read a second time, its tasks would run twice.
func TestUncertain_TreeIsKept(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r, l := lossyRig(t, submits)
		l.stored, l.stays = true, true
		r.opts.Retention = time.Second
		r.open()
		c := r.conversation()
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		_, err := c.Send(ctx, "go")
		require.ErrorIs(t, err, errLine)
		after(time.Hour)
		r.model.AddRules([]faux.Rule{{Step: faux.Step{Text: "once", DelayMS: 60_000}}}, 0)
		l.heal()
		busy, err := c.Busy(r.ctx)
		require.NoError(t, err)
		require.True(t, busy)
		after(time.Hour)
		require.EqualValues(t, 1, r.model.Count(), "requests")
		require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
	})
}

// A conversation whose first commit was lost does not exist; one whose fate is
// unknown is found when it is there (E4.3).
func TestUncertain_NewConversation(t *testing.T) {
	t.Parallel()
	for _, stored := range []bool{true, false} {
		t.Run(fmt.Sprintf("stored %v", stored), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				r, l := lossyRig(t, func(b *durable.Batch) bool { return len(b.Conversations) > 0 })
				l.stored, l.stays = stored, true
				r.open()
				ctx, cancel := context.WithTimeout(r.ctx, time.Second)
				defer cancel()
				p := &durable.ConversationParams{Claim: &durable.Claim{Scope: "test", Key: "a"}}
				_, err := r.engine.NewConversation(ctx, p)
				require.ErrorIs(t, err, errLine)
				require.NotErrorIs(t, err, durable.ErrNotFound)
				l.heal()
				after(time.Minute)

				c, err := r.engine.NewConversation(r.ctx, p)
				if stored {
					taken, ok := errors.AsType[*durable.ConflictError](err)
					require.True(t, ok, "%v", err)
					c, err = r.engine.Conversation(r.ctx, durable.ConversationID(taken.Claim.Value))
				}
				require.NoError(t, err)
				r.model.Push(text("here"))
				require.Equal(t, "here", r.answer(r.send(c, "go")))
				list, err := r.engine.Conversations(r.ctx, durable.ConversationQuery{Limit: 10})
				require.NoError(t, err)
				require.Len(t, list, 1)
			})
		})
	}
}

type tally struct{ N int }

// A change of a global document is applied once (E4.1, E4.3).
func TestUncertain_GlobalDocument(t *testing.T) {
	t.Parallel()
	doc := durable.NewDoc(durable.DocSpec[tally]{Kind: "test.tally", Scope: durable.ScopeGlobal})
	documents := func(b *durable.Batch) bool { return len(b.Documents) > 0 }
	for name, change := range map[string]func(r *rig) error{
		"UpdateGlobal": func(r *rig) error {
			return doc.UpdateGlobal(r.ctx, r.engine, func(v *tally) error { v.N++; return nil })
		},
		"Edit": func(r *rig) error {
			return r.conversation().Update(r.ctx, func(_ context.Context, tx *durable.Tx) error {
				v, err := doc.Edit(tx, 0)
				if err == nil {
					v.N++
				}
				return err
			})
		},
	} {
		for _, stored := range []bool{true, false} {
			for _, reads := range []int{0, 1, 5} {
				t.Run(fmt.Sprintf("%s, stored %v, %d reads fail", name, stored, reads), func(t *testing.T) {
					t.Parallel()
					bubble(t, func(t *testing.T) {
						r, l := lossyRig(t, documents)
						l.stored, l.reads = stored, reads
						r.open()
						require.NoError(t, change(r))
						require.True(t, l.happened())
						v, err := doc.Get(r.ctx, r.engine, 0)
						require.NoError(t, err)
						require.Equal(t, 1, v.N)
					})
				})
			}
		}
	}
}
