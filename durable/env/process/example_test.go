package process_test

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/process"
)

// The command returns when its shell exits; the server it left is killed.
func ExampleRun() {
	ctx := context.Background()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "/bin/sh", "-c", "sleep 60 & echo started")
	res, err := process.Run(ctx, &process.Command{Cmd: cmd}, env.ExecRequest{
		Timeout: time.Minute,
		Output:  func(_ env.Stream, text string, _, _ int64) { fmt.Print(text) },
	})
	fmt.Println(res.ExitCode, err)
	// Output:
	// started
	// 0 <nil>
}
