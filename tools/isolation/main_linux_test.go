package isolation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// What test processes hand to those they start.
const (
	helperEnv  = "WP_TEST_HELPER"  // the program for helpers and attacks, empty for their own
	programEnv = "WP_TEST_PROGRAM" // this program, where every user can start it
)

func TestMain(m *testing.M) {
	Main()
	if len(os.Args) > 2 && os.Args[1] == attackRole {
		attacker(os.Args[2:])
		return
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if os.Getenv(programEnv) == "" {
		dir, err := programs()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
	}
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// programs puts the programs that tests start where every user can reach them:
// go test's own folder is root's alone.
func programs() (dir string, err error) {
	if dir, err = os.MkdirTemp("", "wp-durable-test-programs-"); err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return dir, err
	}
	self, err := os.ReadFile(selfExe)
	if err != nil {
		return dir, err
	}
	program := filepath.Join(dir, "isolation.test")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		return dir, err
	}
	if err := os.Setenv(programEnv, program); err != nil {
		return dir, err
	}
	if !raceEnabled {
		return dir, nil
	}
	// A program with the detector takes many times as long to start, and each
	// command starts two.
	plain := filepath.Join(dir, "plain.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", plain, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("build a program without the race detector: %w: %s", err, out)
	}
	return dir, os.Setenv(helperEnv, plain)
}
