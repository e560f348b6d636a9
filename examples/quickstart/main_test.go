package main

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "q.db")
	var first, second bytes.Buffer
	require.NoError(t, run(t.Context(), file, &first))
	require.Regexp(t, `^calls dice \{"sides":6\}\n[1-6] of 6\nYou rolled it\.\nsubmission \d+ is done\n$`, first.String())
	require.NoError(t, run(t.Context(), file, &second))
	require.Equal(t, first.String(), second.String(), "the second run finds the answer of the first")
}
