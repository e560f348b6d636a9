package isolation

import (
	"os/exec"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// S5.2: where /proc hides processes one could outlive its command unseen, so
// there is no level that has to look for them.
func TestDetect_HiddenProcesses(t *testing.T) {
	t.Parallel()
	need(t, Root)
	need(t, Landlock)
	for _, l := range []Level{Root, Landlock} {
		t.Run(string(l), func(t *testing.T) {
			t.Parallel()
			if !isChild() {
				caps := "-all"
				if l == Root {
					caps += ",+setuid,+setgid,+setpcap,+kill,+chown"
				}
				hideProcesses(t, caps)
				return
			}
			m := openAny(t, &Options{Level: l})
			require.Equal(t, Off, m.Status().State)
			require.Contains(t, m.Status().Reason, "hides processes")
		})
	}
}

// hideProcesses runs this test in a process that sees of others only those that
// it may look into.
func hideProcesses(t *testing.T, caps string) {
	t.Helper()
	const mount = "mount --make-rprivate / && mount -t proc -o hidepid=2,gid=4 proc /proc && "
	isolationtest.Need(t, exec.Command("unshare", "-m", "sh", "-c", mount+"true").Run() == nil, "a mount of /proc")
	asProcess(t, &syscall.SysProcAttr{}, []string{
		"unshare", "-m", "sh", "-c", mount + `exec setpriv --clear-groups --inh-caps=-all --bounding-set=` + caps + ` "$@"`, "sh",
	})
}
