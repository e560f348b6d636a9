package sqlite_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore"
)

// lastOf returns the newest batch of killBatch that a store has, 0 for none,
// and requires that it has all before it, and no half.
func lastOf(t *testing.T, s *sqlstore.Store) durable.EntryID {
	t.Helper()
	ctx := t.Context()
	entries, err := s.Entries(ctx, durable.EntryQuery{ConversationID: 1})
	require.NoError(t, err)
	require.Zero(t, len(entries)%2, "half a batch")
	for i, e := range entries {
		require.Equal(t, durable.EntryID(i+1), e.ID, "a gap")
	}
	last := durable.EntryID(max(0, len(entries)-1))
	document, err := s.Document(ctx, durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "count"})
	if last == 0 {
		require.ErrorIs(t, err, durable.ErrNotFound)
	} else {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprint(last), string(document.Value))
	}
	partial, err := s.Partial(ctx, 1)
	require.NoError(t, err)
	require.Len(t, partial, len(entries)/2)
	return last
}

// E20, E2.1, E2.4: loss of power may leave the log with any length, and with
// anything behind what was flushed. Every commit whose frames are complete is
// there, and nothing of the next.
func TestPowerLoss(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	s := openAt(t, path)
	require.NoError(t, s.Close())
	database, err := os.ReadFile(path) // before it is open: reading it drops SQLite's locks
	require.NoError(t, err)

	s = openAt(t, path)
	const commits = 12
	ends := []int64{0} // of the log, by commit
	for n := range durable.EntryID(commits) {
		_, err := s.Commit(t.Context(), killBatch(2*n+1))
		require.NoError(t, err)
		info, err := os.Stat(path + "-wal")
		require.NoError(t, err)
		ends = append(ends, info.Size())
	}
	log, err := os.ReadFile(path + "-wal")
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Len(t, log, int(ends[commits]))

	rng := rand.New(rand.NewPCG(1, 2))
	var cuts []int64
	for _, end := range ends {
		cuts = append(cuts, end-1, end, end+24)
	}
	for range 30 {
		cuts = append(cuts, rng.Int64N(int64(len(log))+1))
	}
	dir := t.TempDir()
	for i, cut := range cuts {
		cut = min(max(0, cut), int64(len(log)))
		for name, tail := range map[string]func([]byte) []byte{
			"missing": func(b []byte) []byte { return b[:cut] },
			"zeros":   func(b []byte) []byte { clear(b[cut:]); return b },
			"garbage": func(b []byte) []byte {
				for i := cut; i < int64(len(b)); i++ {
					b[i] = byte(rng.Uint32())
				}
				return b
			},
		} {
			copied := filepath.Join(dir, fmt.Sprint(i, name))
			require.NoError(t, os.WriteFile(copied, database, 0o600))
			spoiled := tail(append([]byte{}, log...))
			require.NoError(t, os.WriteFile(copied+"-wal", spoiled, 0o600))
			intact := cut // zeros may be what was there
			for intact < int64(len(spoiled)) && spoiled[intact] == log[intact] {
				intact++
			}
			complete := 0
			for n, end := range ends {
				if end <= intact {
					complete = n
				}
			}
			s := openAt(t, copied)
			want := durable.EntryID(max(0, 2*complete-1))
			require.Equal(t, want, lastOf(t, s), "log cut at %d of %d, rest %s", cut, len(log), name)
			// It goes on.
			_, err := s.Commit(t.Context(), killBatch(durable.EntryID(2*complete+1)))
			require.NoError(t, err)
			require.NoError(t, s.Close())
		}
	}
}

// E2.4: a process that is killed at any time, also while it copies its log, has
// stored all that it acknowledged, and no half.
func TestKill(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	rng := rand.New(rand.NewPCG(3, 4))
	last := durable.EntryID(0)
	for range 8 {
		c := startChild(t, path)
		require.Equal(t, "open", c.line(t))
		var lines []string
		for range 1 + rng.IntN(150) {
			lines = append(lines, c.line(t))
		}
		lines = append(lines, c.kill(t)...)
		acked, err := strconv.Atoi(lines[len(lines)-1])
		require.NoError(t, err)
		s := openAt(t, path)
		found := lastOf(t, s)
		require.GreaterOrEqual(t, found, durable.EntryID(acked))
		require.LessOrEqual(t, found, durable.EntryID(acked)+2, "one more may be stored, and not told")
		require.Greater(t, found, last)
		last = found
		require.NoError(t, s.Close())
	}
}
