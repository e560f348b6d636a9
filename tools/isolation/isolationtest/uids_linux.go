package isolationtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
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
			if idle(t, first, n) {
				return first
			}
			l.Type = unix.F_UNLCK
			if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			t.Fatal(err)
		}
	}
	t.Fatal("no user ids are free")
	return 0
}

// idle reports whether nothing runs as one of n users. A test that shows what
// a left-over does may leave one.
func idle(t testing.TB, first, n int) bool {
	t.Helper()
	dir, err := os.Open("/proc")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join("/proc", name))
		if err != nil {
			continue // it has ended
		}
		if uid := int(info.Sys().(*syscall.Stat_t).Uid); first <= uid && uid < first+n {
			return false
		}
	}
	return true
}
