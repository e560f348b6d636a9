package isolation

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// S6: what a command tries against the server, its files, other conversations
// and the machine.
func TestAttack(t *testing.T) {
	t.Parallel()
	for _, l := range []Level{Root, Bwrap, Landlock} {
		t.Run(string(l), func(t *testing.T) {
			t.Parallel()
			// In a process whose environment holds a secret, as the server's
			// does before it starts anew.
			inProcess(t, l, func(t *testing.T) { attackAll(t, l) })
		})
	}
}

func attackAll(t *testing.T, l Level) {
	require.NotEmpty(t, os.Getenv("WP_TEST_SECRET"))
	o := &Options{Level: l, DataDir: isolationtest.DataDir(t), NPROC: 128}
	if l == Root {
		o.AgentUIDs = isolationtest.UIDs(t, 50)
	}
	m := manager(t, o)
	secret := filepath.Join(o.DataDir, "server.db")
	require.NoError(t, os.WriteFile(secret, []byte("rows of the database"), 0o600))
	t.Cleanup(func() {
		b, err := os.ReadFile(secret)
		require.NoError(t, err)
		require.Equal(t, "rows of the database", string(b), "no attack changed it")
	})
	for i, test := range []struct {
		name string
		run  func(a *attackTest, t *testing.T)
	}{
		{"processes", (*attackTest).processes}, {"own helper", (*attackTest).helper},
		{"other conversations", (*attackTest).conversations}, {"files", (*attackTest).files},
		{"links", (*attackTest).links}, {"swapped hard links", (*attackTest).swaps}, {"FIFO", (*attackTest).fifo},
		{"spill", (*attackTest).spill}, {"sockets", (*attackTest).sockets}, {"calls", (*attackTest).calls},
		{"foreign call", (*attackTest).foreign}, {"environ", (*attackTest).environ},
		{"outlive", (*attackTest).outlive}, {"bomb", (*attackTest).bomb}, {"hop", (*attackTest).hop},
		{"kill all", (*attackTest).killAll}, {"own folder", (*attackTest).ownFolder},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := &attackTest{
				level: l, m: m, secret: secret,
				e: environmentOf(t, m, int64(2*i+1)), other: environmentOf(t, m, int64(2*i+2)),
			}
			arm(t, a.e)
			test.run(a, t)
		})
	}
}

type attackTest struct {
	level    Level
	m        *Manager
	e, other env.Environment
	secret   string
}

func (a *attackTest) refused(t *testing.T, args ...string) {
	t.Helper()
	require.Contains(t, attack(t, a.e, args...), "refused", "%v", args)
}

func (a *attackTest) processes(t *testing.T) {
	if a.level == Bwrap {
		// The server has no number there; the check of environments counts
		// what is seen.
		require.NotContains(t, shell(t, a.e, "ls /proc"), "\n"+strconv.Itoa(os.Getpid())+"\n")
	}
	pids := []int{os.Getpid()}
	if a.level != Bwrap {
		pids = append(pids, os.Getppid())
	}
	for _, pid := range pids {
		for _, name := range []string{
			"ptrace", "memory", "mem file", "maps", "environ", "root", "descriptors", "kill", "limit", "affinity", "priority", "pidfd",
		} {
			a.refused(t, name, strconv.Itoa(pid))
		}
	}
}

