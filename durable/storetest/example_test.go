package storetest_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

func ExampleFaulty() {
	ctx := context.Background()
	store := storetest.Faulty(memstore.New())
	store.FailCommit(2, storetest.Applied)

	batch := func(key string) *durable.Batch {
		return &durable.Batch{Claims: []durable.Claim{{Scope: "example", Key: key, Value: 7}}}
	}
	_, err := store.Commit(ctx, batch("first"))
	fmt.Println("first:", err)
	_, err = store.Commit(ctx, batch("second"))
	fmt.Println("second is uncertain:", err != nil && !errors.Is(err, durable.ErrRejected))
	value, err := store.Claimed(ctx, "example", "second")
	fmt.Println("second is stored:", value, err)
	// Output:
	// first: <nil>
	// second is uncertain: true
	// second is stored: 7 <nil>
}
