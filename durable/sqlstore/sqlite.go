package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/wp-durable/wp-durable/durable"
)

// SQLiteApplicationID is the application_id of the databases of this package:
// "wpdu" in ASCII.
const SQLiteApplicationID = 0x77706475

// SQLite is a database that a driver package has made ready for [NewSQLite]:
// locked against other processes, and in WAL mode.
type SQLite struct {
	// Write opens connections that write, with the wished synchronous mode and
	// wal_autocheckpoint off.
	Write driver.Connector
	// Read opens connections that cannot write, on the file opened read-only.
	// Only then does closing them, when the store has failed, leave the log
	// alone.
	Read driver.Connector
	// Readers is the number of connections that read; at least 2.
	Readers int
	// CheckpointPages is the length of the write-ahead log, in pages, at which
	// it is copied into the database.
	CheckpointPages int
	// Size returns how many bytes the database takes. It must not open its
	// files.
	Size func() (int64, error)
	// Release, called last, gives up the lock.
	Release func() error
}

// NewSQLite migrates the database to this version and returns the store. The
// store owns db from then on, also when an error is returned.
func NewSQLite(ctx context.Context, db *SQLite) (*Store, error) {
	s, err := newSQLite(ctx, db)
	if err != nil {
		if (sqlite{}).classify(err) == classCorrupt {
			err = fmt.Errorf("%w: %w", durable.ErrStoreCorrupt, err)
		}
		return nil, errors.Join(err, db.Release())
	}
	return s, nil
}

func newSQLite(ctx context.Context, db *SQLite) (_ *Store, err error) {
	closers := []func() error{}
	defer func() {
		for _, c := range slices.Backward(closers) {
			if err != nil {
				err = errors.Join(err, c())
			}
		}
	}()
	read := sql.OpenDB(db.Read)
	closers = append(closers, read.Close)
	read.SetMaxOpenConns(db.Readers)
	read.SetMaxIdleConns(db.Readers)
	if err := upgradeSQLite(ctx, db.Write, read); err != nil {
		return nil, err
	}
	session, err := connect(ctx, db.Write)
	if err != nil {
		return nil, err
	}
	closers = append(closers, session.close)
	w, err := newWriter(sqlite{}, session)
	if err != nil {
		return nil, err
	}
	cp, err := newCheckpoints(ctx, w, db.Write, db.CheckpointPages)
	if err != nil {
		return nil, err
	}
	w.upkeep = cp
	s := newStore(sqlite{}, read, db.Readers, w)
	s.size, s.release = db.Size, db.Release
	s.start()
	return s, nil
}

// upgradeSQLite migrates, and opens the first connection that reads. From then
// on there is one until Close: as long as it is there, closing a connection
// that writes does not copy the log.
func upgradeSQLite(ctx context.Context, connector driver.Connector, read *sql.DB) (err error) {
	write := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, write.Close()) }()
	write.SetMaxOpenConns(1)
	if err := MigrateSQLite(ctx, write); err != nil {
		return err
	}
	var mode string
	if err := write.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return fmt.Errorf("read journal mode: %w", err)
	}
	if mode != "wal" {
		return fmt.Errorf("journal mode is %s, not wal", mode)
	}
	var next int64
	if err := read.QueryRowContext(ctx, "SELECT next_id FROM store").Scan(&next); err != nil {
		return fmt.Errorf("open for reading: %w", err)
	}
	return nil
}

// sqlite is the dialect of SQLite, whatever the driver.
type sqlite struct{}

func (sqlite) kind() string                  { return "sqlite" }
func (sqlite) schema() schema.Dialect        { return sqlitedialect.New() }
func (sqlite) begin() string                 { return "BEGIN IMMEDIATE" }
func (sqlite) statement(query string) string { return query }

// Primary result codes of SQLite.
const (
	sqliteBusy       = 5
	sqliteLocked     = 6
	sqliteNoMem      = 7
	sqliteIOErr      = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteTooBig     = 18
	sqliteConstraint = 19
	sqliteMismatch   = 20
	sqliteNotADB     = 26
)

func (sqlite) classify(err error) class {
	var coded interface{ Code() int }
	if !errors.As(err, &coded) {
		return classUnknown
	}
	switch coded.Code() & 0xff {
	case sqliteBusy, sqliteLocked, sqliteNoMem, sqliteTooBig, sqliteConstraint, sqliteMismatch:
		return classRejected
	case sqliteFull:
		return classFull
	case sqliteCorrupt, sqliteNotADB:
		return classCorrupt
	case sqliteIOErr, sqliteCantOpen:
		return classBroken
	}
	return classUnknown
}
