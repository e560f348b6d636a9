package isolation_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation"
)

// A host opens one manager and asks it for the environment of each
// conversation. Its main calls isolation.Main before anything else.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	m, err := isolation.Open(ctx, &isolation.Options{
		DataDir: filepath.Join(dir, "data"),
		Level:   isolation.None, // leave it out to take the strongest that works
	})
	if err != nil {
		panic(err)
	}
	defer m.Close()

	e, err := m.Env(ctx, &isolation.EnvParams{Tree: 1})
	if err != nil {
		fmt.Println("commands are", m.Status().State)
		return
	}
	_, _ = e.Exec(ctx, env.ExecRequest{
		Command: "echo hello",
		Output:  func(_ env.Stream, text string, _, _ int64) { fmt.Print(text) },
	})
	// Output: commands are off
}
