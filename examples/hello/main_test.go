package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The program of the README, built and run.
func TestHello(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "hello")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := exec.CommandContext(t.Context(), program)
	run.Dir = t.TempDir()
	run.Stderr = os.Stderr
	out, err = run.Output()
	require.NoError(t, err)
	require.Equal(t, "Take an umbrella.\n", string(out))
}
