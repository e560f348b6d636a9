package isolation

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

func init() {
	onOpen := func(change func(fd int) error) func(args []string) error {
		return func(args []string) error {
			fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
			if err != nil {
				panic(err) // to open it is allowed
			}
			return change(fd)
		}
	}
	attacks["open mode"] = onOpen(func(fd int) error { return unix.Fchmod(fd, 0o755) })
	attacks["open owner"] = onOpen(func(fd int) error { return unix.Fchown(fd, -1, os.Getgid()) })
	attacks["open attributes"] = onOpen(func(fd int) error { return unix.Fsetxattr(fd, "user.attack", []byte("x"), 0) })
	attacks["open times"] = onOpen(func(fd int) error {
		times := [2]unix.Timespec{{Sec: 1}, {Sec: 1}}
		_, _, e := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
		if e != 0 {
			return e
		}
		return nil
	})
}

// changes are the attacks that change a file's attributes.
var changes = []string{"mode", "mode at", "mode by descriptor", "times", "owner", "attributes"}

// S6.2: with one user id for all trees a command changes nothing of another's
// files, also where the server has few capabilities; what it can look up, the
// status says.
func TestRoot_SharedUser(t *testing.T) {
	t.Parallel()
	need(t, Root)
	need(t, Landlock)
	if !isChild() {
		withCaps(t, "+setuid,+setgid,+setpcap,+kill,+chown")
		return
	}
	m := manager(t, &Options{})
	a := &attackTest{level: Root, m: m, e: environmentOf(t, m, 1), other: environmentOf(t, m, 2)}
	arm(t, a.e)
	require.Equal(t, a.e.(*environment).uid(), a.other.(*environment).uid())
	require.NoError(t, a.other.Write(t.Context(), "note", strings.NewReader("private"), env.WriteOptions{Mode: 0o666}))
	t.Cleanup(func() {
		// This root cannot enter what is an agent's.
		require.NoError(t, a.m.Remove(context.Background(), 1))
		require.NoError(t, a.m.Remove(context.Background(), 2))
	})
	shell(t, a.other, "mkdir dir; chmod 711 dir; touch -d 2020-01-01 note dir")
	attributes := shell(t, a.other, "stat -c '%a %u %g %y %n' note dir")
	for _, name := range []string{"note", "dir"} {
		for _, change := range changes {
			a.refused(t, change, filepath.Join(a.other.WorkDir(), name))
			a.refused(t, change, filepath.Join("..", "2", name))
		}
	}
	require.Equal(t, attributes, shell(t, a.other, "stat -c '%a %u %g %y %n' note dir"))

	// Its own it may change, and no more than its user may.
	shell(t, a.e, "mkdir -p mine/d; touch mine/f; cd mine; chmod 750 f d; touch -d 2020-01-01 f; [ $(stat -c %a-%y f | cut -c1-8) = 750-2020 ]; chmod 000 d; ! chmod 777 d/x")
	require.NoError(t, m.host.plantOf(t, a.e, "of-root"))
	a.refused(t, "mode", "of-root")
	a.refused(t, "times", "of-root")

	require.Contains(t, detail(m, "conversations"), "not separated: attributes")
	require.Contains(t, strings.Join(m.Status().Notes, "\n"), "look up names, sizes and times of another conversation's files")
	require.Contains(t, strings.Join(m.Status().Notes, "\n"), "a range in WP_DURABLE_AGENT_UIDS")
	m = manager(t, &Options{weaken: []string{"old kernel"}})
	require.Contains(t, detail(m, "conversations"), "not separated: one user id")
	m = manager(t, &Options{AgentUIDs: isolationtest.UIDs(t, 2)})
	require.NotContains(t, detail(m, "conversations"), "not separated")
}

// plantOf makes a file of root in a work folder.
func (h *host) plantOf(t *testing.T, e env.Environment, name string) error {
	t.Helper()
	test := &selfTest{host: h, env: e.(*environment)}
	return test.plant(filepath.Join(e.WorkDir(), name), []byte("root's"), 0o644)
}

// S6.3: at the level landlock a person owns what commands may only read, and a
// file that is open for reading is not theirs to change.
func TestLandlock_OpenFiles(t *testing.T) {
	t.Parallel()
	need(t, Landlock)
	inProcess(t, Landlock, func(t *testing.T) {
		dir := t.TempDir()
		library := filepath.Join(dir, "library")
		require.NoError(t, os.WriteFile(library, []byte("a person's"), 0o640))
		then := time.Unix(1e9, 0)
		require.NoError(t, os.Chtimes(library, then, then))
		m := manager(t, &Options{Level: Landlock, ReadOnly: []string{dir}})
		a := &attackTest{level: Landlock, m: m, e: environmentOf(t, m, 1)}
		arm(t, a.e)
		shell(t, a.e, "echo x > mine")
		for _, change := range []string{"open mode", "open times", "open owner", "open attributes"} {
			a.refused(t, change, library)
			if change != "open attributes" {
				require.Equal(t, "worked", attack(t, a.e, change, "mine"), change)
			}
		}
		for _, change := range changes {
			a.refused(t, change, library)
		}
		info, err := os.Stat(library)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o640), info.Mode())
		require.True(t, then.Equal(info.ModTime()))
		require.Equal(t, "755 1970\n", shell(t, a.e, "stat -c '%a %y' mine | cut -c1-8"))
		// What is deleted, and programs that put attributes on what they wrote.
		shell(t, a.e, "exec 5>gone; rm gone; perl -e 'open F, \">&=5\"; chmod 0600, *F or die $!; utime 1, 1, *F or die $!'")
		shell(t, a.e, "seq 100 > f; cp -p f g; gzip f; gunzip f.gz; xz f; unxz f.xz; sed -i s/1/2/ f; touch -r g f; install -m 600 f h; tar cf t f g; tar xpf t")
	})
}
