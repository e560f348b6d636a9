package isolationtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// reservations is the file whose locked bytes are user ids in use, in the first
// of these folders that can be written. It is at one place for every test
// process, whatever its own folder for temporary files.
const reservations = "wp-durable-test-uids"

var reservationDirs = []string{"/run", "/tmp"}

// Where test users begin and how many there may be.
const (
	firstUID = 710000
	maxUIDs  = 100000
)

// UIDs returns n user ids in a row, as the option AgentUIDs takes them, that
// no other test on the machine uses until this one ends.
func UIDs(t testing.TB, n int) string {
	t.Helper()
	first := Reserve(t, n)
	if n == 1 {
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d-%d", first, first+n-1)
}

// Reserve is UIDs as the first number.
func Reserve(t testing.TB, n int) int {
	t.Helper()
	if os.Geteuid() != 0 {
		return firstUID // nobody but root uses them
	}
	var f *os.File
	var err error
	for _, dir := range reservationDirs {
		if f, err = os.OpenFile(filepath.Join(dir, reservations), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	for first := firstUID; first < firstUID+maxUIDs; first += n {
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(first), Len: int64(n)}
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l)
		if err == nil {
			return first
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			t.Fatal(err)
		}
	}
	t.Fatal("no user ids are free")
	return 0
}
