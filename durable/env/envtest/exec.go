package envtest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
)

var execTests = map[string]func(t *testing.T, h *Harness){
	"exit codes": func(t *testing.T, h *Harness) {
		for command, code := range map[string]int{
			"true": 0, "exit 3": 3, "false": 1, "no-such-program-anywhere": 127, "exit 255": 255, "sh -c 'kill -9 $$'; exit $?": 137,
		} {
			_, res, err := exec(limited(t), h, env.ExecRequest{Command: command})
			require.NoError(t, err, "a command that ran and failed is no error")
			require.Equal(t, code, res.ExitCode, command)
			require.Empty(t, res.Signal)
			require.Empty(t, res.SpillPath)
		}
	},

	"signal": func(t *testing.T, h *Harness) {
		_, res, err := exec(limited(t), h, env.ExecRequest{Command: "kill -9 $$"})
		require.NoError(t, err)
		require.Equal(t, -1, res.ExitCode)
		require.Equal(t, "SIGKILL", res.Signal)
	},

	"a command may have lines, quotes and here documents": func(t *testing.T, h *Harness) {
		out := run(t, h, "a='x y'\nprintf '%s|' \"$a\" '$a'\ncat <<'END'\n$a \"q\"\nEND\n")
		require.Equal(t, "x y|$a|$a \"q\"\n", out)
	},

	"an argument list is taken as it is": func(t *testing.T, h *Harness) {
		out, res, err := exec(limited(t), h, env.ExecRequest{Argv: []string{"printf", "%s|", "a b", "$HOME", "*", "'", ""}})
		require.NoError(t, err)
		require.Zero(t, res.ExitCode)
		require.Equal(t, "a b|$HOME|*|'||", out)
	},

	"folder": func(t *testing.T, h *Harness) {
		write(t, h, "sub dir/f", "x")
		for _, dir := range []string{"sub dir", h.Env.WorkDir() + "/sub dir"} {
			out, _, err := exec(limited(t), h, env.ExecRequest{Command: "pwd -P; ls", Dir: dir})
			require.NoError(t, err)
			require.Equal(t, h.Env.WorkDir()+"/sub dir\nf\n", out)
		}
		for _, dir := range []string{"none", "sub dir/f"} {
			_, res, err := exec(limited(t), h, env.ExecRequest{Command: "true", Dir: dir})
			requireCode(t, err, env.SpawnFailed)
			require.Equal(t, -1, res.ExitCode)
		}
	},

	"what cannot be started": func(t *testing.T, h *Harness) {
		_, res, err := exec(limited(t), h, env.ExecRequest{Argv: []string{"no-such-program-anywhere"}})
		if err != nil { // where a shell starts the program, its exit code says it
			requireCode(t, err, env.SpawnFailed)
			require.Equal(t, -1, res.ExitCode)
		} else {
			require.Equal(t, 127, res.ExitCode)
		}
		_, err = h.Env.Exec(limited(t), env.ExecRequest{})
		requireCode(t, err, env.Invalid)
		_, err = h.Env.Exec(limited(t), env.ExecRequest{Command: "true", Argv: []string{"true"}})
		requireCode(t, err, env.Invalid)
	},

	"standard input is empty": func(t *testing.T, h *Harness) {
		require.Equal(t, "end\n", run(t, h, "cat; echo end"))
	},

	"parallel calls are independent": func(t *testing.T, h *Harness) {
		ctx := limited(t)
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				out, res, err := exec(ctx, h, env.ExecRequest{Command: fmt.Sprintf("until [ -e go ]; do sleep 0.01; done; echo out%d; exit %d", i, i)})
				if err != nil || res.ExitCode != i || out != fmt.Sprintf("out%d\n", i) {
					t.Errorf("call %d: %q, %+v, %v", i, out, res, err)
				}
			})
		}
		// one that is killed and one that ends meanwhile disturb nobody
		_, _, err := exec(ctx, h, env.ExecRequest{Command: "sleep 60", Timeout: 100 * time.Millisecond})
		requireCode(t, err, env.Timeout)
		run(t, h, "sleep 60 & true")
		write(t, h, "go", "")
		wg.Wait()
	},
}

