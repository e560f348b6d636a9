package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	driversqlite "modernc.org/sqlite"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore"
)

// file is a database and the files beside it.
type file struct{ path string }

func (f file) wal() string     { return f.path + "-wal" }
func (f file) shm() string     { return f.path + "-shm" }
func (f file) journal() string { return f.path + "-journal" }
func (f file) lock() string    { return f.path + ".lock" }

// resolve follows symbolic links, so that a database has one lock whatever name
// it is opened by.
func resolve(path string) (file, error) {
	if path == "" {
		return file{}, fmt.Errorf("path is empty: %w", durable.ErrInvalid)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return file{}, err
	}
	full, err := filepath.EvalSymlinks(path)
	if errors.Is(err, os.ErrNotExist) {
		if _, lerr := os.Lstat(path); lerr == nil {
			return file{}, fmt.Errorf("symbolic link to nowhere: %w", err)
		}
		dir, derr := filepath.EvalSymlinks(filepath.Dir(path))
		full, err = filepath.Join(dir, filepath.Base(path)), derr
	}
	if err != nil {
		return file{}, err
	}
	return file{full}, nil
}

// exists reports whether there is a database. An empty file is none.
func (f file) exists() (bool, error) {
	info, err := os.Stat(f.path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return false, fmt.Errorf("not a regular file: %w", durable.ErrStoreCorrupt)
	case err == nil && info.Size() > 0:
		return true, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return false, err
	}
	// What is committed may be in the log only. A new database would be
	// damaged by it, or it lost.
	for _, name := range []string{f.wal(), f.journal()} {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			return false, fmt.Errorf("there is %s, but not its database: %w", filepath.Base(name), durable.ErrStoreCorrupt)
		}
	}
	return false, nil
}

// magic is how every SQLite database begins.
const magic = "SQLite format 3\x00"

// check looks at the database without changing it.
func (f file) check(ctx context.Context) (err error) {
	// Nothing in this process has the file open yet: the lock is held.
	r, err := os.Open(f.path)
	if err != nil {
		return err
	}
	head := make([]byte, 100)
	_, err = io.ReadFull(r, head)
	short := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
	if short {
		err = nil
	}
	if err := errors.Join(err, r.Close()); err != nil {
		return err
	}
	if short || string(head[:len(magic)]) != magic {
		return fmt.Errorf("not an SQLite database: %w", durable.ErrStoreCorrupt)
	}
	// Without a log, reading the file as immutable makes no other files.
	mode := checking
	if info, err := os.Stat(f.wal()); err != nil || info.Size() == 0 {
		mode = checkingImmutable
	}
	db := sql.OpenDB(f.connector(mode))
	defer func() { err = errors.Join(err, db.Close()) }()
	return sqlstore.CheckSQLite(ctx, db)
}

// create makes an empty database under another name and renames it, so that
// whatever happens the file is complete or not there.
func (f file) create(ctx context.Context) error {
	draft := file{f.path + ".new"}
	for _, name := range []string{draft.path, draft.journal(), draft.wal(), draft.shm()} {
		if err := os.Remove(name); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("create: %w", err)
		}
	}
	w, err := os.OpenFile(draft.path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := draft.fill(ctx); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := os.Rename(draft.path, f.path); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	if err := syncDir(filepath.Dir(f.path)); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	return nil
}

func (f file) fill(ctx context.Context) (err error) {
	db := sql.OpenDB(f.connector(creating))
	db.SetMaxOpenConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := sqlstore.MigrateSQLite(ctx, db); err != nil {
		return err
	}
	var mode string
	if err := db.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		return fmt.Errorf("write-ahead log is not possible here, journal mode is %s", mode)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// size is what the database takes on disk.
func (f file) size() (int64, error) {
	var n int64
	for _, name := range []string{f.path, f.wal(), f.shm()} {
		info, err := os.Stat(name)
		switch {
		case err == nil:
			n += info.Size()
		case !errors.Is(err, os.ErrNotExist):
			return 0, err
		}
	}
	return n, nil
}

// The ways to open a connection.
var (
	creating          = url.Values{"_pragma": {"synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)"}}
	checking          = url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)"}}
	checkingImmutable = url.Values{"mode": {"ro"}, "immutable": {"1"}, "_pragma": {"query_only(1)"}}
	reading           = url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(5000)", "query_only(1)"}}
)

func writing(s Synchronous) url.Values {
	synchronous := "synchronous(FULL)"
	if s == Normal {
		synchronous = "synchronous(NORMAL)"
	}
	return url.Values{"mode": {"rw"}, "_pragma": {
		"busy_timeout(5000)", "journal_mode(WAL)", "wal_autocheckpoint(0)", synchronous,
		"fullfsync(1)", "checkpoint_fullfsync(1)", "cache_size(-8000)", "temp_store(MEMORY)",
	}}
}

func (f file) connector(mode url.Values) driver.Connector {
	u := url.URL{Scheme: "file", Path: f.path, RawQuery: mode.Encode()}
	c, err := driversqlite.NewConnector(u.String())
	if err != nil {
		panic(err) // the query is this package's own
	}
	return c
}
