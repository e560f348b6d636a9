package isolation

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

func init() {
	attacks["queue"] = func([]string) error {
		_, _, e := unix.Syscall6(unix.SYS_MSGGET, unix.IPC_PRIVATE, unix.IPC_CREAT|0o600, 0, 0, 0, 0)
		if e != 0 {
			return e
		}
		return nil
	}
	attacks["terminal"] = func([]string) error {
		fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY, 0)
		if err != nil {
			return err
		}
		n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		if err == nil {
			err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
		}
		if err == nil {
			_, err = unix.Open("/dev/pts/"+strconv.Itoa(n), unix.O_RDWR|unix.O_NOCTTY, 0)
		}
		return err
	}
}

// S6.2: memory that programs share by name neither outlives a call nor reaches
// another tree.
func TestRoot_SharedMemory(t *testing.T) {
	t.Parallel()
	need(t, Landlock)
	isolationtest.Need(t, folderExists(sharedMemory), sharedMemory)
	for name, uids := range map[string]int{"one user": 1, "range": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			atLevel(t, Root, func(t *testing.T) {
				m := manager(t, &Options{AgentUIDs: isolationtest.UIDs(t, uids)})
				a := &attackTest{level: Root, m: m, e: environmentOf(t, m, 1)}
				arm(t, a.e)
				a.refused(t, "shared memory")
				a.refused(t, "queue")
				file := filepath.Join(sharedMemory, fmt.Sprintf("wp-durable-test-%d", a.e.(*environment).uid()))
				a.refused(t, "write", file)
				require.NoFileExists(t, file)
				// As one that was made before.
				require.NoError(t, os.WriteFile(file, []byte("of another tree"), 0o666))
				t.Cleanup(func() { _ = os.Remove(file) })
				a.refused(t, "read", file)
				terminal := attack(t, a.e, "terminal")
				if notes := strings.Join(m.Status().Notes, "\n"); uids == 1 {
					require.Contains(t, terminal, "refused")
					require.Contains(t, notes, "programs cannot make terminals")
				}
				require.Contains(t, strings.Join(m.Status().Notes, "\n"), "/tmp and /dev/shm cannot be written")
			})
		})
	}
}

// S6.2: what a user left in memory is gone at the end of its last call, at the
// start, and before the user works for another tree; that of others stays.
func TestPool_Objects(t *testing.T) {
	t.Parallel()
	isolationtest.Need(t, folderExists(sharedMemory), sharedMemory)
	_, err := exec.LookPath("ipcmk")
	isolationtest.Need(t, err == nil, "ipcmk")
	atLevel(t, Root, func(t *testing.T) {
		first := isolationtest.Reserve(t, 3)
		leave := fmt.Sprintf("ipcmk -M 64 -S 1 -Q >/dev/null && echo x > %s/wp-durable-test-$(id -u)", sharedMemory)
		left := func(uid int) int {
			objects, err := helper.Objects(uid, uid)
			require.NoError(t, err)
			return objects[uid]
		}
		outside := func(uid int) {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", leave)
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Equal(t, 4, left(uid))
		}
		outside(first)
		outside(first + 2)
		o := &Options{AgentUIDs: fmt.Sprintf("%d-%d", first, first+1), weaken: []string{"old kernel"}}
		m := manager(t, o)
		require.Zero(t, left(first), "at the start")

		e := environmentOf(t, m, 1)
		require.Equal(t, first, e.(*environment).uid())
		shell(t, e, leave+"; ipcs | grep "+strconv.Itoa(first))
		require.Zero(t, left(first), "at the end of a call")

		require.NoError(t, m.Remove(t.Context(), 1))
		outside(first)
		e = environmentOf(t, m, 2)
		require.Equal(t, strconv.Itoa(first)+"\n", shell(t, e, "id -u; ipcs | grep "+strconv.Itoa(first)+" || true"), "before another tree has it")

		require.Equal(t, 4, left(first+2), "that of others stays")
		require.NoError(t, m.Close())
		manager(t, &Options{AgentUIDs: strconv.Itoa(first + 2)})
		require.Zero(t, left(first+2))
	})
}
