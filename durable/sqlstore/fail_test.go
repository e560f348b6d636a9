package sqlstore_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

func isFailed(s *sqlstore.Store) bool {
	select {
	case <-s.Failed():
		return true
	default:
		return false
	}
}

// requireFailed requires that a store answers nothing any more, and that
// closing it leaves its log alone.
func requireFailed(t *testing.T, s *sqlstore.Store, path string) {
	t.Helper()
	require.True(t, isFailed(s))
	_, err := s.Commit(t.Context(), claim("later", 1))
	require.ErrorIs(t, err, durable.ErrStoreFailed)
	require.NotErrorIs(t, err, durable.ErrRejected)
	_, err = s.AllocateIDs(t.Context(), 1)
	require.ErrorIs(t, err, durable.ErrStoreFailed)
	_, err = s.Claimed(t.Context(), "s", "before")
	require.ErrorIs(t, err, durable.ErrStoreFailed)
	_, err = s.Info(t.Context())
	require.ErrorIs(t, err, durable.ErrStoreFailed)

	// Closing copies nothing: nobody knows whether the log is on the disk.
	files := func() string {
		var out []string
		for _, name := range []string{path, path + "-wal"} {
			info, err := os.Stat(name)
			require.NoError(t, err)
			out = append(out, fmt.Sprint(info.Size(), info.ModTime()))
		}
		return strings.Join(out, " ")
	}
	before := files()
	require.NoError(t, s.Close())
	require.Equal(t, before, files())
	_, err = s.Commit(t.Context(), claim("later", 1))
	require.ErrorIs(t, err, durable.ErrStoreClosed)
}

// E4.3: an I/O error at a commit fails the store, whatever else waits.
func TestFail_Commit(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]int{"fsync": 10 | 4<<8, "write": 10 | 3<<8, "corrupt": 11, "unknown": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, path := openStore(t, nil)
			mustCommit(t, s, claim("before", 1))
			errs := group(t, s, []*durable.Batch{claim("a", 1), claim("b", 1)}, func(step string) error {
				if step == sqlstore.StepCommit {
					return sqlstore.FaultError(code)
				}
				return nil
			}, nil)
			for _, err := range errs {
				require.ErrorIs(t, err, durable.ErrStoreFailed)
				require.NotErrorIs(t, err, durable.ErrRejected)
			}
			requireFailed(t, s, path)
			again := openAt(t, path, nil)
			require.True(t, stored(t, again, "before"))
		})
	}
}

// An I/O error while rows are written fails the store, too.
func TestFail_Write(t *testing.T) {
	t.Parallel()
	s, path := openStore(t, nil)
	mustCommit(t, s, claim("before", 1))
	require.NoError(t, s.SetFault(func(step string) error {
		if step == sqlstore.StepWrite {
			return sqlstore.FaultError(10)
		}
		return nil
	}))
	_, err := s.Commit(t.Context(), claim("a", 1))
	require.ErrorIs(t, err, durable.ErrStoreFailed)
	requireFailed(t, s, path)
	require.False(t, stored(t, openAt(t, path, nil), "a"))
}

// fill commits until the store has copied its log, or fails.
func fill(t *testing.T, s *sqlstore.Store) error {
	t.Helper()
	data := []byte(strings.Repeat("x", 20000))
	for n := range 10000 {
		if s.Stats().Checkpoints > 2 {
			return nil
		}
		_, err := s.Commit(t.Context(), &durable.Batch{Partials: []durable.PartialWrite{{TaskID: durable.TaskID(n), Data: data}}})
		if err != nil {
			return err
		}
	}
	t.Fatal("the log is not copied")
	return nil
}

// E4.3: so does one when the log is copied.
func TestFail_Checkpoint(t *testing.T) {
	t.Parallel()
	s, path := openStore(t, &sqlite.Options{CheckpointPages: 20})
	mustCommit(t, s, claim("before", 1))
	require.NoError(t, s.SetFault(func(step string) error {
		if step == sqlstore.StepCheckpoint {
			return sqlstore.FaultError(10 | 4<<8)
		}
		return nil
	}))
	require.ErrorIs(t, fill(t, s), durable.ErrStoreFailed)
	requireFailed(t, s, path)
	require.True(t, stored(t, openAt(t, path, nil), "before"))
}

// The log is copied while commits go on, and begins again: it does not grow
// for ever.
func TestCheckpoint(t *testing.T) {
	t.Parallel()
	s, path := openStore(t, &sqlite.Options{CheckpointPages: 20})
	require.NoError(t, fill(t, s))
	for range 60 {
		before := s.Stats().Checkpoints
		for n := 0; s.Stats().Checkpoints == before; n++ {
			require.Less(t, n, 10000)
			mustCommit(t, s, &durable.Batch{Partials: []durable.PartialWrite{{TaskID: 1, Data: make([]byte, 20000)}}})
		}
	}
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	require.Less(t, info.Size(), int64(1<<20))
	partial, err := s.Partial(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = os.Stat(path + "-wal")
	require.ErrorIs(t, err, os.ErrNotExist, "closing copies all")
	again, err := openAt(t, path, nil).Partial(t.Context(), 1)
	require.NoError(t, err)
	require.Equal(t, len(partial), len(again))
}

// A reader that keeps an old state does not stop the store, and is not asked
// again after every commit.
func TestCheckpoint_SlowReader(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, &sqlite.Options{CheckpointPages: 200})
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "k"}
	mustCommit(t, s, &durable.Batch{Documents: []durable.DocumentWrite{{Record: durable.DocRecord{DocKey: key, Value: []byte("1")}}}})
	require.NoError(t, s.VisitDocuments(t.Context(), key.Scope, key.Kind, func(d durable.DocRecord) error {
		before := s.Stats()
		for range 300 {
			mustCommit(t, s, &durable.Batch{Partials: []durable.PartialWrite{{TaskID: 1, Data: make([]byte, 20000)}}})
		}
		copies := s.Stats().Checkpoints - before.Checkpoints
		require.Positive(t, copies)
		require.Less(t, copies, uint64(80))
		return nil
	}))
	require.NoError(t, fill(t, s))
}

