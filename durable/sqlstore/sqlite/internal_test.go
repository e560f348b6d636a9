package sqlite

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The settings that durability depends on, as SQLite has them.
func TestConnector(t *testing.T) {
	t.Parallel()
	f := file{filepath.Join(t.TempDir(), "test.db")}
	require.NoError(t, f.create(t.Context()))
	pragma := func(db *sql.DB, name string) string {
		var value string
		require.NoError(t, db.QueryRowContext(t.Context(), "PRAGMA "+name).Scan(&value))
		return value
	}
	for s, want := range map[Synchronous]string{Full: "2", Normal: "1"} {
		db := sql.OpenDB(f.connector(writing(s)))
		require.Equal(t, want, pragma(db, "synchronous"))
		require.Equal(t, "wal", pragma(db, "journal_mode"))
		require.Equal(t, "1", pragma(db, "fullfsync"))
		require.Equal(t, "1", pragma(db, "checkpoint_fullfsync"))
		require.Equal(t, "0", pragma(db, "wal_autocheckpoint"))
		require.NoError(t, db.Close())
	}
	db := sql.OpenDB(f.connector(reading))
	defer db.Close()
	require.Equal(t, "1", pragma(db, "query_only"))
	_, err := db.ExecContext(t.Context(), "DELETE FROM entries")
	require.Error(t, err)
	_, err = db.ExecContext(t.Context(), "PRAGMA query_only = 0")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "DELETE FROM entries")
	require.Error(t, err, "the file is open for reading only")
}

// A program that is being started has the lock's file open for a moment. It
// does not keep the lock.
func TestLock_ReleasedInCopies(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.lock")
	l, err := takeLock(path)
	require.NoError(t, err)
	fd, err := unix.Dup(int(l.file.Fd()))
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, l.release())
	l, err = takeLock(path)
	require.NoError(t, err)
	require.NoError(t, l.release())
}
