package durable_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

// Commits of one tree are in one order, first come, first served; other trees
// do not wait for its callbacks (E4.1).
func TestUpdate_Line(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t).open()
		c, other := r.conversation(), r.conversation()
		held, let := make(chan struct{}), make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			r.update(c, func(*durable.Tx) error { close(held); <-let; return nil })
		})
		<-held
		for i := range 20 {
			wg.Go(func() {
				r.update(c, func(tx *durable.Tx) error { _, err := tx.AppendEntry(c.ID(), *note(fmt.Sprint(i))); return err })
			})
			synctest.Wait() // it queues before the next one comes
		}
		ctx, cancel := context.WithCancel(r.ctx)
		impatient := make(chan error, 1)
		wg.Go(func() {
			impatient <- c.Update(ctx, func(context.Context, *durable.Tx) error { panic("gave up before") })
		})
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-impatient, context.Canceled)

		r.update(other, func(tx *durable.Tx) error { _, err := tx.AppendEntry(other.ID(), *note("free")); return err })
		require.Len(t, r.entries(other), 1)
		require.Empty(t, r.entries(c))
		close(let)
		wg.Wait()
		for i, e := range r.entries(c) {
			require.Equal(t, fmt.Sprintf("%q", fmt.Sprint(i)), string(e.Data))
		}
		require.Len(t, r.entries(c), 20)
	})
}

// A callback that fails or panics stores nothing and leaves nothing in memory
// (E4.2).
func TestUpdate_Fails(t *testing.T) {
	t.Parallel()
	kind := sleeper()
	doc := durable.NewDoc(durable.DocSpec[int]{Kind: "test.n", Scope: durable.ScopeConversation})
	r := newRig(t, kinds(kind)).open()
	c := r.conversation()
	boom := errors.New("boom")
	for name, end := range map[string]func() error{"error": func() error { return boom }, "panic": func() error { panic(boom) }} {
		before, _ := r.history.counts()
		var made durable.TaskID
		err := c.Update(r.ctx, func(_ context.Context, tx *durable.Tx) error {
			n, err := doc.Edit(tx, int64(c.ID()))
			require.NoError(t, err)
			*n = 7
			_, err = tx.AppendEntry(c.ID(), *note("a"))
			require.NoError(t, err)
			made, err = durable.StartTask(tx, kind, 0, durable.TaskOptions{Conversation: c.ID()})
			require.NoError(t, err)
			_, _, err = tx.Submit(c.ID(), &durable.SubmitParams{RequestID: "a", Content: []model.Block{model.Text("hello")}})
			require.NoError(t, err)
			return end()
		})
		require.ErrorContains(t, err, "boom", name)
		now, _ := r.history.counts()
		require.Equal(t, before, now)
		n, err := doc.Get(r.ctx, r.engine, int64(c.ID()))
		require.NoError(t, err)
		require.Zero(t, n)
		require.Empty(t, r.entries(c))
		_, err = r.engine.Task(r.ctx, made)
		require.ErrorIs(t, err, durable.ErrNotFound)
		busy, err := c.Busy(r.ctx)
		require.NoError(t, err)
		require.False(t, busy)
	}
	r.sameAsFresh(c)
}

// A Tx ends with its callback (E4.2).
func TestUpdate_TxDone(t *testing.T) {
	t.Parallel()
	kind := sleeper()
	doc := durable.NewDoc(durable.DocSpec[int]{Kind: "test.n", Scope: durable.ScopeConversation})
	r := newRig(t, kinds(kind)).open()
	c := r.conversation()
	var tx *durable.Tx
	r.update(c, func(inner *durable.Tx) error { tx = inner; return nil })
	for name, use := range map[string]func() error{
		"AppendEntry": func() error { _, err := tx.AppendEntry(c.ID(), *note("a")); return err },
		"Task":        func() error { _, err := tx.Task(1); return err },
		"StartTask": func() error {
			_, err := durable.StartTask(tx, kind, 0, durable.TaskOptions{Conversation: c.ID()})
			return err
		},
		"Abort":              func() error { return tx.Abort(1, "") },
		"Submit":             func() error { _, _, err := tx.Submit(c.ID(), input("", "a")); return err },
		"CreateConversation": func() error { _, err := tx.CreateConversation(1); return err },
		"ChangeAgent":        func() error { return tx.ChangeAgent(c.ID(), &durable.AgentChange{}) },
		"Doc.Edit":           func() error { _, err := doc.Edit(tx, int64(c.ID())); return err },
		"Doc.Read":           func() error { _, err := doc.Read(tx, int64(c.ID())); return err },
	} {
		require.ErrorIs(t, use(), durable.ErrTxDone, name)
	}
}

