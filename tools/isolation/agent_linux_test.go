package isolation

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// What the server does for an agent it does with the agent's rights over
// files, on that thread and for that time alone.
func TestAgent_Do(t *testing.T) {
	t.Parallel()
	need(t, Root)
	dir := filepath.Dir(isolationtest.DataDir(t))
	require.NoError(t, os.Chmod(dir, 0o777))
	secret := filepath.Join(dir, "secret")
	require.NoError(t, os.WriteFile(secret, []byte("root's"), 0o600))
	ofGroup := filepath.Join(dir, "of-group")
	require.NoError(t, os.WriteFile(ofGroup, []byte("root's group's"), 0o060))
	uid := isolationtest.Reserve(t, 30)
	a := agent{uid: uid, gid: uid, other: true}

	t.Run("the rights are the agent's", func(t *testing.T) {
		t.Parallel()
		made := filepath.Join(dir, "made")
		require.NoError(t, a.do(func() error { return os.WriteFile(made, nil, 0o600) }))
		require.EqualValues(t, uid, ownerOf(t, made))
		for _, path := range []string{secret, ofGroup} {
			require.ErrorIs(t, a.do(func() error { _, err := os.ReadFile(path); return err }), os.ErrPermission)
			require.ErrorIs(t, a.do(func() error { return os.Chmod(path, 0o777) }), os.ErrPermission)
			require.ErrorIs(t, a.do(func() error { return os.Chown(path, uid, uid) }), os.ErrPermission)
		}
		require.ErrorIs(t, a.do(func() error { return unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, 0x103) }), os.ErrPermission)
		require.ErrorIs(t, a.do(func() error { return os.WriteFile("/etc/of-agent", nil, 0o600) }), os.ErrPermission)
	})

	t.Run("no capability over files is left, and all come back", func(t *testing.T) {
		t.Parallel()
		effective := func() [2]uint32 {
			head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var caps [2]unix.CapUserData
			require.NoError(t, unix.Capget(&head, &caps[0]))
			return [2]uint32{caps[0].Effective, caps[1].Effective}
		}
		before := effective()
		var tid int
		require.NoError(t, a.do(func() error {
			tid = unix.Gettid()
			if got := effective(); got != [2]uint32{keptCaps, 0} {
				return fmt.Errorf("capabilities are %x", got)
			}
			return nil
		}))
		require.Equal(t, before, effective())
		b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
		require.NoError(t, err)
		require.Regexp(t, `Uid:\t0\t0\t0\t0\n`, string(b), "the thread serves others again")
		require.Regexp(t, `Gid:\t0\t0\t0\t0\n`, string(b))
	})

	t.Run("threads do not mix", func(t *testing.T) {
		t.Parallel()
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				a := agent{uid: uid + i, gid: uid + i, other: true}
				for n := range 30 {
					path := filepath.Join(dir, fmt.Sprintf("of-%d-%d", i, n))
					if err := a.do(func() error { return os.WriteFile(path, nil, 0o600) }); err != nil {
						t.Error(err)
					}
					if info, err := os.Lstat(path); err != nil || int(ownerOf(t, path)) != a.uid {
						t.Errorf("%v, %v", info, err)
					}
					if _, err := os.ReadFile(secret); err != nil {
						t.Errorf("the server has lost its own rights: %v", err)
					}
				}
			})
		}
		wg.Wait()
	})

	t.Run("root is no agent", func(t *testing.T) {
		t.Parallel()
		for _, a := range []agent{{0, 0, true}, {-1, 5, true}, {5, 0, true}} {
			require.ErrorContains(t, a.do(func() error { return nil }), "refuse")
		}
	})
}

// The thread that works for an agent is not the agent's to signal, trace or
// look into.
func TestAgent_Thread(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		m := manager(t, &Options{weaken: nil})
		e := environmentOf(t, m, 1)
		arm(t, e)
		a := e.(*environment).agentNow(t)
		tid, release, ended := make(chan int, 1), make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- a.do(func() error {
				tid <- unix.Gettid()
				<-release
				return nil
			})
		}()
		thread := strconv.Itoa(<-tid)
		for _, name := range []string{"signal", "ptrace", "memory", "mem file", "environ", "descriptors", "limit"} {
			require.Contains(t, attack(t, e, name, thread), "refused", name)
		}
		close(release)
		require.NoError(t, <-ended)
	})
}

func (e *environment) agentNow(t *testing.T) agent {
	t.Helper()
	_, a, err := e.host.open(e.tree)
	require.NoError(t, err)
	return a
}
