package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

func ExampleOpen() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "agents.db")

	store, err := sqlite.Open(ctx, path, nil)
	if err != nil {
		log.Fatal(err)
	}
	id, err := store.AllocateIDs(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	conversation := durable.ConversationID(id)
	_, err = store.Commit(ctx, &durable.Batch{
		Fence: durable.Fence{Tree: conversation},
		Conversations: []durable.ConversationRecord{
			{ID: conversation, TreeID: conversation, CreatedAt: time.Date(2031, 1, 2, 3, 4, 5, 0, time.UTC)},
		},
	})
	if err != nil {
		log.Fatal(err)
	}

	// One store at a time has the database.
	_, err = sqlite.Open(ctx, path, nil)
	fmt.Println("in use:", errors.Is(err, durable.ErrStoreInUse))
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}

	store, err = sqlite.Open(ctx, path, &sqlite.Options{Synchronous: sqlite.Full})
	if err != nil {
		log.Fatal(err)
	}
	found, err := store.Conversation(ctx, conversation)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("created:", found.CreatedAt)
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// in use: true
	// created: 2031-01-02 03:04:05 +0000 UTC
}
