package isolation

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// handOver gives a folder and all in it that belongs to one agent to another.
// It looks with the rights of the old owner and changes what it opened, so a
// link leads nowhere, and a hard link to a stranger's file stays the
// stranger's. The folder itself comes last: a crash leaves one that is handed
// over again.
func handOver(path string, from, to agent) error {
	fd := -1
	err := from.do(func() (err error) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	dir := os.NewFile(uintptr(fd), path)
	defer dir.Close()
	if err := handOverIn(dir, from, to); err != nil {
		return fmt.Errorf("hand over: %w", err)
	}
	return give(int(dir.Fd()), from, to)
}

// handOverIn hands over what is in an open folder.
func handOverIn(dir *os.File, from, to agent) error {
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := handOverEntry(dir, name, from, to); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

func handOverEntry(dir *os.File, name string, from, to agent) error {
	entry, sub := -1, -1
	err := from.do(func() (err error) {
		at := int(dir.Fd())
		if entry, err = unix.Openat(at, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Fstat(entry, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != from.uid {
			return err
		}
		const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
		if sub, err = unix.Openat(at, name, flags, 0); errors.Is(err, unix.EACCES) {
			// Its owner may have shut it for itself.
			if err := unix.Fchmodat(at, name, 0o700, 0); err != nil {
				return err
			}
			sub, err = unix.Openat(at, name, flags, 0)
		}
		return err
	})
	if entry >= 0 {
		defer unix.Close(entry)
	}
	if err != nil {
		return err
	}
	if sub >= 0 {
		f := os.NewFile(uintptr(sub), name)
		defer f.Close()
		if err := handOverIn(f, from, to); err != nil {
			return err
		}
	}
	return give(entry, from, to)
}

// give changes the owner of what fd is open on, if it is the old one's.
func give(fd int, from, to agent) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if int(st.Uid) != from.uid {
		return nil
	}
	return unix.Fchownat(fd, "", to.uid, to.gid, unix.AT_EMPTY_PATH)
}
