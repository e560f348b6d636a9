package helper

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseKeyed(t *testing.T) {
	t.Parallel()
	const head = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  cgid      stime      rtime      ctime\n"
	found, err := parseKeyed(head+"         0          3   644          0            0     0     0  1001  1002  1003  1004          0          0 1780000000\n", "msqid")
	require.NoError(t, err)
	require.Equal(t, [][2]int{{3, 1001}}, found)
	found, err = parseKeyed(head, "msqid")
	require.NoError(t, err)
	require.Empty(t, found)
	for _, text := range []string{"key shmid\n", head + "0 3\n", head + "0 x 644 0 0 0 0 1 1 1 1 0 0 0\n", head + "0 3 644 0 0 0 0 x 1 1 1 0 0 0\n"} {
		_, err := parseKeyed(text, "msqid")
		require.Error(t, err, "%q is never taken for nothing", text)
	}
	_, err = objects()
	require.NoError(t, err)
}
