// Package e2e tests the built program as its users start it: over HTTP, the
// terminal and signals, with crashes and restarts.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// binary is the program, built once.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "wp-durable-e2e")
	if err != nil {
		panic(err)
	}
	// Commands of agent users must be able to execute it.
	if err := os.Chmod(dir, 0o755); err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "wp-durable")
	build := exec.Command("go", "build", "-o", binary, "../cmd/wp-durable")
	if out, err := build.CombinedOutput(); err != nil {
		panic(fmt.Sprintf("build: %v\n%s", err, out))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(dir)
		os.Exit(status)
	}))
}
