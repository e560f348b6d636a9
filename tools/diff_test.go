package tools

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestDiff(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, old, text, want string }{
		{"equal", "a\n", "a\n", ""},
		{"line ends alone", "a\r\nb\r\n", "a\nb\n", ""},
		{"change", "a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"to nothing", "a\n", "", "@@ -1 +0,0 @@\n-a\n"},
		{"from nothing", "", "a\n", "@@ -0,0 +1 @@\n+a\n"},
		{"a newline at the end", "a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n"},
		{"two hunks", "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "x\n2\n3\n4\n5\n6\n7\n8\ny\n",
			"@@ -1,4 +1,4 @@\n-1\n+x\n 2\n 3\n 4\n@@ -6,4 +6,4 @@\n 6\n 7\n 8\n-9\n+y\n"},
		{"one hunk", "1\n2\n3\n4\n5\n6\n7\n8\n", "x\n2\n3\n4\n5\n6\n7\ny\n",
			"@@ -1,8 +1,8 @@\n-1\n+x\n 2\n 3\n 4\n 5\n 6\n 7\n-8\n+y\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			want := tc.want
			if want != "" {
				want = "--- a/f\n+++ b/f\n" + want
			}
			require.Equal(t, want, diff(tc.old, tc.text).unified("f", false))
		})
	}
}

func lineTexts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "d", ""}), 0, 30).Draw(t, "lines")
		text := strings.Join(lines, "\n")
		if rapid.Bool().Draw(t, "newline") {
			text += "\n"
		}
		return text
	})
}

// The program patch makes the new text of the old one and the diff.
func TestDiff_Applies(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, patch := filepath.Join(dir, "f"), filepath.Join(dir, "p")
	rapid.Check(t, func(rt *rapid.T) {
		old, text := lineTexts().Draw(rt, "old"), lineTexts().Draw(rt, "text")
		d := diff(old, text)
		u := d.unified("f", false)
		require.Equal(rt, old == text, u == "")
		if u == "" {
			return
		}
		require.NoError(t, os.WriteFile(file, []byte(old), 0o600))
		require.NoError(t, os.WriteFile(patch, []byte(u), 0o600))
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "git", "apply", "--unidiff-zero", "--whitespace=nowarn", patch)
		cmd.Dir = dir
		cmd.Env = []string{"GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir), "PATH=" + os.Getenv("PATH"), "HOME=" + dir}
		out, err := cmd.CombinedOutput()
		require.NoError(rt, err, "%s\n%s", out, u)
		got, err := os.ReadFile(file)
		if text == "" { // git removes a file that becomes empty
			require.True(rt, err != nil || len(got) == 0)
			return
		}
		require.NoError(rt, err)
		require.Equal(rt, text, string(got))
	})
}

// What is changed is a shortest difference, and far-apart texts end too.
func TestDiff_Shortest(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := splitLines(lineTexts().Draw(t, "a")), splitLines(lineTexts().Draw(t, "b"))
		edits := 0
		var olds, news []string
		for _, c := range shortest(a, b) {
			if c.op != ' ' {
				edits++
			}
			if c.op != '+' {
				olds = append(olds, c.line)
			}
			if c.op != '-' {
				news = append(news, c.line)
			}
		}
		require.Equal(t, a, olds)
		require.Equal(t, b, news)
		// the length of a longest common subsequence, by the textbook
		lcs := make([][]int, len(a)+1)
		for i := range lcs {
			lcs[i] = make([]int, len(b)+1)
		}
		for i := range a {
			for j := range b {
				lcs[i+1][j+1] = max(lcs[i][j+1], lcs[i+1][j])
				if a[i] == b[j] {
					lcs[i+1][j+1] = lcs[i][j] + 1
				}
			}
		}
		require.Equal(t, len(a)+len(b)-2*lcs[len(a)][len(b)], edits)
	})
	far := diff(strings.Repeat("a\nb\n", 5000), strings.Repeat("c\n", 5000))
	require.Equal(t, 5000, far.added)
	require.Equal(t, 10000, far.removed)
}
