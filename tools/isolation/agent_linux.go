package isolation

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

// agent is who a tree's files belong to and whose commands run in it.
//
// At the level root the server reaches files in work folders with the rights
// of the agent, never with its own: a thread takes the agent's file system
// user and group, no other groups, and no capability over files. That user id
// is the kernel's own means for file servers: unlike a change of the real or
// effective id it does not let the agent signal or trace the thread. So
// whatever the agent puts in a folder — a link to the database, a hard link, a
// name swapped between two looks — opens nothing to the server that the agent
// could not open itself. A helper process for each operation would do the
// same for 10 ms instead of some 10 µs.
type agent struct {
	uid, gid int
	// other tells that this is not the user the server runs as.
	other bool
}

// do calls f with the agent's rights over files. f must not start goroutines
// that touch files, and must not call what it was not made for: it runs on a
// thread whose rights are special. A panic of f there is an error.
func (a agent) do(f func() error) error {
	if !a.other {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		t, err := enter(a)
		if err == nil {
			err = guarded(f)
		}
		if back := t.leave(); back == nil {
			runtime.UnlockOSThread()
		} else {
			// The thread ends with this goroutine instead of serving others.
			err = errors.Join(err, fmt.Errorf("leave user %d: %w", a.uid, back))
		}
		result <- err
	}()
	return <-result
}

// guarded calls f and returns a panic as an error: the rights of its thread are
// to be taken back whatever happens, and no other goroutine could recover it.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}

// Capabilities that a thread keeps while it has an agent's rights: those it
// needs for the way back. They give nothing over files.
const keptCaps = 1<<unix.CAP_SETUID | 1<<unix.CAP_SETGID

// thread is what a thread was before it took an agent's rights.
type thread struct {
	groups []uint32
	caps   [2]unix.CapUserData
	known  bool
}

func enter(a agent) (thread, error) {
	var t thread
	if a.uid <= 0 || a.gid <= 0 {
		return t, fmt.Errorf("refuse to act as user %d", a.uid)
	}
	if err := t.remember(); err != nil {
		return t, err
	}
	if err := setGroups(nil); err != nil {
		return t, err
	}
	if err := setFS(unix.SYS_SETFSGID, a.gid); err != nil {
		return t, err
	}
	if err := setFS(unix.SYS_SETFSUID, a.uid); err != nil {
		return t, err
	}
	caps := t.caps
	caps[0].Effective &= keptCaps
	caps[1].Effective = 0
	return t, setCaps(caps)
}

func (t *thread) remember() error {
	n, _, e := unix.RawSyscall(unix.SYS_GETGROUPS, 0, 0, 0)
	if e != 0 {
		return fmt.Errorf("count groups: %w", e)
	}
	if n > 0 {
		t.groups = make([]uint32, n)
		n, _, e = unix.RawSyscall(unix.SYS_GETGROUPS, n, uintptr(unsafe.Pointer(&t.groups[0])), 0)
		if e != 0 {
			return fmt.Errorf("get groups: %w", e)
		}
		t.groups = t.groups[:n]
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&head, &t.caps[0]); err != nil {
		return fmt.Errorf("get capabilities: %w", err)
	}
	t.known = true
	return nil
}

// leave takes everything back. The order is that of need: the last step needs
// what the first ones leave.
func (t *thread) leave() error {
	if !t.known {
		return nil // nothing was changed
	}
	if err := setFS(unix.SYS_SETFSUID, unix.Geteuid()); err != nil {
		return err
	}
	if err := setFS(unix.SYS_SETFSGID, unix.Getegid()); err != nil {
		return err
	}
	if err := setGroups(t.groups); err != nil {
		return err
	}
	return setCaps(t.caps)
}

// setFS sets a file system id of this thread and looks whether it is set: the
// call itself tells nothing.
func setFS(call uintptr, id int) error {
	_, _, _ = unix.RawSyscall(call, uintptr(id), 0, 0)
	if now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0); int(now) != id {
		return fmt.Errorf("file system id is %d instead of %d", int(now), id)
	}
	return nil
}

// setGroups sets the groups of this thread alone.
func setGroups(groups []uint32) error {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0); e != 0 {
		return fmt.Errorf("set groups: %w", e)
	}
	return nil
}

func setCaps(caps [2]unix.CapUserData) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&head, &caps[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}