// A command must not end, trace or look into the helper that ends its call.
func (a *attackTest) helper(t *testing.T) {
	for _, name := range []string{"ptrace", "memory", "mem file", "maps", "environ", "descriptors", "limit", "pidfd"} {
		o := execute(t.Context(), a.e, fmt.Sprintf("./attacker attack %q $PPID; true", name))
		require.NoError(t, o.err)
		require.Contains(t, o.text, "refused", name)
	}
	// Whatever comes of killing it, the call ends as it must.
	o := execute(t.Context(), a.e, "exec 2>/dev/null; kill -9 $PPID; for i in $(seq 20); do [ $(($$ - i)) -lt 1 ] || kill -9 $(($$ - i)); done; echo after")
	require.NoError(t, o.err)
	require.Equal(t, "after", lastLine(o.text))
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func (a *attackTest) conversations(t *testing.T) {
	require.NoError(t, a.other.Write(t.Context(), "note", strings.NewReader("private"), env.WriteOptions{Mode: 0o666}))
	note := filepath.Join(a.other.WorkDir(), "note")
	a.refused(t, "read", note)
	a.refused(t, "write", note)
	a.refused(t, "list", a.other.WorkDir())
	a.refused(t, "mode", a.other.WorkDir())
	for _, p := range []string{note, filepath.Join("..", filepath.Base(a.other.WorkDir()), "note")} {
		_, err := content(t.Context(), a.e, p)
		requireCode(t, err, env.PermissionDenied)
	}
	sleeper := background(t, a.other, "echo $$; exec sleep 600")
	if a.level == Bwrap {
		return // it has no number in another namespace
	}
	uid := os.Getuid()
	if a.level == Root {
		uid = a.other.(*environment).uid()
	}
	users, err := helper.Users(uid, uid)
	require.NoError(t, err)
	attacked := 0
	for _, pid := range users[uid] {
		if pid == os.Getpid() {
			continue
		}
		attacked++
		for _, name := range []string{"ptrace", "memory", "environ", "kill", "limit"} {
			a.refused(t, name, strconv.Itoa(pid))
		}
	}
	require.Positive(t, attacked)
	require.True(t, sleeper.alive())
}

func (a *attackTest) files(t *testing.T) {
	home, err := os.UserHomeDir()
	require.NoError(t, err)
	own := filepath.Join(home, "own")
	require.NoError(t, os.WriteFile(own, []byte("a person's"), 0o600))
	data := filepath.Dir(a.secret)
	for _, path := range []string{a.secret, own} {
		for _, name := range []string{"read", "write", "mode", "mode at", "mode by descriptor", "times", "owner", "attributes", "hard link"} {
			if name == "write" && a.level == Bwrap {
				// A file of that name can be made in the namespace's own /tmp.
				attack(t, a.e, name, path)
				continue
			}
			a.refused(t, name, path)
		}
	}
	// By links and dots, from inside the folder.
	shell(t, a.e, "ln -s "+own+" to-own; ln -s "+home+" to-home; mkdir sub")
	up := strings.Repeat("../", 12)
	for _, path := range []string{"to-own", "to-home/own", a.e.WorkDir() + "/to-own", a.e.WorkDir() + "/sub/../../../server.db", up + own[1:], "sub/" + up + own[1:]} {
		for _, name := range []string{"read", "mode", "mode at", "times"} {
			a.refused(t, name, path)
		}
	}
	b, err := os.ReadFile(own)
	require.NoError(t, err)
	require.Equal(t, "a person's", string(b))
	for _, path := range []string{"/etc/passwd", filepath.Join(data, "new"), filepath.Join(data, workName, "new"), "/usr/bin/new"} {
		a.refused(t, "write", path)
	}
	if a.level != Bwrap {
		a.refused(t, "list", data)
	}
	info, err := os.Stat(own)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.WithinDuration(t, time.Now(), info.ModTime(), time.Hour)
	// What is its own a command may change, by every way there is.
	require.NoError(t, a.e.Write(t.Context(), "mine", strings.NewReader("x"), env.WriteOptions{}))
	for _, name := range []string{"mode", "mode at", "times"} {
		require.Equal(t, "worked", attack(t, a.e, name, "mine"))
		require.Equal(t, "worked", attack(t, a.e, name, filepath.Join(a.e.WorkDir(), "mine")))
	}
}

// The server's own file operations meet what a command left for them.
func (a *attackTest) links(t *testing.T) {
	shell(t, a.e, "ln -s "+a.secret+" absolute; ln -s ../../server.db relative; ln -s /proc/self/environ magic")
	names := []string{"absolute", "relative", "magic", a.secret}
	if a.level == Root {
		// As where the kernel lets anyone make hard links to any file.
		require.NoError(t, os.Link(a.secret, filepath.Join(a.e.WorkDir(), "hard")))
		names = append(names, "hard")
	}
	ctx := t.Context()
	for _, name := range names {
		_, err := content(ctx, a.e, name)
		requireCode(t, err, env.PermissionDenied)
		requireCode(t, a.e.Append(ctx, name, strings.NewReader("attacked")), env.PermissionDenied)
		if name == "hard" {
			// Only the name is the agent's to replace.
			require.NoError(t, a.e.Write(ctx, name, strings.NewReader("attacked"), env.WriteOptions{}))
			text, err := content(ctx, a.e, name)
			require.NoError(t, err)
			require.Equal(t, "attacked", text)
			continue
		}
		requireCode(t, a.e.Write(ctx, name, strings.NewReader("attacked"), env.WriteOptions{}), env.PermissionDenied)
	}
	if a.level == Root {
		// World-readable, but not the agent's: the server reads it not either.
		require.NoError(t, os.WriteFile(filepath.Join(a.e.WorkDir(), "of-root"), []byte("root's"), 0o644))
		_, err := content(ctx, a.e, "of-root")
		requireCode(t, err, env.PermissionDenied)
	}
}

func (a *attackTest) swaps(t *testing.T) {
	if a.level != Root {
		return // envtest swaps symbolic links; hard links need a server that is root
	}
	work := a.e.WorkDir()
	require.NoError(t, os.Link(a.secret, filepath.Join(work, "theirs")))
	shell(t, a.e, "echo inside > ours")
	swapper := background(t, a.e, "echo go; while :; do ln -f ours swapped 2>/dev/null; mv theirs swapped 2>/dev/null; mv swapped theirs 2>/dev/null; done")
	reads, refusals := 0, 0
	for i := 0; i < 200000 && (reads < 50 || refusals < 50); i++ {
		text, err := content(t.Context(), a.e, "swapped")
		require.NotContains(t, text, "rows")
		if err == nil {
			reads++
		} else {
			refusals++
		}
		if i%50 == 0 {
			_ = a.e.Append(t.Context(), "swapped", strings.NewReader("attacked\n"))
		}
	}
	require.Positive(t, refusals)
	require.True(t, swapper.alive())
}

func (a *attackTest) fifo(t *testing.T) {
	shell(t, a.e, "mkfifo fifo; mkdir d; ln -s ../fifo d/l")
	for _, name := range []string{"fifo", "d/l"} {
		_, err := content(t.Context(), a.e, name)
		requireCode(t, err, env.Invalid)
		requireCode(t, a.e.Append(t.Context(), name, strings.NewReader("x")), env.Invalid)
		requireCode(t, a.e.Write(t.Context(), name, strings.NewReader("x"), env.WriteOptions{}), env.Invalid)
	}
}

// The place of a spill file belongs to the agent, who may have put anything
// there.
func (a *attackTest) spill(t *testing.T) {
	out := filepath.Dir(a.secret)
	for i, command := range []string{
		"rm -rf .tmp; ln -s " + out + " .tmp", "rm -rf .tmp; ln -s ../.. .tmp", "rm -rf .tmp; mkfifo .tmp",
		"rm -rf .tmp; mkdir -p .tmp; ln -s " + a.secret + " .tmp/bash-1.log",
	} {
		res, err := a.e.Exec(t.Context(), env.ExecRequest{
			Command: command + "; seq 1000", Spill: &env.Spill{AfterBytes: 10, Name: "bash-1.log"},
		})
		require.NoError(t, err)
		require.Zero(t, res.ExitCode)
		require.Empty(t, res.SpillPath, command)
		require.NotEmpty(t, res.SpillError, "%d", i)
	}
	require.NoFileExists(t, filepath.Join(out, "bash-1.log"))
	entries, err := os.ReadDir(filepath.Join(out, spillName, filepath.Base(a.e.WorkDir())))
	require.NoError(t, err)
	require.Empty(t, entries)
	// The next command has its folder back once the agent takes its own away.
	require.Equal(t, "x\n", shell(t, a.e, "rm -rf .tmp; echo x"))
	require.Equal(t, "x\n", shell(t, a.e, "echo x > $TMPDIR/f; cat $TMPDIR/f"))
}

func (a *attackTest) sockets(t *testing.T) {
	// As a service's socket is: its group may use it, or anyone.
	dir, err := os.MkdirTemp("/tmp", "wp-durable-sock-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	stream, err := net.Listen("unix", filepath.Join(dir, "docker.sock"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = stream.Close() })
	datagram, err := net.ListenPacket("unixgram", filepath.Join(dir, "log"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = datagram.Close() })
	mode := os.FileMode(0o777)
	if a.level == Root {
		mode = 0o660 // owners and groups are what holds there
	}
	require.NoError(t, os.Chmod(filepath.Join(dir, "docker.sock"), mode))
	require.NoError(t, os.Chmod(filepath.Join(dir, "log"), mode))
	abstract, err := net.Listen("unix", "@wp-durable-attack-"+strconv.Itoa(os.Getpid()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = abstract.Close() })
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = tcp.Close() })
	a.refused(t, "connect", "unix", filepath.Join(dir, "docker.sock"))
	a.refused(t, "datagram", filepath.Join(dir, "log"))
	a.refused(t, "connect", "unix", abstract.Addr().String())
	a.refused(t, "vsock")
	if a.m.Status().Network {
		require.Equal(t, "worked", attack(t, a.e, "connect", "tcp", tcp.Addr().String()))
	} else {
		a.refused(t, "connect", "tcp", tcp.Addr().String())
		if a.level == Landlock {
			a.refused(t, "connect", "udp", "127.0.0.1:53")
		}
	}
}

