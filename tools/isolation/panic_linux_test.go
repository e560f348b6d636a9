package isolation

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// What panics with an agent's rights ends neither the server nor keeps them.
func TestAgent_Panic(t *testing.T) {
	t.Parallel()
	need(t, Root)
	uid := isolationtest.Reserve(t, 1)
	a := agent{uid: uid, gid: uid, other: true}
	var tid int
	err := a.do(func() error {
		tid = unix.Gettid()
		var none []int
		return fmt.Errorf("%d", none[tid])
	})
	require.ErrorContains(t, err, "index out of range")
	require.ErrorContains(t, err, "panic_linux_test.go", "where it was")
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/status", tid))
	require.NoError(t, err)
	require.Regexp(t, `Uid:\t0\t0\t0\t0\n`, string(b), "the thread serves others again")
	require.NoError(t, a.do(func() error { return nil }))
}
