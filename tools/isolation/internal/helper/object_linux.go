package helper

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel's lists of objects with keys, and the call that removes one.
var keyed = []struct {
	list, id string
	remove   func(id uintptr) syscall.Errno
}{
	{"/proc/sysvipc/shm", "shmid", func(id uintptr) syscall.Errno {
		_, _, e := unix.Syscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0)
		return e
	}},
	{"/proc/sysvipc/msg", "msqid", func(id uintptr) syscall.Errno {
		_, _, e := unix.Syscall(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0)
		return e
	}},
	{"/proc/sysvipc/sem", "semid", func(id uintptr) syscall.Errno {
		_, _, e := unix.Syscall(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID)
		return e
	}},
}

// The folders whose files are shared memory, semaphores and queues.
var objectDirs = []string{"/dev/shm", "/dev/mqueue"}

// object is something that a process leaves in memory for others.
type object struct {
	name   string
	uid    int
	remove func() error
}

// objects lists what processes have left in memory, whoever's it is. What the
// kernel does not have has nothing.
func objects() ([]object, error) {
	var list []object
	for _, k := range keyed {
		b, err := os.ReadFile(k.list)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		found, err := parseKeyed(string(b), k.id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", k.list, err)
		}
		for _, f := range found {
			list = append(list, object{
				name: k.id + " " + strconv.Itoa(f[0]), uid: f[1],
				remove: func() error {
					if e := k.remove(uintptr(f[0])); e != 0 && e != unix.EINVAL && e != unix.EIDRM {
						return e
					}
					return nil
				},
			})
		}
	}
	for _, dir := range objectDirs {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				continue // gone since
			}
			path := filepath.Join(dir, e.Name())
			list = append(list, object{
				name: path, uid: int(info.Sys().(*syscall.Stat_t).Uid),
				remove: func() error { return os.RemoveAll(path) },
			})
		}
	}
	return list, nil
}

// parseKeyed reads the kernel's list of one kind: the pairs of id and owner.
func parseKeyed(text, id string) ([][2]int, error) {
	var found [][2]int
	idAt, uidAt := -1, -1
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if idAt < 0 {
			for i, name := range fields {
				switch name {
				case id:
					idAt = i
				case "uid":
					uidAt = i
				}
			}
			if idAt < 0 || uidAt < 0 {
				return nil, fmt.Errorf("columns %q", line)
			}
			continue
		}
		if len(fields) <= max(idAt, uidAt) {
			return nil, fmt.Errorf("line %q", line)
		}
		n, err := strconv.Atoi(fields[idAt])
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		uid, err := strconv.Atoi(fields[uidAt])
		if err != nil {
			return nil, fmt.Errorf("line %q: %w", line, err)
		}
		found = append(found, [2]int{n, uid})
	}
	return found, nil
}

// Objects counts, by user id, what the users between first and last have left
// in memory.
func Objects(first, last int) (map[int]int, error) {
	all, err := objects()
	if err != nil {
		return nil, err
	}
	counts := make(map[int]int)
	for _, o := range all {
		if o.uid >= first && o.uid <= last {
			counts[o.uid]++
		}
	}
	return counts, nil
}

// removeObjects removes what a user has left in memory. It works as that user.
func removeObjects(uid int) error {
	all, err := objects()
	if err != nil {
		return err
	}
	var errs []error
	for _, o := range all {
		if o.uid == uid {
			if err := o.remove(); err != nil {
				errs = append(errs, fmt.Errorf("remove %s: %w", o.name, err))
			}
		}
	}
	return errors.Join(errs...)
}
