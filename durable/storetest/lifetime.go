package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/wp-durable/wp-durable/durable"
)

var lifetimeTests = map[string]func(t *testing.T, h Harness){
	"describes itself":                   testInfo,
	"refuses everything when closed":     testClosed,
	"has its content when opened again":  testReopen,
	"gives no id twice over a reopening": testReopenIDs,
}

func testInfo(t *testing.T, h Harness) {
	tree := newTree(t, h.Store)
	mustCommit(t, h.Store, durable.Batch{Entries: []durable.Entry{sampleEntry(5, tree)}})
	info, err := h.Store.Info(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, info.Kind)
	require.Positive(t, info.Bytes)
}

func testClosed(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "twice is fine")
	calls := map[string]func() error{
		"Commit":              func() error { _, err := s.Commit(ctx, &durable.Batch{}); return err },
		"AllocateIDs":         func() error { _, err := s.AllocateIDs(ctx, 1); return err },
		"Info":                func() error { _, err := s.Info(ctx); return err },
		"Conversation":        func() error { _, err := s.Conversation(ctx, 1); return err },
		"TreeConversations":   func() error { _, err := s.TreeConversations(ctx, 1); return err },
		"Conversations":       func() error { _, err := s.Conversations(ctx, durable.ConversationQuery{Limit: 1}); return err },
		"Claimed":             func() error { _, err := s.Claimed(ctx, "s", "k"); return err },
		"Entry":               func() error { _, err := s.Entry(ctx, 1); return err },
		"Entries":             func() error { _, err := s.Entries(ctx, durable.EntryQuery{ConversationID: 1}); return err },
		"NewestHead":          func() error { _, err := s.NewestHead(ctx, 1, 0); return err },
		"Task":                func() error { _, err := s.Task(ctx, 1); return err },
		"Tasks":               func() error { _, err := s.Tasks(ctx, durable.TaskQuery{}); return err },
		"LiveTrees":           func() error { _, err := s.LiveTrees(ctx, 0, 1); return err },
		"Partial":             func() error { _, err := s.Partial(ctx, 1); return err },
		"Submission":          func() error { _, err := s.Submission(ctx, 1); return err },
		"SubmissionByRequest": func() error { _, err := s.SubmissionByRequest(ctx, 1, "r"); return err },
		"OpenSubmissions":     func() error { _, err := s.OpenSubmissions(ctx, 1); return err },
		"Document":            func() error { _, err := s.Document(ctx, durable.DocKey{}); return err },
		"Documents":           func() error { _, err := s.Documents(ctx, durable.ScopeGlobal, 0); return err },
		"DocumentAsOf":        func() error { _, err := s.DocumentAsOf(ctx, durable.DocKey{}, 1); return err },
		"VisitDocuments":      func() error { return s.VisitDocuments(ctx, durable.ScopeGlobal, "k", nil) },
	}
	for name, call := range calls {
		require.ErrorIs(t, call(), durable.ErrStoreClosed, name)
	}
}

func testReopen(t *testing.T, h Harness) {
	if h.Reopen == nil {
		return // the content ends with the store
	}
	tree := newTree(t, h.Store)
	var all []everything
	for range 3 {
		e := newEverything(t, h.Store, tree)
		mustCommit(t, h.Store, e.batch())
		all = append(all, e)
		s := h.Reopen(t)
		for _, e := range all {
			e.requireStored(t, s)
		}
		require.Equal(t, durable.Seq(1), mustCommit(t, s, durable.Batch{}), "numbers start again")
		h.Store = s
	}
}

func testReopenIDs(t *testing.T, h Harness) {
	if h.Reopen == nil {
		return // the content ends with the store
	}
	last := slices.Max(ids(t, h.Store, 10))
	for range 3 {
		next := ids(t, h.Reopen(t), 7)
		require.Greater(t, next[0], last)
		last = next[6]
	}
}

// testCloseUnderWay closes a store while it is busy: every commit was stored
// and acknowledged, or refused.
func testCloseUnderWay(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	tree := newTree(t, s)
	const writers = 16
	id := ids(t, s, writers*50)
	acked := make([][]durable.EntryID, writers)
	busy := make(chan struct{}, writers)
	var g errgroup.Group
	for w := range writers {
		g.Go(func() error {
			for n := range 50 {
				e := durable.EntryID(id[w*50+n])
				_, err := s.Commit(ctx, &durable.Batch{Entries: []durable.Entry{{ID: e, ConversationID: tree, Kind: "k"}}})
				if n == 0 {
					busy <- struct{}{}
				}
				switch {
				case errors.Is(err, durable.ErrStoreClosed):
					return nil
				case err != nil:
					return err
				}
				acked[w] = append(acked[w], e)
			}
			return nil
		})
	}
	for range writers {
		<-busy
	}
	require.NoError(t, s.Close())
	require.NoError(t, g.Wait())
	if h.Reopen == nil {
		return
	}
	stored, err := h.Reopen(t).Entries(ctx, durable.EntryQuery{ConversationID: tree})
	require.NoError(t, err)
	var got []durable.EntryID
	for _, e := range stored {
		got = append(got, e.ID)
	}
	want := slices.Concat(acked...)
	slices.Sort(want)
	require.Equal(t, want, got)
}

// testCancelledCommits cancels commits at any time: ErrRejected means that the
// batch is not there, nil that it is.
func testCancelledCommits(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	id := ids(t, s, 400)
	var g errgroup.Group
	for w := range 8 {
		g.Go(func() error {
			for n := range 50 {
				e := durable.EntryID(id[w*50+n])
				ctx, cancel := context.WithCancel(context.Background())
				over := make(chan struct{})
				go func() {
					defer close(over)
					cancel()
				}()
				_, err := s.Commit(ctx, &durable.Batch{Entries: []durable.Entry{{ID: e, ConversationID: tree, Kind: "k"}}})
				<-over
				_, found := s.Entry(context.Background(), e)
				switch {
				case err == nil && found != nil:
					return fmt.Errorf("entry %d was acknowledged: %w", e, found)
				case err != nil && !errors.Is(err, durable.ErrRejected):
					return err
				case err != nil && !errors.Is(found, durable.ErrNotFound):
					return fmt.Errorf("entry %d was rejected, and is there: %w", e, found)
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
}

func testSeqConcurrent(t *testing.T, h Harness) {
	s, ctx := h.Store, t.Context()
	seqs := make([][]durable.Seq, 8)
	var g errgroup.Group
	for w := range seqs {
		g.Go(func() error {
			for range 25 {
				seq, err := s.Commit(ctx, &durable.Batch{})
				if err != nil {
					return err
				}
				seqs[w] = append(seqs[w], seq)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	for _, own := range seqs {
		require.IsIncreasing(t, own)
	}
	all := slices.Concat(seqs...)
	slices.Sort(all)
	for i, seq := range all {
		require.Equal(t, durable.Seq(i+1), seq)
	}
}
