package isolation

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

func TestOpen_Off(t *testing.T) {
	t.Parallel()
	m := openAny(t, &Options{Level: None})
	require.Equal(t, None, m.Status().Level)
	require.Equal(t, Off, m.Status().State)
	require.Contains(t, m.Status().Reason, "image", "S6.3: the reason names the server's image")
	_, err := m.Env(t.Context(), &EnvParams{Tree: 1})
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorIs(t, m.Remove(t.Context(), 1), ErrUnavailable)
	_, _, err = m.Size(t.Context(), 1)
	require.ErrorIs(t, err, ErrUnavailable)
	require.NoError(t, m.Close())
}

// S6.3: where no level works the reason says what to install.
func TestAdvice(t *testing.T) {
	t.Parallel()
	s := advice([]Attempt{{Bwrap, "bubblewrap is not installed"}, {Landlock, "Landlock ABI 6 or newer is needed, the kernel has 0"}}, true)
	for _, part := range []string{"bwrap: bubblewrap is not installed", "landlock: Landlock ABI 6", "install bubblewrap", "container image"} {
		require.Contains(t, s, part)
	}
	require.NotContains(t, advice([]Attempt{{Root, "root lacks CAP_SETUID"}}, false), "install")
}

// S6.3: an ordinary user gets bubblewrap when it works, else Landlock, and the
// status says why.
func TestDetect_User(t *testing.T) {
	t.Parallel()
	need(t, Landlock)
	for name, path := range map[string]string{"with-bubblewrap": "/usr/bin:/bin", "without": "/bin/none"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inProcess(t, Bwrap, func(t *testing.T) {
				require.NoError(t, os.Setenv("PATH", path))
				m := manager(t, &Options{})
				if name == "with-bubblewrap" {
					require.Equal(t, Bwrap, m.Status().Level)
					require.Empty(t, m.Status().Tried)
					return
				}
				require.Equal(t, Landlock, m.Status().Level)
				require.Len(t, m.Status().Tried, 1)
				require.Contains(t, m.Status().Tried[0].Reason, "not installed")
				require.Contains(t, strings.Join(m.Status().Notes, "\n"), "process limit", "reported as weaker")
			})
		})
	}
}

// S6.2: root needs no more than these capabilities, and says which it lacks.
func TestRoot_FewCapabilities(t *testing.T) {
	t.Parallel()
	need(t, Root)
	t.Run("enough", func(t *testing.T) {
		t.Parallel()
		if !isChild() {
			withCaps(t, "+setuid,+setgid,+setpcap,+kill,+chown")
			return
		}
		uids := isolationtest.UIDs(t, 2)
		o := &Options{AgentUIDs: uids}
		m := manager(t, o)
		e := environmentOf(t, m, 1)
		shell(t, e, "mkdir -p a/b; echo x > a/b/f; chmod 000 a")
		require.NoError(t, e.Write(t.Context(), "f", strings.NewReader("x"), env.WriteOptions{}))
		require.NoError(t, m.Close())
		m = manager(t, &Options{DataDir: o.DataDir, AgentUIDs: isolationtest.UIDs(t, 1)})
		e = environmentOf(t, m, 1)
		require.Equal(t, "x\n", shell(t, e, "chmod 700 a; cat a/b/f"), "handed over")
		require.NoError(t, m.Remove(t.Context(), 1))
		require.NoDirExists(t, filepath.Join(o.DataDir, workName, "1"))
	})
	t.Run("missing", func(t *testing.T) {
		t.Parallel()
		if !isChild() {
			withCaps(t, "+setgid,+kill,+chown")
			return
		}
		m := openAny(t, &Options{})
		require.Equal(t, Off, m.Status().State, "never a silent fallback")
		require.Contains(t, m.Status().Reason, "CAP_SETUID")
		require.Contains(t, m.Status().Reason, "CAP_SETPCAP")
	})
}

// withCaps runs this test in a process of root with few capabilities, as in a
// container.
func withCaps(t *testing.T, caps string) {
	t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	isolationtest.Need(t, err == nil, "setpriv")
	asProcess(t, &syscall.SysProcAttr{Credential: &syscall.Credential{}}, []string{setpriv, "--inh-caps=-all", "--bounding-set=-all," + caps})
}

