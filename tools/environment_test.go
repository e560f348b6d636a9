package tools

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// (S5.1): what the section says, and only of tools that are offered.
func TestEnvironment_Describe(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		opts    Options
		offered []string
		forked  bool
		want    string
	}{
		"all": {Options{}, []string{"bash", "read", "write", "edit"}, false, `The work folder is /w. Relative paths start there.
read, write, edit: files in the work folder only; a path outside it is refused.
bash: every command starts in the work folder, which is HOME too. TMPDIR is .tmp in it: put temporary files there, /tmp may not be writable.
To see whether a program is there, use command -v.
Commands have no network access.`},
		"bash": {Options{Network: true, Programs: []string{"git", "jq"}}, []string{"bash"}, true, `The work folder is /w. Relative paths start there.
bash: every command starts in the work folder, which is HOME too. TMPDIR is .tmp in it: put temporary files there, /tmp may not be writable.
Programs at hand: git, jq.
Commands have network access.`},
		"read, in a fork": {Options{EmptyForks: true}, []string{"read"}, true, `The work folder is /w. Relative paths start there.
read: files in the work folder only; a path outside it is refused.
This conversation was forked from another one. Its work folder began empty: files named before the fork are not there.`},
		"not in a fork": {Options{EmptyForks: true}, []string{"edit"}, false, `The work folder is /w. Relative paths start there.
edit: files in the work folder only; a path outside it is refused.`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.opts.describe("/w", func(tool string) bool { return slices.Contains(tc.offered, tool) }, tc.forked))
		})
	}
}
