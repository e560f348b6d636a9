package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
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
	// wal_autocheckpoint off. At most two are open at a time.
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
func NewSQLite(ctx context.Context, db *SQLite) (_ *Store, err error) {
	write, read := sql.OpenDB(db.Write), sql.OpenDB(db.Read)
	write.SetMaxOpenConns(2)
	write.SetMaxIdleConns(2)
	read.SetMaxOpenConns(db.Readers)
	read.SetMaxIdleConns(db.Readers)
	defer func() {
		if err != nil {
			err = errors.Join(err, read.Close(), write.Close(), db.Release())
		}
	}()
	if err := MigrateSQLite(ctx, write); err != nil {
		return nil, err
	}
	var mode string
	if err := write.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return nil, fmt.Errorf("read journal mode: %w", err)
	}
	if mode != "wal" {
		return nil, fmt.Errorf("journal mode is %s, not wal", mode)
	}
	s, err := newStore(ctx, sqlite{}, write, read)
	if err != nil {
		return nil, err
	}
	s.size, s.release = db.Size, db.Release
	cp, err := newCheckpoints(ctx, s.writer, db.CheckpointPages)
	if err != nil {
		return nil, errors.Join(err, s.writer.abandon())
	}
	s.writer.upkeep = cp
	s.start(db.Readers)
	return s, nil
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
	newest, err := newestSQLite()
	if err != nil {
		return err
	}
	if version > newest {
		return fmt.Errorf("%w: schema version %d, this program knows %d", durable.ErrStoreNewer, version, newest)
	}
	// Touch the first page of every table and index.
	rows, err := db.QueryContext(ctx, "SELECT name FROM sqlite_schema WHERE type = 'table'")
	if err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return fmt.Errorf("read schema: %w", err)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
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
	rows, err := db.QueryContext(ctx, "PRAGMA quick_check(3)")
	if err != nil {
		return ""
	}
	defer rows.Close()
	var found []string
	for rows.Next() {
		var line string
		if rows.Scan(&line) != nil {
			break
		}
		found = append(found, line)
	}
	if rows.Err() != nil && len(found) == 0 {
		return ""
	}
	return strings.Join(found, "; ")
}

func newestSQLite() (int, error) {
	files, err := sqliteSchema.ReadDir("schema/sqlite")
	if err != nil {
		return 0, fmt.Errorf("read migrations: %w", err)
	}
	return len(files), nil
}

// MigrateSQLite brings an empty database, or one of an older version, to the
// schema of this version, each step in one transaction.
func MigrateSQLite(ctx context.Context, db *sql.DB) error {
	newest, err := newestSQLite()
	if err != nil {
		return err
	}
	var version int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&version); err != nil {
		return fmt.Errorf("read schema version: %w", err)
	}
	for ; version < newest; version++ {
		if err := migrateSQLite(ctx, db, version+1); err != nil {
			return fmt.Errorf("migrate to schema version %d: %w", version+1, err)
		}
	}
	return nil
}

func migrateSQLite(ctx context.Context, db *sql.DB, to int) error {
	script, err := sqliteSchema.ReadFile(fmt.Sprintf("schema/sqlite/%04d.sql", to))
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // only of use when Commit was not reached
	if _, err := tx.ExecContext(ctx, string(script)); err != nil {
		return err
	}
	stamp := fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d", SQLiteApplicationID, to)
	if _, err := tx.ExecContext(ctx, stamp); err != nil {
		return err
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
