package sqlite_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

func TestMain(m *testing.M) {
	runChild()

	goleak.VerifyTestMain(m)
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		path := filepath.Join(t.TempDir(), "test.db")
		var s durable.Store
		open := func(t *testing.T) durable.Store {
			if s != nil {
				require.NoError(t, s.Close())
			}
			var err error
			s, err = sqlite.Open(t.Context(), path, nil)
			require.NoError(t, err)
			return s
		}
		open(t)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return storetest.Harness{Store: s, Reopen: open}
	})
}
