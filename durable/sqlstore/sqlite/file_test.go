package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

// contents are all files of a directory but the lock.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".lock") || strings.HasSuffix(e.Name(), "-shm") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(data)
	}
	return out
}

// requireRefused requires that a file is refused and left as it is, byte for
// byte, and that nothing keeps its lock.
func requireRefused(t *testing.T, path string, want error) error {
	t.Helper()
	before := contents(t, filepath.Dir(path))
	var err error
	for range 2 {
		_, err = sqlite.Open(context.Background(), path, nil)
		require.ErrorIs(t, err, want)
		require.ErrorContains(t, err, path)
	}
	require.Equal(t, before, contents(t, filepath.Dir(path)))
	return err
}

// some creates a database with something in it, and returns its path.
func some(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	s := openAt(t, path)
	for n := range 200 {
		_, err := s.Commit(t.Context(), &durable.Batch{
			Entries: []durable.Entry{{ID: durable.EntryID(n + 1), ConversationID: 1, Kind: strings.Repeat("k", 500)}},
		})
		require.NoError(t, err)
	}
	require.NoError(t, s.Close())
	return path
}

// raw opens a database with the driver alone.
func raw(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func run(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), query)
	require.NoError(t, err)
}

// E4.7: a newer schema is refused.
func TestOpen_Newer(t *testing.T) {
	t.Parallel()
	path := some(t)
	db := raw(t, path)
	run(t, db, "PRAGMA user_version = 99")
	require.NoError(t, db.Close())
	err := requireRefused(t, path, durable.ErrStoreNewer)
	require.ErrorContains(t, err, "99")
}

// E4.7: also when the newer version is in the log only, because the newer
// program was killed.
func TestOpen_NewerInLog(t *testing.T) {
	t.Parallel()
	path := some(t)
	db := raw(t, path)
	run(t, db, "PRAGMA wal_autocheckpoint = 0")
	run(t, db, "PRAGMA user_version = 99")
	copied := filepath.Join(t.TempDir(), "test.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		require.NoError(t, err)
		require.NotEmpty(t, data)
		require.NoError(t, os.WriteFile(copied+suffix, data, 0o600))
	}
	requireRefused(t, copied, durable.ErrStoreNewer)
}

// E4.6: a database of another application is refused.
func TestOpen_Foreign(t *testing.T) {
	t.Parallel()
	for name, pragma := range map[string]string{"without an id": "PRAGMA user_version = 1", "with an id": "PRAGMA application_id = 77"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "test.db")
			db := raw(t, path)
			run(t, db, "CREATE TABLE theirs (a)")
			run(t, db, pragma)
			require.NoError(t, db.Close())
			err := requireRefused(t, path, durable.ErrStoreCorrupt)
			require.ErrorContains(t, err, "another application")
		})
	}
}

func TestOpen_Corrupt(t *testing.T) {
	t.Parallel()
	garbage := func(data []byte, from, to int) {
		for i := from; i < min(to, len(data)); i++ {
			data[i] = byte(i*7 + i>>8)
		}
	}
	for name, spoil := range map[string]func(data []byte) []byte{
		"text":            func([]byte) []byte { return []byte("hello, this is no database\n") },
		"long text":       func([]byte) []byte { return []byte(strings.Repeat("hello\n", 10000)) },
		"one byte":        func([]byte) []byte { return []byte("S") },
		"zeros":           func(data []byte) []byte { return make([]byte, len(data)) },
		"wrong magic":     func(data []byte) []byte { data[3] ^= 1; return data },
		"magic only":      func(data []byte) []byte { return data[:16] },
		"header only":     func(data []byte) []byte { return data[:100] },
		"half a page":     func(data []byte) []byte { return data[:2048] },
		"one page":        func(data []byte) []byte { return data[:4096] },
		"truncated":       func(data []byte) []byte { return data[:len(data)/2] },
		"bad header":      func(data []byte) []byte { garbage(data, 16, 24); return data },
		"bad schema":      func(data []byte) []byte { garbage(data, 100, 4096); return data },
		"bad schema text": func(data []byte) []byte { garbage(data, 3000, 4096); return data },
		"bad pages":       func(data []byte) []byte { garbage(data, 4096, len(data)); return data },
		"bad roots":       func(data []byte) []byte { garbage(data, 4096, 20*4096); return data },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := some(t)
			data, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Greater(t, len(data), 100000)
			require.NoError(t, os.WriteFile(path, spoil(data), 0o600))
			requireRefused(t, path, durable.ErrStoreCorrupt)
		})
	}
}

