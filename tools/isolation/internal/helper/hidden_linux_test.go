package helper

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestProcHides(t *testing.T) {
	t.Parallel()
	const plain = "24 1 0:22 / /proc rw,nosuid - proc proc rw\n"
	hidden := func(options string) string {
		return plain + "25 1 0:23 / /sys rw - sysfs sysfs rw,hidepid=2\n90 24 0:50 / /proc rw,relatime shared:3 - proc proc rw," + options + "\n"
	}
	person := Status{GIDs: [4]int{1000, 1000, 1000, 1000}, Groups: []int{27}}
	root, tracer := Status{}, Status{GIDs: person.GIDs}
	tracer.Caps[2] = 1 << unix.CAP_SYS_PTRACE
	for name, c := range map[string]struct {
		mounts string
		who    Status
		want   bool
	}{
		"not":                       {plain, person, false},
		"off":                       {hidden("hidepid=0"), person, false},
		"by number":                 {hidden("hidepid=2"), person, true},
		"by name":                   {hidden("hidepid=invisible"), person, true},
		"readable only":             {hidden("hidepid=noaccess"), person, true},
		"a group sees them":         {hidden("hidepid=2,gid=27"), person, false},
		"another group":             {hidden("gid=4,hidepid=2"), person, true},
		"root's group":              {hidden("hidepid=2"), root, false},
		"not root's group":          {hidden("hidepid=2,gid=4"), root, true},
		"those that may be traced":  {hidden("hidepid=ptraceable"), root, true},
		"who may trace sees all":    {hidden("hidepid=4"), tracer, false},
		"another mount lies on top": {hidden("hidepid=2") + plain, person, false},
	} {
		require.Equal(t, c.want, procHides(c.mounts, c.who), name)
	}
}

// A child that the list does not show is looked for without haste, and ended as
// soon as it is shown.
func TestKillDescendants_Hidden(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "1000")
	require.NoError(t, cmd.Start())
	shown := time.Now().Add(100 * time.Millisecond)
	looks := 0
	killed := killDescendants(func(pid int) []process {
		require.Equal(t, os.Getpid(), pid)
		looks++
		if time.Now().Before(shown) {
			return nil
		}
		return []process{{pid: cmd.Process.Pid, dead: isZombie(cmd.Process.Pid)}}
	})
	require.Equal(t, 1, killed)
	require.Less(t, looks, 100)
	require.Error(t, cmd.Wait(), "it was waited for")
}

func isZombie(pid int) bool {
	var info unix.Siginfo
	_ = unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return info.Signo != 0
}
