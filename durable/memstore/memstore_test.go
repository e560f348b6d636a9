package memstore_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Harness {
		s := memstore.New()
		t.Cleanup(func() { s.Close() })
		return storetest.Harness{Store: s}
	})
}
