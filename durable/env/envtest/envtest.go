// Package envtest is the meaning of an environment as tests (E19): every
// implementation of [env.Environment] runs [Run] in its own tests, and says in
// a [Harness] what it promises beyond the contract.
package envtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
)

// Harness is an environment to test and what it promises.
type Harness struct {
	// Env is the environment, with an empty work folder.
	Env env.Environment
	// NoAppend: Append is NotSupported.
	NoAppend bool
	// NoSpill: the environment keeps no spill files.
	NoSpill bool
	// PrivateSpill: while a command runs, nothing of its spill file is in the
	// work folder; afterwards it is at .tmp/<Spill.Name>.
	PrivateSpill bool
	// Merges: with ExecRequest.Merge the order of both streams is exact.
	Merges bool
	// RawOutput: output arrives byte for byte, also what is not UTF-8.
	RawOutput bool
	// KillsDaemons: also a process that made a session of its own ends with
	// its call.
	KillsDaemons bool
}

// Run tests an environment. newHarness is called for every test, with the t
// whose Cleanup ends what it made.
func Run(t *testing.T, newHarness func(t *testing.T) *Harness) {
	for _, group := range []struct {
		name  string
		tests map[string]func(t *testing.T, h *Harness)
	}{
		{"File", fileTests}, {"Write", writeTests}, {"Confine", confineTests},
		{"Exec", execTests}, {"End", endTests}, {"Output", outputTests}, {"Spill", spillTests},
	} {
		t.Run(group.name, func(t *testing.T) {
			for name, test := range group.tests {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, newHarness(t))
				})
			}
		})
	}
}

// waitLimit bounds what should take far less: a test that reaches it fails.
const waitLimit = time.Minute

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	t.Cleanup(cancel)
	return ctx
}

// requireCode asserts that err is an [*env.Error] with one of the codes, and
// with a message.
func requireCode(t require.TestingT, err error, codes ...env.Code) {
	var e *env.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, codes, e.Code, "%v", err)
	require.NotEmpty(t, e.Message)
}

// requireText is require.Equal for long texts.
func requireText(t require.TestingT, want, got string, note ...any) {
	if want == got {
		return
	}
	i := 0
	for i < min(len(want), len(got)) && want[i] == got[i] {
		i++
	}
	near := func(s string) string { return s[max(i-40, 0):min(i+40, len(s))] }
	require.Fail(t, fmt.Sprintf("texts of %d and %d bytes differ at %d: want %q, got %q", len(want), len(got), i, near(want), near(got)), note...)
}

func write(t *testing.T, h *Harness, path, content string) {
	t.Helper()
	require.NoError(t, h.Env.Write(t.Context(), path, strings.NewReader(content), env.WriteOptions{}))
}

func read(ctx context.Context, e env.Environment, path string) (string, error) {
	r, err := e.Open(ctx, path)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(r)
	return string(b), errors.Join(err, r.Close())
}

func requireContent(t *testing.T, h *Harness, path, want string) {
	t.Helper()
	got, err := read(t.Context(), h.Env, path)
	require.NoError(t, err)
	requireText(t, want, got)
}

// run runs a command that must exit with 0 and returns what it printed.
func run(t *testing.T, h *Harness, command string) string {
	t.Helper()
	out, res, err := exec(limited(t), h, env.ExecRequest{Command: command})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode, "%s: %s", command, out)
	return out
}

// exec runs a request and collects its output, both streams in one.
func exec(ctx context.Context, h *Harness, req env.ExecRequest) (string, env.ExecResult, error) {
	var out strings.Builder
	also := req.Output
	req.Output = func(stream env.Stream, text string, skippedBytes, skippedLines int64) {
		out.WriteString(text)
		if also != nil {
			also(stream, text, skippedBytes, skippedLines)
		}
	}
	res, err := h.Env.Exec(ctx, req)
	return out.String(), res, err
}