// An Update within an Update is refused, on the same tree and on another one,
// and so is all that would commit (E4.2).
func TestUpdate_Nested(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c, other := r.conversation(), r.conversation()
	require.NoError(t, c.Update(r.ctx, func(ctx context.Context, tx *durable.Tx) error {
		for name, call := range map[string]func() error{
			"same tree":    func() error { return c.Update(ctx, func(context.Context, *durable.Tx) error { return nil }) },
			"another tree": func() error { return other.Update(ctx, func(context.Context, *durable.Tx) error { return nil }) },
			"Submit":       func() error { _, err := other.Send(ctx, "a"); return err },
			"Abort":        func() error { _, err := c.Abort(ctx, nil); return err },
			"ChangeAgent":  func() error { return c.ChangeAgent(ctx, &durable.AgentChange{}) },
			"WaitIdle":     func() error { return waitBusy(ctx, c) },
			"NewConversation": func() error {
				_, err := r.engine.NewConversation(ctx, nil)
				return err
			},
		} {
			require.ErrorIs(t, call(), durable.ErrNestedUpdate, name)
		}
		_, err := c.Context(ctx)
		require.NoError(t, err, "reading is fine")
		return nil
	}))
}

func waitBusy(ctx context.Context, c *durable.Conversation) error { return c.WaitIdle(ctx) }

// Once the callback has returned nil the commit is made, whatever becomes of
// the caller's context, also where the engine has to read for it; until then it
// gives up (E4.2).
func TestUpdate_Cancel(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t)
		hooked := 0
		r.opts.OnSettle = func(ctx context.Context, tx *durable.Tx, s durable.SubmissionRecord) error {
			hooked++
			require.NoError(t, ctx.Err())
			_, err := tx.AppendEntry(s.ConversationID, *note("settled"))
			return err
		}
		r.open()
		c := r.conversation()
		ctx, cancel := context.WithCancel(r.ctx)
		require.NoError(t, c.Update(ctx, func(_ context.Context, tx *durable.Tx) error {
			defer cancel()
			_, _, err := tx.Submit(c.ID(), &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: note("a")})
			return err
		}))
		require.Equal(t, 1, hooked)
		require.Equal(t, []string{"test.note", "test.note"}, r.kinds(c))

		err := c.Update(ctx, func(context.Context, *durable.Tx) error { panic("not called") })
		require.ErrorIs(t, err, context.Canceled)
	})
}

// Nothing is to be seen before it is stored: not in a return value, not in a
// read, not in an event (E2.2).
func TestUpdate_NothingBeforeItIsStored(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, tools(echoTool()))
		faulty := storetest.Faulty(r.history)
		var events int
		var seen []int
		var c *durable.Conversation
		faulty.Before = func(n int, b *durable.Batch) {
			// What others see while the batch is not stored yet.
			synctest.Wait()
			seen = append(seen, events)
		}
		count := []int{}
		faulty.After = func(n int, b *durable.Batch, err error) { count = append(count, events) }
		r.store = faulty
		r.open()
		c = r.conversation()
		go func() {
			for _, err := range c.Events(r.ctx, "") {
				if err != nil {
					return
				}
				events++
			}
		}()
		synctest.Wait()
		require.Equal(t, 1, events)
		r.model.Push(call("echo", `{"text":"a"}`), text("done"))
		s := r.send(c, "go")
		require.Equal(t, "done", r.answer(s))
		after(time.Second)
		// While a batch was on its way, no event of it came: what was seen when
		// it began is what was seen when it was stored.
		require.Equal(t, seen, count)
		require.Greater(t, events, 15)
	})
}

// takenOver is a store whose next id blocks lie below what a tree holds, as
// for a node that takes a tree over from another one.
type takenOver struct {
	durable.Store
	mu     sync.Mutex
	blocks []int64
}

func (s *takenOver) AllocateIDs(ctx context.Context, n int) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.blocks) > 0 {
		first := s.blocks[0]
		s.blocks = s.blocks[1:]
		return first, nil
	}
	return s.Store.AllocateIDs(ctx, n)
}

// Ids of a tree increase in the order of its commits, also when the engine's
// block of ids is older than the tree's newest (E3).
func TestUpdate_IDsOfATreeIncrease(t *testing.T) {
	t.Parallel()
	const block = 8192
	mem := memstore.New()
	// Ten blocks, of which the first engine uses the last.
	first, err := mem.AllocateIDs(t.Context(), 10*block)
	require.NoError(t, err)
	r := newRig(t)
	r.history = newHistory(mem)
	r.store = &takenOver{Store: r.history, blocks: []int64{first + 9*block}}
	r.open()
	c := r.conversation()
	r.model.Push(text("one"), text("two"))
	r.answer(r.send(c, "first"))
	r.close()
	r.store = &takenOver{Store: r.history, blocks: []int64{first, first + block, first + 2*block}}
	r.open()
	c = r.again(c)
	fresh := r.conversation() // of a low id, another tree
	require.Less(t, int64(fresh.ID()), int64(c.ID()))
	r.answer(r.send(c, "second")) // the history checks the order
	entries := r.entries(c)
	for i := range entries[1:] {
		require.Greater(t, entries[i+1].ID, entries[i].ID)
	}
	require.Greater(t, int64(entries[2].ID), first+9*block)
}
