package sqlstore

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
)

//go:embed schema/sqlite/*.sql
var sqliteSchema embed.FS

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