// Damage that is met later is told as such.
func TestRead_Corrupt(t *testing.T) {
	t.Parallel()
	path := some(t)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	for i := 30 * 4096; i < len(data); i++ {
		data[i] = 0xaa
	}
	require.NoError(t, os.WriteFile(path, data, 0o600))
	s := openAt(t, path)
	_, err = s.Entries(t.Context(), durable.EntryQuery{ConversationID: 1})
	require.ErrorIs(t, err, durable.ErrStoreCorrupt)
}

func TestOpen_NoDatabase(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := sqlite.Open(t.Context(), filepath.Join(dir, "no", "test.db"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = sqlite.Open(t.Context(), dir, nil)
	require.ErrorIs(t, err, durable.ErrStoreCorrupt)
	_, err = sqlite.Open(t.Context(), "", nil)
	require.ErrorIs(t, err, durable.ErrInvalid)
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("nowhere", link))
	_, err = sqlite.Open(t.Context(), link, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A log without its database is somebody's data.
func TestOpen_LogWithoutDatabase(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	require.NoError(t, os.WriteFile(path+"-wal", []byte("precious"), 0o600))
	requireRefused(t, path, durable.ErrStoreCorrupt)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	requireRefused(t, path, durable.ErrStoreCorrupt)
}

// E2.9: what a crash while the database was made leaves behind is cleared away.
func TestOpen_LeftOverDraft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	for _, suffix := range []string{".new", ".new-journal", ".new-wal"} {
		require.NoError(t, os.WriteFile(path+suffix, []byte("half a database"), 0o600))
	}
	require.NoError(t, os.WriteFile(path, nil, 0o644)) // an empty file is no database
	s := openAt(t, path)
	_, err := s.AllocateIDs(t.Context(), 1)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.Len(t, contents(t, filepath.Dir(path)), 1)
}

// E4.6: only the owner can read the files, also those of a database that was
// readable before.
func TestOpen_Permissions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	require0600 := func() {
		for _, suffix := range []string{"", "-wal", "-shm", ".lock"} {
			info, err := os.Stat(path + suffix)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), suffix)
		}
	}
	s := openAt(t, path)
	_, err := s.AllocateIDs(t.Context(), 1)
	require.NoError(t, err)
	require0600()
	require.NoError(t, s.Close())
	require.NoError(t, os.Chmod(path, 0o644))
	require.NoError(t, os.Chmod(path+".lock", 0o666))
	s = openAt(t, path)
	_, err = s.AllocateIDs(t.Context(), 1)
	require.NoError(t, err)
	require0600()
}

func TestOpen_Names(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"with space.db", "quest?ion.db", "ha#sh.db", "per%20cent.db", "am&per=sand.db", "ünïcode 日本.db", "colon:.db"} {
		path := filepath.Join(dir, name)
		s := openAt(t, path)
		_, err := s.Commit(t.Context(), &durable.Batch{Claims: []durable.Claim{{Scope: "s", Key: name}}})
		require.NoError(t, err)
		require.NoError(t, s.Close())
		_, err = os.Stat(path)
		require.NoError(t, err)
		s = openAt(t, path)
		_, err = s.Claimed(t.Context(), "s", name)
		require.NoError(t, err)
		require.NoError(t, s.Close())
	}
	require.Len(t, contents(t, dir), 7)
}

func TestOpen_Options(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	for _, o := range []sqlite.Options{{Synchronous: 7}, {Readers: 1}, {Readers: -1}, {CheckpointPages: -1}} {
		_, err := sqlite.Open(t.Context(), path, &o)
		require.ErrorIs(t, err, durable.ErrInvalid, fmt.Sprint(o))
	}
	_, err := os.Stat(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = sqlite.Open(ctx, path, nil)
	require.ErrorIs(t, err, context.Canceled)
	openAt(t, path)
}