// S6.2: on a kernel without Landlock and filters another user's rights remain,
// and the status says what is missing.
func TestRoot_OldKernel(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		m := manager(t, &Options{AgentUIDs: isolationtest.UIDs(t, 2), weaken: []string{"old kernel"}})
		require.Contains(t, strings.Join(m.Status().Notes, "\n"), "no system call filters")
		require.Contains(t, strings.Join(m.Status().Notes, "\n"), "Landlock (ABI 0)")
		shell(t, environmentOf(t, m, 1), "true")
		m = openAny(t, &Options{Network: NetworkOff, weaken: []string{"old kernel"}})
		require.Equal(t, Off, m.Status().State)
	})
}

// S6.4: a folder on the way that agents cannot enter is named, with what to do.
func TestSelfTest_Ancestor(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		dir := isolationtest.DataDir(t)
		shut := filepath.Join(dir, "shut")
		require.NoError(t, os.MkdirAll(shut, 0o755))
		require.NoError(t, os.Chmod(shut, 0o700))
		m := openAny(t, &Options{DataDir: filepath.Join(shut, "data")})
		require.Equal(t, Failed, m.Status().State)
		require.Contains(t, m.Status().Reason, "cannot enter "+shut+",")
		require.Contains(t, m.Status().Reason, "WP_DURABLE_DATA_DIR")
	})
}

// S6.2: what root left under work is no agent's, and nobody guesses whose.
func TestSelfTest_RootOwned(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		for name, make := range map[string]func(work string) error{
			"5":     func(work string) error { return os.Mkdir(filepath.Join(work, "5"), 0o755) },
			"notes": func(work string) error { return os.WriteFile(filepath.Join(work, "notes"), nil, 0o644) },
			"007":   func(work string) error { return os.Mkdir(filepath.Join(work, "007"), 0o755) },
		} {
			dir := isolationtest.DataDir(t)
			work := filepath.Join(dir, workName)
			require.NoError(t, os.MkdirAll(work, 0o755))
			require.NoError(t, make(work))
			m := openAny(t, &Options{DataDir: dir})
			require.Equal(t, []string{"folders"}, failed(m))
			require.Contains(t, m.Status().Reason, filepath.Join(work, name))
		}
	})
}

// S6.2: folders of a former range, and one whose id another tree has, are
// handed over with all that is in them, and nothing else.
func TestHandOver(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		o := &Options{AgentUIDs: isolationtest.UIDs(t, 1)}
		m := manager(t, o)
		for tree := range int64(3) {
			e := environmentOf(t, m, tree+1)
			shell(t, e, "mkdir -p a/b; echo x > a/b/f; ln -s /etc/passwd a/link; chmod 700 a/b")
		}
		require.NoError(t, m.Close())
		secret := filepath.Join(o.DataDir, "server.db")
		require.NoError(t, os.WriteFile(secret, []byte("rows"), 0o600))
		require.NoError(t, os.Link(secret, filepath.Join(o.DataDir, workName, "1", "a", "hard")))

		first := isolationtest.Reserve(t, 5)
		m = manager(t, &Options{DataDir: o.DataDir, AgentUIDs: fmt.Sprintf("%d-%d", first, first+4)})
		seen := map[uint32]bool{}
		for tree := range int64(3) {
			e := environmentOf(t, m, tree+1)
			require.Equal(t, "x\n", shell(t, e, "cat a/b/f; echo y > a/b/f; echo z > a/new"))
			owner := ownerOf(t, e.WorkDir())
			require.False(t, seen[owner], "each tree has its own")
			seen[owner] = true
			for _, name := range []string{"a", "a/b", "a/b/f", "a/link"} {
				require.Equal(t, owner, ownerOf(t, filepath.Join(e.WorkDir(), name)), name)
			}
		}
		require.Zero(t, ownerOf(t, secret), "a hard link gives nothing away")
		require.Zero(t, ownerOf(t, "/etc/passwd"))
		// An id of the range that is not the tree's.
		e := environmentOf(t, m, 1)
		own := ownerOf(t, e.WorkDir())
		require.NoError(t, exec.CommandContext(t.Context(), "chown", "-Rh", strconv.Itoa(first+4), e.WorkDir()).Run())
		require.Equal(t, "y\n", shell(t, e, "cat a/b/f"))
		require.Equal(t, own, ownerOf(t, e.WorkDir()))
		require.Equal(t, own, ownerOf(t, filepath.Join(e.WorkDir(), "a/b/f")))
		require.NoError(t, m.Close())

		// A tree's id stays its own over restarts.
		m = manager(t, &Options{DataDir: o.DataDir, AgentUIDs: fmt.Sprintf("%d-%d", first, first+4)})
		for tree := range int64(3) {
			e := environmentOf(t, m, tree+1)
			shell(t, e, "cat a/b/f")
			require.True(t, seen[ownerOf(t, e.WorkDir())])
			delete(seen, ownerOf(t, e.WorkDir()))
		}
		require.Empty(t, seen)
	})
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Sys().(*syscall.Stat_t).Uid
}