// beating is a command that shows in the file beat that it lives, whatever
// signal asks it to end.
const beating = "trap '' TERM HUP INT; while :; do echo x >> beat; sleep 0.01; done"

// begun is a command that waits until that one has begun.
const begun = "until [ -s beat ]; do sleep 0.01; done"

// requireDead asserts that what wrote the file beat does so no more.
func requireDead(t *testing.T, h *Harness) {
	t.Helper()
	out := run(t, h, "wc -c < beat; sleep 0.3; wc -c < beat")
	sizes := strings.Fields(out)
	require.Len(t, sizes, 2)
	require.Equal(t, sizes[0], sizes[1], "something is still running")
}

// S5.2: what a call started is dead when it returns.
var endTests = map[string]func(t *testing.T, h *Harness){
	"timeout": func(t *testing.T, h *Harness) {
		began := time.Now()
		out, res, err := exec(limited(t), h, env.ExecRequest{
			Command: "echo begun; (" + beating + ") & " + beating, Timeout: 3 * time.Second,
		})
		requireCode(t, err, env.Timeout)
		require.Equal(t, -1, res.ExitCode)
		require.Equal(t, "begun\n", out)
		require.Less(t, time.Since(began), 20*time.Second)
		requireDead(t, h)
	},

	"a timeout that is not reached": func(t *testing.T, h *Harness) {
		out, res, err := exec(limited(t), h, env.ExecRequest{Command: "echo x; exit 2", Timeout: waitLimit})
		require.NoError(t, err)
		require.Equal(t, 2, res.ExitCode)
		require.Equal(t, "x\n", out)
	},

	"abort": func(t *testing.T, h *Harness) {
		ctx, cancel := context.WithCancel(limited(t))
		defer cancel()
		out, res, err := exec(ctx, h, env.ExecRequest{
			Command: "(" + beating + ") & " + begun + "; echo begun; wait",
			Output:  func(env.Stream, string, int64, int64) { cancel() },
		})
		requireCode(t, err, env.Aborted)
		require.Equal(t, -1, res.ExitCode)
		require.Equal(t, "begun\n", out)
		requireDead(t, h)
	},

	"what is left in the background": func(t *testing.T, h *Harness) {
		began := time.Now()
		out := run(t, h, "("+beating+") & "+begun+"; echo done")
		require.Equal(t, "done\n", out)
		require.Less(t, time.Since(began), 20*time.Second, "what holds the output is not waited for")
		requireDead(t, h)
	},

	"what is left in process groups of its own": func(t *testing.T, h *Harness) {
		run(t, h, "set -m; ("+beating+") & "+begun)
		requireDead(t, h)
	},

	"what is left of a pipeline": func(t *testing.T, h *Harness) {
		run(t, h, "("+beating+" | cat) 2>/dev/null & "+begun)
		requireDead(t, h)
	},

	"a process with its own session": func(t *testing.T, h *Harness) {
		if !h.KillsDaemons {
			// it may go on, but the call must not wait for it
			began := time.Now()
			run(t, h, "command -v setsid >/dev/null || exit 0; setsid sh -c 'echo x > beat; exec sleep 30' & "+begun)
			require.Less(t, time.Since(began), 20*time.Second)
			return
		}
		run(t, h, "setsid sh -c \""+beating+"\" & "+begun)
		requireDead(t, h)
		_, _, err := exec(limited(t), h, env.ExecRequest{Command: "setsid sh -c \"" + beating + "\" & wait", Timeout: 300 * time.Millisecond})
		requireCode(t, err, env.Timeout)
		requireDead(t, h)
	},
}
