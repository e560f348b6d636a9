package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore"
)

// Synchronous says what an acknowledged commit survives.
type Synchronous int

const (
	// Full flushes every commit to the disk before it is acknowledged: it
	// survives the end of the process and the loss of power.
	Full Synchronous = iota
	// Normal is weaker: a commit survives the end of the process, but loss of
	// power may undo the newest ones. The database stays consistent.
	Normal
)

// Options change how a database is opened. The zero value is the default.
type Options struct {
	// Synchronous is Full by default.
	Synchronous Synchronous
	// Readers is the number of connections that read at a time: 4 by default,
	// and at least 2.
	Readers int
	// CheckpointPages is the length of the write-ahead log, in pages of 4 KiB,
	// at which it is copied into the database: 16000 by default. A longer log
	// makes commits faster, and opening after a crash slower.
	CheckpointPages int
}

func (o *Options) withDefaults() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	out.Readers = cmp.Or(out.Readers, 4)
	out.CheckpointPages = cmp.Or(out.CheckpointPages, 16000)
	switch {
	case out.Synchronous != Full && out.Synchronous != Normal:
		return out, fmt.Errorf("options: Synchronous %d: %w", out.Synchronous, durable.ErrInvalid)
	case out.Readers < 2:
		return out, fmt.Errorf("options: Readers %d: %w", out.Readers, durable.ErrInvalid)
	case out.CheckpointPages < 1:
		return out, fmt.Errorf("options: CheckpointPages %d: %w", out.CheckpointPages, durable.ErrInvalid)
	}
	return out, nil
}

// Open opens the database at path, and creates it when there is none. Its
// directory must exist.
//
// It fails with [durable.ErrStoreInUse] when another store has the database
// open, here or in another process; the message names the holder. A database of
// a newer version is [durable.ErrStoreNewer]; a damaged file, or one that is
// not a database of this engine, is [durable.ErrStoreCorrupt]. Such a file is
// left as it is.
func Open(ctx context.Context, path string, opts *Options) (*sqlstore.Store, error) {
	s, err := open(ctx, path, opts)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", path, err)
	}
	return s, nil
}

func open(ctx context.Context, path string, opts *Options) (_ *sqlstore.Store, err error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	f, err := resolve(path)
	if err != nil {
		return nil, err
	}
	lock, err := takeLock(f.lock())
	if err != nil {
		return nil, err
	}
	// From NewSQLite on the store releases the lock.
	owned := false
	defer func() {
		if !owned {
			err = errors.Join(err, lock.release())
		}
	}()
	exists, err := f.exists()
	if err != nil {
		return nil, err
	}
	if exists {
		err = f.check(ctx)
	} else {
		err = f.create(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := f.protect(); err != nil {
		return nil, err
	}
	owned = true
	return sqlstore.NewSQLite(ctx, &sqlstore.SQLite{
		Write:           f.connector(writing(o.Synchronous)),
		Read:            f.connector(reading),
		Readers:         o.Readers,
		CheckpointPages: o.CheckpointPages,
		Size:            f.size,
		Release:         lock.release,
	})
}

// protect makes the files readable by their owner only. SQLite gives the -wal
// and -shm files that it makes the mode of the database.
func (f file) protect() error {
	for _, name := range []string{f.path, f.wal(), f.shm()} {
		info, err := os.Stat(name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			err = os.Chmod(name, 0o600)
		}
		if err != nil {
			return fmt.Errorf("protect: %w", err)
		}
	}
	return nil
}
