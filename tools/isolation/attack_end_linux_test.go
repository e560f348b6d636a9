package isolation

import (
	"context"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

const runtimeArch = runtime.GOARCH

// left counts the processes of commands that still run. With an ordinary user
// this test's own process is that user's too.
func (a *attackTest) left(t *testing.T) int {
	t.Helper()
	uid, own := os.Getuid(), 1
	if a.level == Root {
		uid, own = a.e.(*environment).uid(), 0
	}
	users, err := helper.Users(uid, uid)
	require.NoError(t, err)
	return len(users[uid]) - own
}

// S5.2, S6.2: nothing outlives its call.
func (a *attackTest) outlive(t *testing.T) {
	for _, command := range []string{
		"setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' & echo x",
		"(setsid sh -c '(setsid sleep 1000 &) & sleep 1000' &); echo x",
		"nohup sleep 1000 >/dev/null 2>&1 & disown; echo x",
		"sleep 1000 & kill -STOP $!; echo x",
		"setsid sh -c 'exec 0<&- 1>&- 2>&-; sleep 1000' & echo x",
	} {
		require.Equal(t, "x\n", shell(t, a.e, command))
		require.Zero(t, a.left(t), command)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := a.e.Exec(ctx, env.ExecRequest{
		Command: "setsid sh -c 'trap \"\" TERM; echo x; sleep 1000' & wait",
		Output:  func(env.Stream, string, int64, int64) { cancel() },
	})
	requireCode(t, err, env.Aborted)
	require.Zero(t, a.left(t))
}

// A fork bomb meets the process limit, and the end of its call.
func (a *attackTest) bomb(t *testing.T) {
	for _, command := range []string{
		":(){ :|:& };:; sleep 1000",
		"bomb() { bomb & bomb & wait; }; setsid sh -c 'b() { b & b & b; }; b' & bomb",
	} {
		began := time.Now()
		_, err := a.e.Exec(t.Context(), env.ExecRequest{Command: command, Timeout: 1500 * time.Millisecond})
		if err != nil {
			requireCode(t, err, env.Timeout)
		}
		require.Less(t, time.Since(began), 40*time.Second)
		require.Zero(t, a.left(t))
		require.Equal(t, "x\n", shell(t, a.e, "echo x"), "the next command runs")
	}
}

// Processes that fork and end faster than they can be listed.
func (a *attackTest) hop(t *testing.T) {
	began := time.Now()
	require.Equal(t, "x\n", shell(t, a.e, "for i in 1 2 3 4; do setsid ./attacker attack hop >/dev/null 2>&1 & done; sleep 0.5; echo x"))
	require.Less(t, time.Since(began), 40*time.Second)
	require.Zero(t, a.left(t))
}

// A command that signals everything it may reaches its own call alone.
func (a *attackTest) killAll(t *testing.T) {
	same := background(t, a.e, "echo x; exec sleep 1000")
	other := background(t, a.other, "echo x; exec sleep 1000")
	o := execute(t.Context(), a.e, "sleep 1000 & kill -9 -1; echo after")
	require.NoError(t, o.err)
	require.Equal(t, "after\n", o.text)
	require.True(t, same.alive(), "another call of the same conversation")
	require.True(t, other.alive(), "another conversation's call")
}

// A command cannot do away with its folder, nor shut it for ever.
func (a *attackTest) ownFolder(t *testing.T) {
	o := execute(t.Context(), a.e, "cd /; rm -rf "+a.e.WorkDir()+"; mv "+a.e.WorkDir()+" /tmp/moved; chmod 000 "+a.e.WorkDir())
	require.NoError(t, o.err)
	require.DirExists(t, a.e.WorkDir())
	require.Equal(t, "x\n", shell(t, a.e, "echo x > f; cat f"))
	shell(t, a.e, "chmod 777 .")
	require.Equal(t, "x\n", shell(t, a.e, "cat f"))
	info, err := os.Stat(a.e.WorkDir())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}
