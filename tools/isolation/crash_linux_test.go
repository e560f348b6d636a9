package isolation

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
)

// Where the server of TestCrash has its data, and at which level.
const (
	crashDataEnv  = "WP_TEST_CRASH_DATA"
	crashLevelEnv = "WP_TEST_CRASH_LEVEL"
	crashUIDsEnv  = "WP_TEST_CRASH_UIDS"
)

// TestCrashServer is the server that TestCrash kills; by itself it does
// nothing.
func TestCrashServer(t *testing.T) {
	dir := os.Getenv(crashDataEnv)
	if dir == "" {
		return
	}
	m, err := Open(t.Context(), &Options{DataDir: dir, Level: Level(os.Getenv(crashLevelEnv)), AgentUIDs: os.Getenv(crashUIDsEnv), helper: os.Getenv(helperEnv)})
	require.NoError(t, err)
	e := environmentOf(t, m, 1)
	_, _ = e.Exec(t.Context(), env.ExecRequest{
		Command: `seq 1000
			(setsid sh -c 'trap "" TERM HUP INT; while :; do echo x >> daemon; done') &
			trap "" TERM HUP INT PIPE
			while :; do echo x >> command; [ -s daemon ] && [ ! -e both ] && touch both && echo both; done`,
		Spill:  &env.Spill{AfterBytes: 10, Name: "bash-" + strconv.Itoa(crashTask) + ".log"},
		Output: func(_ env.Stream, s string, _, _ int64) { _, _ = os.Stdout.WriteString(s) },
	})
}

const crashTask = 17

// S6.5: after a server was killed its commands do not go on, and what they
// printed is where the model looks for it.
func TestCrash(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		o := &Options{Level: l}
		m := manager(t, o)
		e := environmentOf(t, m, 1)
		require.NoError(t, m.Close())
		server := exec.CommandContext(t.Context(), os.Getenv(programEnv), "-test.run=^TestCrashServer$", "-test.timeout=5m")
		server.Env = append(os.Environ(), crashDataEnv+"="+o.DataDir, crashLevelEnv+"="+string(l), crashUIDsEnv+"="+o.AgentUIDs)
		out, err := server.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, server.Start())
		var text []byte
		for buf := make([]byte, 4096); ; {
			n, err := out.Read(buf)
			text = append(text, buf[:n]...)
			require.NoError(t, err, "%s", text)
			if len(text) >= 5 && string(text[len(text)-5:]) == "both\n" {
				break
			}
		}
		require.NoError(t, server.Process.Kill())
		_ = server.Wait()

		m = manager(t, o)
		e = environmentOf(t, m, 1)
		sizes := func() [2]int64 {
			var s [2]int64
			for i, name := range []string{"command", "daemon"} {
				info, err := os.Stat(filepath.Join(e.WorkDir(), name))
				require.NoError(t, err)
				s[i] = info.Size()
			}
			return s
		}
		before := sizes()
		shell(t, e, "sleep 0.3")
		require.Equal(t, before, sizes(), "nothing writes any more")
		log, err := content(t.Context(), e, ".tmp/bash-17.log")
		require.NoError(t, err)
		require.Contains(t, log, "999\n1000\nboth\n")
		entries, err := os.ReadDir(filepath.Join(o.DataDir, spillName))
		require.NoError(t, err)
		require.Empty(t, entries)
	})
}
