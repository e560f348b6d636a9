package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/wp-durable/wp-durable/durable"
)

// SQLiteApplicationID is the application_id of the databases of this package:
// "wpdu" in ASCII.
const SQLiteApplicationID = 0x77706475

//go:embed schema/sqlite/*.sql
var sqliteSchema embed.FS

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

// CheckSQLite looks at a database without writing, before anything else opens
// it. A newer one is ErrStoreNewer, one that is damaged or not of this package
// ErrStoreCorrupt.
func CheckSQLite(ctx context.Context, db *sql.DB) error {
	err := checkSQLite(ctx, db)
	if d := (sqlite{}); err != nil && d.classify(err) == classCorrupt {
		// Say more than that a page could not be read.
		if found := quickCheck(ctx, db); found != "" {
			err = fmt.Errorf("%w: %s", err, found)
		}
		return fmt.Errorf("%w: %w", durable.ErrStoreCorrupt, err)
	}
	return err
}

func checkSQLite(ctx context.Context, db *sql.DB) error {
	var application, version int
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&application); err != nil {
		return fmt.Errorf("read application id: %w", err)
	}
	if application != SQLiteApplicationID {
		return fmt.Errorf("%w: database of another application (application_id %#x)", durable.ErrStoreCorrupt, application)
	}
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	scripts, err := sqliteMigrations()
	if err != nil {
		return err
	}
	if version > len(scripts) {
		return fmt.Errorf("%w: schema version %d, this program knows %d", durable.ErrStoreNewer, version, len(scripts))
	}
	// Touch the first page of every table.
	names, err := texts(ctx, db, "SELECT name FROM sqlite_schema WHERE type = 'table'")
	if err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	for _, name := range names {
		var n int
		q := `SELECT count(*) FROM (SELECT 1 FROM "` + strings.ReplaceAll(name, `"`, `""`) + `" LIMIT 1)`
		if err := db.QueryRowContext(ctx, q).Scan(&n); err != nil {
			return fmt.Errorf("read table %s: %w", name, err)
		}
	}
	return nil
}

// quickCheck returns what is wrong with a damaged database, as far as SQLite
// can still tell.
func quickCheck(ctx context.Context, db *sql.DB) string {
	found, _ := texts(ctx, db, "PRAGMA quick_check(3)") // what it found before an error is enough
	return strings.Join(found, "; ")
}

// texts returns the one column of a query's rows.
func texts(ctx context.Context, db *sql.DB, query string) (out []string, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return out, err
		}
		out = append(out, text)
	}
	return out, rows.Err()
}

// sqliteMigrations are the scripts that lead from each schema version to the
// next, the first from an empty database to version 1.
func sqliteMigrations() ([]string, error) {
	files, err := sqliteSchema.ReadDir("schema/sqlite")
	if err != nil {
		return nil, fmt.Errorf("read migrations: %w", err)
	}
	scripts := make([]string, len(files))
	for i := range files {
		script, err := sqliteSchema.ReadFile(fmt.Sprintf("schema/sqlite/%04d.sql", i+1))
		if err != nil {
			return nil, fmt.Errorf("read migrations: %w", err)
		}
		scripts[i] = string(script)
	}
	return scripts, nil
}

// MigrateSQLite brings an empty database, or one of an older version, to the
// schema of this version, each step in one transaction.
func MigrateSQLite(ctx context.Context, db *sql.DB) error {
	scripts, err := sqliteMigrations()
	if err != nil {
		return err
	}
	return migrateSQLite(ctx, db, scripts)
}

func migrateSQLite(ctx context.Context, db *sql.DB, scripts []string) error {
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	for ; version < len(scripts); version++ {
		if err := stepSQLite(ctx, db, version+1, scripts[version]); err != nil {
			return fmt.Errorf("migrate to schema version %d: %w", version+1, err)
		}
	}
	return nil
}

func stepSQLite(ctx context.Context, db *sql.DB, to int, script string) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tx.Rollback() // err says more; what is not committed is undone anyway
		}
	}()
	stamp := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", SQLiteApplicationID, to)
	for _, text := range []string{script, stamp} {
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return tx.Commit()
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
