package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/wp-durable/wp-durable/durable"
)

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
