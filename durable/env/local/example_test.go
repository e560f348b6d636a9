package local_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "work")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	work, err := local.New(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer work.Close()

	ctx := context.Background()
	if err := work.Write(ctx, "notes/todo.txt", strings.NewReader("water the plants\n"), env.WriteOptions{}); err != nil {
		log.Fatal(err)
	}
	out := env.NewOutput(nil)
	res, err := work.Exec(ctx, env.ExecRequest{
		Command: "cat notes/todo.txt; exit 3", Timeout: time.Minute, Merge: true, Output: out.Receive,
	})
	fmt.Printf("%s%d %v\n", out, res.ExitCode, err)
	_, err = work.Open(ctx, "/etc/passwd")
	var refused *env.Error
	if errors.As(err, &refused) {
		fmt.Println(refused.Code)
	}
	// Output:
	// water the plants
	// 3 <nil>
	// permission_denied
}