// S6.2: with no id free commands are refused with limit; a deleted folder's id
// is used again; a child uses its tree's.
func TestRange_Limit(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		o := &Options{AgentUIDs: isolationtest.UIDs(t, 2)}
		m := manager(t, o)
		e1, e2, e3 := environmentOf(t, m, 1), environmentOf(t, m, 2), environmentOf(t, m, 3)
		uid1, uid2 := shell(t, e1, "id -u"), shell(t, e2, "id -u")
		require.NotEqual(t, uid1, uid2)
		child, err := m.Env(t.Context(), &EnvParams{Tree: 1, Conversation: 9})
		require.NoError(t, err)
		require.Equal(t, uid1, shell(t, child, "id -u"))
		require.Equal(t, "9\n", shell(t, child, "echo $WP_CONVERSATION_ID"))
		require.Equal(t, e1.ID(), child.ID())

		o3 := execute(t.Context(), e3, "true")
		require.ErrorIs(t, o3.err, ErrLimit)
		var ee *env.Error
		require.ErrorAs(t, o3.err, &ee)
		require.Contains(t, ee.Message, "limit")
		require.ErrorIs(t, e3.Write(t.Context(), "f", strings.NewReader("x"), env.WriteOptions{}), ErrLimit)

		require.NoError(t, m.Remove(t.Context(), 2))
		require.Equal(t, uid2, shell(t, e3, "id -u"))
		require.NoError(t, os.RemoveAll(e1.WorkDir()), "deleted by others")
		require.Equal(t, uid1, shell(t, e2, "id -u"))
		require.ErrorIs(t, execute(t.Context(), e1, "true").err, ErrLimit)
		require.NoError(t, m.Close())

		// All ids in use is no reason to fail the self-test.
		m = manager(t, o)
		require.Equal(t, uid1, shell(t, environmentOf(t, m, 2), "id -u"))
	})
}

// S6.2: a second server with some of the same ids is refused.
func TestRange_Overlap(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		first := isolationtest.Reserve(t, 10)
		m := manager(t, &Options{AgentUIDs: fmt.Sprintf("%d-%d", first+2, first+5)})
		for _, overlapping := range []string{
			fmt.Sprint(first + 2), fmt.Sprint(first + 5), fmt.Sprintf("%d-%d", first, first+2), fmt.Sprintf("%d-%d", first, first+9),
		} {
			_, err := Open(t.Context(), &Options{DataDir: isolationtest.DataDir(t), AgentUIDs: overlapping})
			require.ErrorIs(t, err, ErrRangeInUse, overlapping)
		}
		manager(t, &Options{AgentUIDs: fmt.Sprintf("%d-%d", first, first+1)})
		require.NoError(t, m.Close())
		manager(t, &Options{AgentUIDs: fmt.Sprintf("%d-%d", first+2, first+9)})
	})
}

func TestOpen_DataInUse(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		o := &Options{Level: l}
		m := manager(t, o)
		again := *o
		if l == Root {
			again.AgentUIDs = isolationtest.UIDs(t, 1)
		}
		began := time.Now()
		_, err := Open(t.Context(), &again)
		require.ErrorIs(t, err, ErrDataInUse)
		require.Less(t, time.Since(began), 8*time.Second, "only what a dead server left is waited for")
		require.NoError(t, m.Close())
		manager(t, o)
	})
}

