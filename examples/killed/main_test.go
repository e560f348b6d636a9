package main

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The whole story on the real program: one submission, one call, run once, one
// interrupted result with the output so far, one answer (S8).
func TestRun(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	err := run(t.Context(), &out)
	if errors.Is(err, errToolsOff) && os.Getenv("CI") == "" {
		t.Skipf("SKIPPED: commands cannot be isolated on this machine: %v", err)
	}
	require.NoError(t, err, out.String())
	text := out.String()
	require.Contains(t, text, "The call was interrupted before it finished.")
	require.Contains(t, text, "is done")
	for _, once := range []string{"pi.user", "pi.tool-result", "result, isError true"} {
		require.Equal(t, 1, strings.Count(text, once), "%s in:\n%s", once, text)
	}
	_, rounds, found := strings.Cut(text, "rounds.txt, written by the command: ")
	require.True(t, found)
	require.Regexp(t, `^1 2 3( 4)?\n$`, rounds, "each round ran once, and none after the kill")
}
