package sqlite_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

func openAt(t *testing.T, path string) *sqlstore.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), path, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// requireInUse requires that the database is locked by a process, and that the
// error names it and the file.
func requireInUse(t *testing.T, path string, pid int) {
	t.Helper()
	_, err := sqlite.Open(t.Context(), path, nil)
	require.ErrorIs(t, err, durable.ErrStoreInUse)
	host, herr := os.Hostname()
	require.NoError(t, herr)
	require.ErrorContains(t, err, path)
	require.ErrorContains(t, err, path+".lock")
	require.ErrorContains(t, err, fmt.Sprintf("process %d on %s, started 20", pid, host))
}

// E4.6: a second store in the same process.
func TestLock_SameProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	s := openAt(t, path)
	requireInUse(t, path, os.Getpid())
	requireInUse(t, path, os.Getpid())
	_, err := s.AllocateIDs(t.Context(), 1)
	require.NoError(t, err, "the holder is not disturbed")
	require.NoError(t, s.Close())
	openAt(t, path)
}

// E4.6, E2.4: another process, which is killed; its lock ends with it, and what
// it had acknowledged is there.
func TestLock_OtherProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	c := startChild(t, path)
	require.Equal(t, "open", c.line(t))
	acked := c.line(t)
	requireInUse(t, path, c.cmd.Process.Pid)
	require.NotEqual(t, os.Getpid(), c.cmd.Process.Pid)
	if rest := c.kill(t); len(rest) > 0 {
		acked = rest[len(rest)-1]
	}
	s := openAt(t, path)
	id, err := strconv.Atoi(acked)
	require.NoError(t, err)
	_, err = s.Entry(t.Context(), durable.EntryID(id))
	require.NoError(t, err)

	// The other way round: a process does not get what this one has.
	c = startChild(t, path)
	require.Contains(t, c.line(t), durable.ErrStoreInUse.Error())
}

// One database has one lock, whatever name it is opened by.
func TestLock_SymbolicLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "test.db")
	openAt(t, path)
	link := filepath.Join(dir, "link.db")
	require.NoError(t, os.Symlink("test.db", link))
	_, err := sqlite.Open(t.Context(), link, nil)
	require.ErrorIs(t, err, durable.ErrStoreInUse)
	require.ErrorContains(t, err, path+".lock")
	other := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Symlink(dir, other))
	_, err = sqlite.Open(t.Context(), filepath.Join(other, "test.db"), nil)
	require.ErrorIs(t, err, durable.ErrStoreInUse)
}

// A lock file that says nothing useful does not hide that it is locked.
func TestLock_UnknownHolder(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	openAt(t, path)
	require.NoError(t, os.Truncate(path+".lock", 0))
	_, err := sqlite.Open(t.Context(), path, nil)
	require.ErrorIs(t, err, durable.ErrStoreInUse)
	require.ErrorContains(t, err, "an unknown process")
}