// A folder with other things in it is no data folder: its modes stay.
func TestOpen_NoDataFolder(t *testing.T) {
	t.Parallel()
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	for _, dir := range []string{"/", "/etc", "/tmp", "/usr/../tmp", home} {
		_, err := Open(t.Context(), &Options{DataDir: dir})
		require.ErrorContains(t, err, "no folder for data alone", dir)
	}
}

// S6.5: what runs as an agent at the start is left from before.
func TestOpen_KillsLeftovers(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		first := isolationtest.Reserve(t, 3)
		var left []*exec.Cmd
		for uid := range 3 {
			cmd := exec.Command("sh", "-c", "trap '' TERM HUP; echo x; while :; do sleep 1000; done")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(first + uid), Gid: 4}, Setsid: true}
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, cmd.Start())
			_, err = out.Read(make([]byte, 2))
			require.NoError(t, err)
			left = append(left, cmd)
		}
		t.Cleanup(func() {
			for _, cmd := range left {
				_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
				_ = cmd.Wait()
			}
		})
		manager(t, &Options{AgentUIDs: fmt.Sprintf("%d-%d", first, first+1)})
		users, err := helper.Users(first, first+2)
		require.NoError(t, err)
		require.Empty(t, users[first])
		require.Empty(t, users[first+1])
		require.NotEmpty(t, users[first+2], "not one of the range")
	})
}

// S6.2: when a helper itself is killed, the end of the user's last call ends
// what it left.
func TestExec_HelperKilled(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		m := manager(t, &Options{})
		e := environmentOf(t, m, 1)
		uid := e.(*environment).uid()
		other := background(t, e, "echo x; exec sleep 1000")
		r := background(t, e, "setsid sh -c 'trap \"\" TERM; sleep 1000' & echo $PPID; wait")
		supervisor, err := strconv.Atoi(strings.TrimSpace(r.first))
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(supervisor, syscall.SIGKILL))
		o := <-r.ended
		r.ended <- o
		requireCode(t, o.err, env.Unknown)
		require.True(t, other.alive(), "another call of the user runs, so nothing is killed by user")
		users, err := helper.Users(uid, uid)
		require.NoError(t, err)
		require.Greater(t, len(users[uid]), 1)
		other.cancel()
		o = <-other.ended
		other.ended <- o
		requireCode(t, o.err, env.Aborted)
		users, err = helper.Users(uid, uid)
		require.NoError(t, err)
		require.Empty(t, users[uid])
	})
}

// S6.2: CONCURRENT_COMMANDS bounds commands over all trees; those that wait can
// be given up.
func TestExec_Concurrent(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		m := manager(t, &Options{Level: l, ConcurrentCommands: 2})
		first := background(t, environmentOf(t, m, 1), "echo x; exec sleep 1000")
		background(t, environmentOf(t, m, 2), "echo x; exec sleep 1000")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		o := execute(ctx, environmentOf(t, m, 3), "true")
		requireCode(t, o.err, env.Aborted)
		first.cancel()
		shell(t, environmentOf(t, m, 3), "true")
	})
}

func TestManager_RemoveAndSize(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		m := manager(t, &Options{Level: l})
		ctx := t.Context()
		e := environmentOf(t, m, 1)
		bytes, entries, err := m.Size(ctx, 1)
		require.NoError(t, err)
		require.Zero(t, bytes+entries)
		require.NoDirExists(t, e.WorkDir(), "made at first use")
		shell(t, e, "mkdir a; head -c 1000 /dev/zero > a/f; ln -s /usr a/usr; mkdir shut; echo x > shut/f; chmod 000 shut")
		require.Equal(t, os.FileMode(0o700), modeOf(t, e.WorkDir()))
		bytes, entries, err = m.Size(ctx, 1)
		require.NoError(t, err)
		require.EqualValues(t, 1000, bytes)
		require.EqualValues(t, 6, entries, "the folder, .tmp, and what the command made but what is shut")

		r := background(t, e, "echo x; exec sleep 1000")
		require.ErrorIs(t, m.Remove(ctx, 1), ErrBusy)
		r.cancel()
		o := <-r.ended
		r.ended <- o
		require.NoError(t, m.Remove(ctx, 1))
		require.NoDirExists(t, e.WorkDir())
		require.NoError(t, m.Remove(ctx, 1), "what is not there is removed")
		require.Equal(t, "", shell(t, e, "ls"), "an old environment has a new folder")
		_, err = m.Env(ctx, &EnvParams{Tree: 0})
		require.Error(t, err)
	})
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	require.NoError(t, err)
	return info.Mode().Perm()
}

