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
	for range 2 { // the second run finds the first one's file
		var out bytes.Buffer
		require.NoError(t, run(t.Context(), file, &out))
		require.Regexp(t, `^calls dice \{"sides":6\}\n[1-6] of 6\nYou rolled it\.\nsubmission \d+ is done\n$`, out.String())
	}
}
