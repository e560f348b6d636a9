package lint

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNoskip holds the judge of the test run to its word.
func TestNoskip(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "noskip")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./.ci/noskip")
	build.Dir = root(t)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	const (
		begin  = `{"Action":"start","Package":"p"}`
		pass   = `{"Action":"output","Package":"p","Test":"TestA","Output":"quiet\n"}` + "\n" + `{"Action":"pass","Package":"p","Test":"TestA"}`
		fail   = `{"Action":"output","Package":"p","Test":"TestB","Output":"broken\n"}` + "\n" + `{"Action":"fail","Package":"p","Test":"TestB"}`
		skip   = `{"Action":"output","Package":"p","Test":"TestC","Output":"no server\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestC"}`
		hang   = `{"Action":"output","Package":"p","Test":"TestD","Output":"=== RUN TestD\n"}`
		passed = `{"Action":"output","Package":"p","Output":"PASS\n"}` + "\n" + `{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}` + "\n" + `{"Action":"pass","Package":"p"}`
		failed = `{"Action":"output","Package":"p","Output":"FAIL\tp\t0.1s\n"}` + "\n" + `{"Action":"fail","Package":"p"}`
		none   = `{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}` + "\n" + `{"Action":"skip","Package":"q"}`
		build1 = `{"ImportPath":"p","Action":"build-output","Output":"p.go:1: syntax\n"}` + "\n" + `{"ImportPath":"p","Action":"build-fail"}`
	)
	tests := []struct {
		name  string
		lines []string
		ok    bool
		want  string
	}{
		{"all passed", []string{"go test -json", begin, pass, passed, none}, true,
			"go test -json\nok  \tp\t0.1s\n?   \tq\t[no test files]\n1 tests passed, 0 failed, 0 skipped in 2 packages\n"},
		{"one failed", []string{begin, pass, fail, failed}, false,
			"broken\nFAIL\tp\t0.1s\n1 tests passed, 1 failed, 0 skipped in 1 packages\n"},
		{"one was skipped", []string{begin, pass, skip, passed}, false,
			"ok  \tp\t0.1s\nSKIPPED p TestC\nno server\n1 tests passed, 0 failed, 1 skipped in 1 packages\n"},
		{"the process died", []string{begin, pass, hang, failed}, false,
			"=== RUN TestD\nFAIL\tp\t0.1s\n1 tests passed, 0 failed, 0 skipped in 1 packages\n"},
		{"the stream was cut", []string{begin, pass, hang}, false,
			"=== RUN TestD\n1 tests passed, 0 failed, 0 skipped in 0 packages\n"},
		{"it did not build", []string{build1, begin, failed}, false,
			"p.go:1: syntax\nFAIL\tp\t0.1s\n0 tests passed, 0 failed, 0 skipped in 1 packages\n"},
		{"nothing ran", nil, false, "0 tests passed, 0 failed, 0 skipped in 0 packages\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program)
			cmd.Stdin = strings.NewReader(strings.Join(append(tt.lines, ""), "\n"))
			out, err := cmd.Output()
			if !tt.ok {
				_, isExit := errors.AsType[*exec.ExitError](err)
				require.True(t, isExit, "%v", err)
			} else {
				require.NoError(t, err)
			}
			require.Equal(t, tt.want, string(out))
		})
	}
}