// S1.4: stopping ends commands and keeps what they printed.
func TestManager_Close(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		m := manager(t, &Options{Level: l})
		e := environmentOf(t, m, 1)
		began, ended := make(chan struct{}), make(chan outcome, 1)
		go func() {
			var o outcome
			o.ExecResult, o.err = e.Exec(t.Context(), env.ExecRequest{
				Command: "seq 1000; echo begun > began; sleep 1000",
				Spill:   &env.Spill{AfterBytes: 10, Name: "bash-1.log"},
				Output: func(_ env.Stream, s string, _, _ int64) {
					if strings.Contains(s, "1000") {
						close(began)
					}
				},
			})
			ended <- o
		}()
		<-began
		require.NoError(t, m.Close())
		o := <-ended
		requireCode(t, o.err, env.Aborted)
		require.ErrorIs(t, o.err, ErrClosed)
		b, err := os.ReadFile(filepath.Join(e.WorkDir(), o.SpillPath))
		require.NoError(t, err)
		require.Contains(t, string(b), "999\n1000\n")
		require.NoError(t, m.Close(), "twice is fine")
		_, err = m.Env(t.Context(), &EnvParams{Tree: 1})
		require.ErrorIs(t, err, ErrClosed)
		_, err = e.Stat(t.Context(), ".")
		require.ErrorIs(t, err, ErrClosed)
		require.ErrorIs(t, execute(t.Context(), e, "true").err, ErrClosed)
	})
}

// What the tools' users do all day works at every level.
func TestExec_Usual(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		m := manager(t, &Options{Level: l})
		e := environmentOf(t, m, 1)
		_, err := exec.LookPath("git")
		isolationtest.Need(t, err == nil, "git")
		out := shell(t, e, "git init -q -b main r && cd r && git config core.x y && echo a > f && chmod +x f && git add f && git commit -q -m one && git log --format='%an <%ae> %s' && git clone -q . ../c && ls -l ../c/f | cut -c1-10")
		require.Equal(t, "agent <agent@wp-durable.invalid> one\n-rwxr-xr-x\n", out)
		require.Equal(t, "same\n", shell(t, e, "diff <(echo a) <(echo a) && echo same"))
		require.Equal(t, "2020\n", shell(t, e, "touch -d 2020-01-01 old && cp -p old new && tar cf t.tar old && rm old && tar xf t.tar && stat -c %y old | cut -c1-4"))
		require.Equal(t, "3 2 1\n", shell(t, e, "seq 3 | sort -rn | xargs"))
		require.Equal(t, "6\n", shell(t, e, "perl -e 'print 1+2+3, \"\\n\"'"))
		require.Equal(t, "x\n", shell(t, e, "f=$(mktemp) && echo x > $f && cat $f"))
		require.Equal(t, "x\n", shell(t, e, "echo x > /dev/stdout; echo z > /dev/null"))
		require.Equal(t, "y\n", shell(t, e, "echo y > /dev/stderr"))
		require.Equal(t, "2\n", shell(t, e, "mkdir -p p/q && mv new p/q/moved && ln p/q/moved linked && stat -c %h linked"))
	})
}

// S6.3: bubblewrap shares the network only where commands stay out of other
// programs' sockets.
func TestBwrap_Network(t *testing.T) {
	t.Parallel()
	need(t, Landlock)
	atLevel(t, Bwrap, func(t *testing.T) {
		m := manager(t, &Options{Level: Bwrap, Network: NetworkOn})
		require.True(t, m.Status().Network)
		a := &attackTest{level: Bwrap, m: m, e: environmentOf(t, m, 1)}
		arm(t, a.e)
		a.sockets(t)
	})
}

