package sqlstore_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/sqlstore"
)

// E4.7: each step is one transaction. One that fails leaves the version before
// it, and nothing of itself; the next program goes on from there.
func TestMigrate(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "test.db"))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	number := func(query string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), query).Scan(&n))
		return n
	}
	const tables = "SELECT count(*) FROM sqlite_schema"
	one, two := "CREATE TABLE a (x); CREATE TABLE b (x)", "CREATE TABLE c (x); INSERT INTO a VALUES (1)"

	require.NoError(t, sqlstore.MigrateWith(t.Context(), db, []string{one}))
	require.Equal(t, 1, number("PRAGMA user_version"))
	require.Equal(t, sqlstore.SQLiteApplicationID, number("PRAGMA application_id"))

	err = sqlstore.MigrateWith(t.Context(), db, []string{one, two + "; INSERT INTO nowhere VALUES (1)"})
	require.ErrorContains(t, err, "migrate to schema version 2")
	require.Equal(t, 1, number("PRAGMA user_version"))
	require.Equal(t, 2, number(tables))
	require.Equal(t, 0, number("SELECT count(*) FROM a"))

	for range 2 {
		require.NoError(t, sqlstore.MigrateWith(t.Context(), db, []string{one, two, "CREATE TABLE d (x)"}))
		require.Equal(t, 3, number("PRAGMA user_version"))
		require.Equal(t, 4, number(tables))
		require.Equal(t, 1, number("SELECT count(*) FROM a"))
	}
}
