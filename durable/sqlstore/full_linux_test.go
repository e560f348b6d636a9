package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

// TestFull_Disk fills a real, small disk. It needs the right to mount one.
func TestFull_Disk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=3m"); err != nil {
		needsRoot(t, err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	path := filepath.Join(dir, "test.db")
	s := openAt(t, path, &sqlite.Options{CheckpointPages: 100})
	batch := func(n int) *durable.Batch {
		b := claim(fmt.Sprint(n), 1)
		b.Partials = []durable.PartialWrite{{TaskID: 1, Data: make([]byte, 50000)}}
		return b
	}
	n := 0
	for ; n < 1000; n++ {
		_, err := s.Commit(t.Context(), batch(n))
		if err != nil {
			require.ErrorIs(t, err, durable.ErrStoreFull)
			require.ErrorIs(t, err, durable.ErrRejected)
			break
		}
	}
	require.Greater(t, n, 10)
	require.Less(t, n, 1000)
	require.False(t, isFailed(s))
	for i := range n {
		require.True(t, stored(t, s, fmt.Sprint(i)))
	}
	require.False(t, stored(t, s, fmt.Sprint(n)))

	require.NoError(t, unix.Mount("", dir, "", unix.MS_REMOUNT, "size=20m"))
	mustCommit(t, s, batch(n))
	require.NoError(t, s.Close())
	again := openAt(t, path, nil)
	for i := range n + 1 {
		require.True(t, stored(t, again, fmt.Sprint(i)))
	}
	require.NoError(t, again.Close())
}

// needsRoot skips a test that only a privileged user can run, and says so
// where nobody can miss it. In CI it fails instead.
func needsRoot(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("cannot mount a file system: %v", err)
	}
	fmt.Fprintf(os.Stderr, "SKIPPED %s: cannot mount a file system: %v\n", t.Name(), err)
	t.Skipf("cannot mount a file system: %v", err)
}

// TestFail_RealIO runs a process whose files may not grow. Writing to them
// fails with an I/O error, not with a full disk.
func TestFail_RealIO(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "test.db")
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "SQLSTORE_TEST_CHILD="+path)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	acked := strings.Fields(string(out))
	require.NotEmpty(t, acked)
	s := openAt(t, path, nil)
	for _, key := range acked {
		require.True(t, stored(t, s, key), key)
	}
}

// runChild is the other process of TestFail_RealIO.
func runChild() {
	path := os.Getenv("SQLSTORE_TEST_CHILD")
	if path == "" {
		return
	}
	if err := child(path); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

func child(path string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := sqlite.Open(context.Background(), path, nil)
	if err != nil {
		return err
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}); err != nil {
		return err
	}
	for n := range 1000 {
		b := claim(fmt.Sprint(n), 1)
		b.Partials = []durable.PartialWrite{{TaskID: 1, Data: make([]byte, 50000)}}
		_, err := s.Commit(context.Background(), b)
		switch {
		case err == nil:
			fmt.Println(n)
		case !errors.Is(err, durable.ErrStoreFailed):
			return fmt.Errorf("commit %d: %w", n, err)
		default:
			<-s.Failed()
			if _, err := s.Claimed(context.Background(), "s", "0"); !errors.Is(err, durable.ErrStoreFailed) {
				return fmt.Errorf("read: %w", err)
			}
			return s.Close()
		}
	}
	return errors.New("the files grew")
}