// Folders that commands may read cannot bring the data folder with them.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	for _, l := range []Level{Bwrap, Landlock} {
		t.Run(string(l), func(t *testing.T) {
			t.Parallel()
			atLevel(t, l, func(t *testing.T) {
				programs, above := t.TempDir(), isolationtest.DataDir(t)
				require.NoError(t, os.WriteFile(filepath.Join(programs, "hello"), []byte("#!/bin/sh\necho hello\n"), 0o755))
				m := manager(t, &Options{Level: l, ReadOnly: []string{programs, "/no/such/folder"}})
				e := environmentOf(t, m, 1)
				require.Equal(t, "hello\n", shell(t, e, filepath.Join(programs, "hello")))
				require.NotZero(t, execute(t.Context(), e, "echo x > "+filepath.Join(programs, "new")).ExitCode)

				m = openAny(t, &Options{Level: l, DataDir: filepath.Join(above, "data"), ReadOnly: []string{above}})
				if l == Bwrap {
					require.Equal(t, OK, m.Status().State, m.Status().Reason)
					return
				}
				require.Equal(t, Off, m.Status().State)
				require.Contains(t, m.Status().Reason, "WP_DURABLE_DATA_DIR")
			})
		})
	}
}

// At the level bwrap /tmp is the work folder's own, so that what one command
// leaves there the next one finds.
func TestBwrap_Temp(t *testing.T) {
	t.Parallel()
	inProcess(t, Bwrap, func(t *testing.T) {
		dir, err := os.MkdirTemp("/var/tmp", "wp-durable-test-")
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
		m := manager(t, &Options{Level: Bwrap, DataDir: filepath.Join(dir, "data")})
		e := environmentOf(t, m, 1)
		shell(t, e, "echo x > /tmp/f")
		require.Equal(t, "x\n", shell(t, e, "cat /tmp/f $TMPDIR/../.tmp/f | uniq"))
		// A link there leads nowhere but inside.
		home, err := os.UserHomeDir()
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(home, "own"), []byte("a person's"), 0o600))
		o := execute(t.Context(), e, "rm -rf .tmp; ln -s "+home+" .tmp")
		require.NoError(t, o.err)
		o = execute(t.Context(), e, "cat /tmp/own")
		require.NotContains(t, o.text, "a person's")
		require.NotZero(t, o.ExitCode)
	})
}

// A server that is root may leave its commands without network.
func TestRoot_NoNetwork(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		m := manager(t, &Options{Network: NetworkOff})
		require.False(t, m.Status().Network)
		a := &attackTest{level: Root, m: m, e: environmentOf(t, m, 1)}
		arm(t, a.e)
		a.sockets(t)
	})
}

// A folder that the agent shut for itself is no failure of the isolation.
func TestExec_ShutFolder(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		e := environmentOf(t, manager(t, &Options{Level: l}), 1)
		shell(t, e, "mkdir shut && chmod 000 shut")
		_, err := e.Exec(t.Context(), env.ExecRequest{Command: "true", Dir: "shut"})
		requireCode(t, err, env.SpawnFailed)
		require.Contains(t, err.Error(), "cannot be entered")
		shell(t, e, "chmod 700 shut")
	})
}

// S6.4: a refused fork names the likely cause.
func TestTooMany(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		uids := isolationtest.UIDs(t, 1)
		var uid uint32
		_, err := fmt.Sscan(uids, &uid)
		require.NoError(t, err)
		m := manager(t, &Options{AgentUIDs: uids, NPROC: 16})
		e := environmentOf(t, m, 1)
		// As another container's processes, which the kernel counts too.
		for range 20 {
			cmd := exec.CommandContext(t.Context(), "sleep", "1000")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
			require.NoError(t, cmd.Start())
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		}
		o := execute(t.Context(), e, "true")
		requireCode(t, o.err, env.SpawnFailed)
		require.Contains(t, o.err.Error(), "another container or server")
	})
}
