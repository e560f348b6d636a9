// Package isolationtest helps tests that open a manager of isolation: user ids
// that no other test uses at the time, data folders that agents can enter, and
// preconditions that fail instead of skipping where everything is installed.
//
// It depends on nothing of this module.
package isolationtest

import (
	"os"
	"testing"
)

// Need skips the test loudly when a precondition does not hold, and fails it
// in CI, where every one must.
func Need(t testing.TB, holds bool, what string) {
	t.Helper()
	if holds {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("this test needs %s, and CI must have it", what)
	}
	t.Skipf("SKIPPED: this test needs %s", what)
}

// DataDir returns a folder below which agents can have work folders: unlike
// t.TempDir every user can enter it. It is deleted at the end.
func DataDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "wp-durable-data-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir + "/data"
}
