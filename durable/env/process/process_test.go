package process_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/process"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func shell(t *testing.T, command string) *exec.Cmd {
	t.Helper()
	return exec.CommandContext(context.WithoutCancel(t.Context()), "/bin/sh", "-c", command)
}

// The rest of what Run promises is tested through package local by envtest.

func TestRun_SpillDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private := filepath.Join(dir, "task.log")
	require.NoError(t, os.WriteFile(private, []byte("left by an earlier run"), 0o600))
	var published string
	var while []byte
	var mode os.FileMode
	c := &process.Command{
		Cmd:      shell(t, "echo 1234567890; echo ready; cat"),
		SpillDir: dir,
		Publish: func(ctx context.Context, name string, r io.Reader) (string, error) {
			require.NoError(t, ctx.Err())
			b, err := io.ReadAll(r)
			published = string(b)
			return "at/" + name, err
		},
	}
	in, out, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	c.Cmd.Stdin = in
	res, err := process.Run(t.Context(), c, env.ExecRequest{
		Spill: &env.Spill{AfterBytes: 5, Name: "task.log"},
		Output: func(_ env.Stream, text string, _, _ int64) {
			if strings.Contains(text, "ready") {
				while, err = os.ReadFile(private)
				if info, e := os.Stat(private); e == nil {
					mode = info.Mode()
				}
				_ = out.Close()
			}
		},
	})
	require.NoError(t, err)
	require.Equal(t, env.ExecResult{SpillPath: "at/task.log", SpillBytes: 17}, res)
	require.Equal(t, "1234567890\nready\n", published)
	require.Equal(t, "1234567890\nready\n", string(while), "a crash now would leave the output up to here")
	require.Equal(t, os.FileMode(0o600), mode)
	require.NoFileExists(t, private)
}

func TestRun_SpillFails(t *testing.T) {
	t.Parallel()
	run := func(c *process.Command) env.ExecResult {
		var out strings.Builder
		c.Cmd = shell(t, "echo 1234567890; exit 3")
		res, err := process.Run(t.Context(), c, env.ExecRequest{
			Spill:  &env.Spill{AfterBytes: 5, Name: "x"},
			Output: func(_ env.Stream, text string, _, _ int64) { out.WriteString(text) },
		})
		require.NoError(t, err, "the command is not disturbed")
		require.Equal(t, "1234567890\n", out.String())
		require.Equal(t, 3, res.ExitCode)
		require.Empty(t, res.SpillPath)
		return res
	}
	res := run(&process.Command{SpillDir: filepath.Join(t.TempDir(), "missing"), Publish: func(context.Context, string, io.Reader) (string, error) {
		return "x", nil
	}})
	require.Equal(t, "the whole output could not be kept: no such file or directory", res.SpillError)
	res = run(&process.Command{Publish: func(context.Context, string, io.Reader) (string, error) { return "x", errors.New("disk is full") }})
	require.Equal(t, "the whole output could not be kept: disk is full", res.SpillError)
	res = run(&process.Command{})
	require.NotEmpty(t, res.SpillError)
}

func TestRun_End(t *testing.T) {
	t.Parallel()
	t.Run("called once when the command has ended, while its id is its own", func(t *testing.T) {
		t.Parallel()
		var calls []bool
		res, err := process.Run(t.Context(), &process.Command{
			Cmd: shell(t, "exit 5"),
			End: func(p *os.Process, exited bool) {
				calls = append(calls, exited)
				require.NoError(t, unix.Kill(p.Pid, 0))
			},
		}, env.ExecRequest{})
		require.NoError(t, err)
		require.Equal(t, 5, res.ExitCode)
		require.Equal(t, []bool{true}, calls)
	})
	t.Run("called first to end it", func(t *testing.T) {
		t.Parallel()
		var calls []bool
		var out strings.Builder
		res, err := process.Run(t.Context(), &process.Command{
			Cmd: shell(t, "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.01; done"),
			End: func(p *os.Process, exited bool) {
				calls = append(calls, exited)
				_ = p.Signal(unix.SIGTERM)
			},
		}, env.ExecRequest{
			Timeout: 300 * time.Millisecond,
			Output:  func(_ env.Stream, text string, _, _ int64) { out.WriteString(text) },
		})
		var e *env.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, env.Timeout, e.Code)
		require.Equal(t, "the command was stopped after 300ms", e.Message)
		require.Equal(t, -1, res.ExitCode)
		require.Equal(t, []bool{false, true}, calls)
		require.Equal(t, "ready\nasked\n", out.String(), "what it prints while it ends counts")
	})
}

func TestRun_Aborted(t *testing.T) {
	t.Parallel()
	reason := errors.New("the engine is closing")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, err := process.Run(ctx, &process.Command{Cmd: shell(t, "echo ready; sleep 60")}, env.ExecRequest{
		Timeout: time.Minute,
		Output:  func(env.Stream, string, int64, int64) { cancel(reason) },
	})
	var e *env.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, env.Aborted, e.Code)
	require.ErrorIs(t, err, reason)
}

// A process outside the session that goes on printing holds nobody up.
func TestRun_EndlessHolder(t *testing.T) {
	t.Parallel()
	var n int
	res, err := process.Run(t.Context(), &process.Command{
		Cmd: shell(t, "setsid sh -c 'trap \"\" PIPE; yes & sleep 0.2; kill $!' & sleep 0.1"),
	}, env.ExecRequest{Output: func(_ env.Stream, text string, _, _ int64) { n += len(text) }})
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Positive(t, n)
}