// E4.4: a full disk rejects batches, each on its own, and nothing else happens.
// Here SQLite may use no more pages; see the test of a real one below.
func TestFull(t *testing.T) {
	t.Parallel()
	s, path := openStore(t, nil)
	mustCommit(t, s, claim("before", 1))
	pages, err := s.Pragma("page_count")
	require.NoError(t, err)
	_, err = s.Pragma("max_page_count = " + pages)
	require.NoError(t, err)
	large := func(key string) *durable.Batch {
		b := claim(key, 1)
		b.Partials = []durable.PartialWrite{{TaskID: 1, Data: make([]byte, 100000)}}
		return b
	}
	for range 3 {
		errs := group(t, s, []*durable.Batch{claim("a", 1), large("b"), claim("c", 1), large("d")}, nil, nil)
		require.ErrorIs(t, errs[1], durable.ErrStoreFull)
		require.ErrorIs(t, errs[1], durable.ErrRejected)
		require.ErrorIs(t, errs[3], durable.ErrStoreFull)
		for _, key := range []string{"b", "d"} {
			require.False(t, stored(t, s, key))
		}
		for _, key := range []string{"a", "c", "before"} {
			require.True(t, stored(t, s, key))
		}
		require.False(t, isFailed(s))
	}
	_, err = s.Pragma("max_page_count = 1000000")
	require.NoError(t, err)
	mustCommit(t, s, large("b"))
	require.NoError(t, s.Close())
	require.True(t, stored(t, openAt(t, path, nil), "b"))
}

// Every read of a large table goes by an index, and sorts only what is small.
func TestReads_UseIndexes(t *testing.T) {
	t.Parallel()
	s, _ := openStore(t, nil)
	ctx := context.Background()
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "k"}
	plans, err := s.Plans(func() {
		for _, descending := range []bool{false, true} {
			after := durable.Cursor{CreatedAt: benchTime, ID: 1}
			for _, parent := range []durable.ConversationID{0, 1} {
				for _, after := range []durable.Cursor{{}, after} {
					_, _ = s.Conversations(ctx, durable.ConversationQuery{Parent: parent, After: after, Limit: 1, Descending: descending})
				}
			}
			for _, from := range []durable.EntryID{0, 1} {
				for _, to := range []durable.EntryID{0, 1} {
					_, _ = s.Entries(ctx, durable.EntryQuery{ConversationID: 1, From: from, To: to, Limit: 1, Descending: descending})
				}
			}
			for _, live := range []bool{false, true} {
				for _, after := range []durable.TaskID{0, 1} {
					for _, q := range []durable.TaskQuery{{TreeID: 1}, {TreeID: 1, ConversationID: 1}, {ConversationID: 1}} {
						q.Live, q.After, q.Descending, q.Limit = live, after, descending, 1
						_, _ = s.Tasks(ctx, q)
					}
				}
			}
		}
		_, _ = s.Conversation(ctx, 1)
		_, _ = s.TreeConversations(ctx, 1)
		_, _ = s.Claimed(ctx, "s", "k")
		_, _ = s.Entry(ctx, 1)
		_, _ = s.NewestHead(ctx, 1, 0)
		_, _ = s.NewestHead(ctx, 1, 1)
		_, _ = s.Task(ctx, 1)
		_, _ = s.LiveTrees(ctx, 1, 1)
		_, _ = s.Partial(ctx, 1)
		_, _ = s.Submission(ctx, 1)
		_, _ = s.SubmissionByRequest(ctx, 1, "r")
		_, _ = s.OpenSubmissions(ctx, 1)
		_, _ = s.Document(ctx, key)
		_, _ = s.Documents(ctx, key.Scope, key.Owner)
		_, _ = s.DocumentAsOf(ctx, key, 1)
		_ = s.VisitDocuments(ctx, key.Scope, key.Kind, func(durable.DocRecord) error { return nil })
	})
	require.NoError(t, err)
	require.Greater(t, len(plans), 35)
	used := map[string]bool{}
	for query, plan := range plans {
		for _, step := range plan {
			if i := strings.Index(step, "INDEX "); i >= 0 {
				used[strings.Fields(step[i:])[1]] = true
			}
			// The pages of all conversations follow their index, from its
			// start or from the cursor on. Tasks that ended have none.
			if strings.HasPrefix(step, "SCAN conversations USING INDEX conversations_created") ||
				step == "SCAN tasks" && !strings.Contains(query, "live = 1") {
				continue
			}
			require.NotContains(t, step, "SCAN", query)
			if !strings.Contains(query, `"submissions"`) { // open ones of a few conversations
				require.NotContains(t, step, "TEMP B-TREE", query)
			}
		}
	}
	for _, index := range []string{
		"conversations_tree", "conversations_created", "conversations_parent", "entries_conversation", "entries_head", "tasks_live",
		"partials_task", "submissions_request", "submissions_open", "documents_key", "documents_kind",
	} {
		require.True(t, used[index], "nothing uses the index %s", index)
	}
}