func (a *attackTest) calls(t *testing.T) {
	a.refused(t, "user namespace")
	a.refused(t, "unshare")
	a.refused(t, "io_uring")
	if a.level == Landlock {
		a.refused(t, "shared memory")
	}
	o := execute(t.Context(), a.e, "unshare -Ur true")
	require.NoError(t, o.err)
	require.NotZero(t, o.ExitCode)
}

func (a *attackTest) foreign(t *testing.T) {
	if runtimeArch != "amd64" {
		return // the program is one of amd64
	}
	require.Contains(t, attack(t, a.e, "foreign call"), "bad system call")
}

// S1.3: a secret in the environment of the server and of what started it stays
// unread.
func (a *attackTest) environ(t *testing.T) {
	o := execute(t.Context(), a.e, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/task/*/environ 2>/dev/null | tr '\\0' '\\n'; true")
	require.NoError(t, o.err)
	require.Contains(t, o.text, "WP_CONVERSATION_ID="+filepath.Base(a.e.WorkDir()))
	require.NotContains(t, o.text, os.Getenv("WP_TEST_SECRET"))
	require.NotContains(t, o.text, "WP_TEST_SECRET")
	if a.level != Root {
		o := execute(t.Context(), a.e, "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '")
		require.NotContains(t, o.text, "test.run", "no view of other processes")
	}
}
