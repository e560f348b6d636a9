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
