package helper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/sys/unix"
)

// The kernel's structures and calls for a filter's listener.
type (
	notification struct {
		id    uint64
		pid   uint32
		flags uint32
		nr    int32
		arch  uint32
		ip    uint64
		args  [6]uint64
	}
	answer struct {
		id    uint64
		val   int64
		errno int32
		flags uint32
	}
)

const (
	ioctlReceive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	ioctlSend    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
	ioctlValid   = 0x40082102 // SECCOMP_IOCTL_NOTIF_ID_VALID
)

// broker changes modes and times of files for commands whose Landlock does not
// bound such changes. It opens the file itself, beneath the work folder, and
// changes what it opened, so a path that changes meanwhile wins nothing.
//
// It never has more rights over files than the command: at the level root its
// thread works as the command's user.
type broker struct {
	listener int
	workDir  string
	root     int
	names    map[int32]string
}

// startBroker has a thread of its own answer the listener, with the rights of
// the plan's user.
func startBroker(listener int, p *Plan) error {
	started := make(chan error)
	go func() {
		// Never unlocked: a thread that gave up its rights serves nothing else.
		runtime.LockOSThread()
		var b *broker
		var err error
		if p.Switch {
			err = dropFileRights(p.UID, p.GID)
		}
		if err == nil {
			b, err = newBroker(listener, p.WorkDir)
		}
		started <- err
		if err == nil {
			b.serve()
		}
	}()
	return <-started
}

// dropFileRights gives this thread the file rights of a user and no capability.
// Its other ids stay, so that the user can neither signal nor trace it.
func dropFileRights(uid, gid int) error {
	if uid <= 0 || gid <= 0 {
		return fmt.Errorf("refuse to act as %d:%d", uid, gid)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("clear groups: %w", e)
	}
	for _, s := range []struct {
		call uintptr
		id   int
	}{{unix.SYS_SETFSGID, gid}, {unix.SYS_SETFSUID, uid}} {
		_, _, _ = unix.RawSyscall(s.call, uintptr(s.id), 0, 0)
		// The call itself tells nothing.
		if now, _, _ := unix.RawSyscall(s.call, ^uintptr(0), 0, 0); int(now) != s.id {
			return fmt.Errorf("file system id is %d instead of %d", int(now), s.id)
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("clear capability sets: %w", err)
	}
	return nil
}

func newBroker(listener int, workDir string) (*broker, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	root, err := unix.Open(workDir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open work folder: %w", err)
	}
	b := &broker{listener: listener, workDir: workDir, root: root, names: map[int32]string{}}
	for _, name := range slices.Concat([]string{"utimensat"}, brokered, brokeredOpen) {
		if nr, ok := info.SyscallNames[name]; ok {
			b.names[int32(nr)] = name
		}
	}
	return b, nil
}

// serve answers until no process has the filter any more, or the supervisor
// ends.
func (b *broker) serve() {
	for {
		var n notification
		if err := b.ioctl(ioctlReceive, unsafe.Pointer(&n)); err != nil {
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if errors.Is(err, unix.ENOENT) && !b.hungUp() {
				continue // that caller was killed while it asked
			}
			return
		}
		a := answer{id: n.id}
		if err := b.change(&n); err != nil {
			var e syscall.Errno
			if !errors.As(err, &e) {
				e = unix.EPERM
			}
			a.errno = -int32(e)
		}
		_ = b.ioctl(ioctlSend, unsafe.Pointer(&a))
	}
}

func (b *broker) ioctl(req uintptr, p unsafe.Pointer) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(b.listener), req, uintptr(p))
	if e != 0 {
		return e
	}
	return nil
}

func (b *broker) hungUp() bool {
	fds := []unix.PollFd{{Fd: int32(b.listener), Events: unix.POLLIN}}
	_, err := unix.Poll(fds, 0)
	return err != nil || fds[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

// request is a change that a command asked for.
type request struct {
	dir      int32  // descriptor that a relative path starts at
	path     uint64 // address of the path
	open     bool   // dir itself is meant, and there is no path
	nofollow bool
	mode     *uint32
	times    *[2]unix.Timespec
	owner    *[2]int
}

func (b *broker) change(n *notification) error {
	pid := int(n.pid)
	r, err := b.decode(n)
	if err != nil {
		return err
	}
	var file int
	if r.open {
		file, err = b.descriptor(pid, r.dir)
	} else {
		var path string
		if path, err = readString(pid, r.path); err != nil {
			return err
		}
		file, err = b.open(pid, r, path)
	}
	if err != nil {
		return err
	}
	defer unix.Close(file)
	// What was looked at was the caller's only if the caller still waits.
	id := n.id
	if err := b.ioctl(ioctlValid, unsafe.Pointer(&id)); err != nil {
		return err
	}
	switch {
	case r.mode != nil:
		return unix.Chmod(selfFD(file), *r.mode&0o7777)
	case r.owner != nil:
		return unix.Fchownat(file, "", r.owner[0], r.owner[1], unix.AT_EMPTY_PATH)
	}
	return unix.UtimesNanoAt(file, "", r.times[:], unix.AT_EMPTY_PATH)
}

func selfFD(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func (b *broker) decode(n *notification) (request, error) {
	const cwd = unix.AT_FDCWD
	a, pid := n.args, int(n.pid)
	mode := func(i int) *uint32 { m := uint32(a[i]); return &m }
	switch b.names[n.nr] {
	case "chmod":
		return request{dir: cwd, path: a[0], mode: mode(1)}, nil
	case "fchmodat":
		return request{dir: int32(a[0]), path: a[1], mode: mode(2)}, nil
	case "fchmodat2":
		if a[3]&^unix.AT_SYMLINK_NOFOLLOW != 0 {
			return request{}, unix.EINVAL
		}
		return request{dir: int32(a[0]), path: a[1], mode: mode(2), nofollow: a[3] != 0}, nil
	case "utimensat":
		if a[3]&^unix.AT_SYMLINK_NOFOLLOW != 0 {
			return request{}, unix.EINVAL
		}
		t, err := readTimes(pid, a[2], 1)
		return request{dir: int32(a[0]), path: a[1], open: a[1] == 0, times: t, nofollow: a[3] != 0}, err
	case "fchmod":
		return request{dir: int32(a[0]), open: true, mode: mode(1)}, nil
	case "fchown":
		return request{dir: int32(a[0]), open: true, owner: &[2]int{int(int32(a[1])), int(int32(a[2]))}}, nil
	case "futimesat":
		t, err := readTimes(pid, a[2], 1000)
		return request{dir: int32(a[0]), path: a[1], times: t}, err
	case "utimes":
		t, err := readTimes(pid, a[1], 1000)
		return request{dir: cwd, path: a[0], times: t}, err
	case "utime":
		t, err := readSeconds(pid, a[1])
		return request{dir: cwd, path: a[0], times: t}, err
	}
	return request{}, unix.ENOSYS
}

// open opens the file that is meant, if it lies beneath the work folder. The
// kernel resolves the rest of the path and refuses to leave the folder.
func (b *broker) open(pid int, r request, path string) (int, error) {
	if path == "" {
		return -1, unix.ENOENT
	}
	rel, ok := b.beneath(path)
	if !strings.HasPrefix(path, "/") {
		link := fmt.Sprintf("/proc/%d/cwd", pid)
		if r.dir != unix.AT_FDCWD {
			link = fmt.Sprintf("/proc/%d/fd/%d", pid, r.dir)
		}
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlink(link, buf)
		if err != nil {
			return -1, unix.EBADF
		}
		rel, ok = b.beneath(string(buf[:n]))
		rel += "/" + path
	}
	if !ok {
		return -1, unix.EPERM
	}
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	if r.nofollow {
		how.Flags |= unix.O_NOFOLLOW
	}
	fd, err := unix.Openat2(b.root, "./"+rel, &how)
	if errors.Is(err, unix.EXDEV) {
		err = unix.EPERM
	}
	return fd, err
}

// descriptor opens anew what a descriptor of the caller is open on, if that
// lies beneath the work folder: what can only be read is not the command's to
// change, whoever owns it.
func (b *broker) descriptor(pid int, n int32) (int, error) {
	if n < 0 {
		return -1, unix.EBADF
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/fd/%d", pid, n), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, unix.EBADF
	}
	// Of the file that is open now; the caller's descriptor may be another by
	// then.
	buf := make([]byte, unix.PathMax)
	size, err := unix.Readlink(selfFD(fd), buf)
	if err == nil {
		if _, ok := b.beneath(string(buf[:size])); !ok {
			err = unix.EPERM
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// beneath returns path relative to the work folder, with what is in it as it
// is: only the kernel can tell where dots and links lead.
func (b *broker) beneath(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, b.workDir)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimLeft(rest, "/"), true
}

// readMemory reads what a waiting caller has at addr. It goes by the file of
// /proc, because container profiles shut the system call for it.
func readMemory(pid int, addr uint64, buf []byte) (int, error) {
	mem, err := unix.Open(fmt.Sprintf("/proc/%d/mem", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(mem)
	n, err := unix.Pread(mem, buf, int64(addr))
	if errors.Is(err, unix.EIO) {
		err = unix.EFAULT
	}
	return n, err
}

// readString reads a path. It goes page by page, because what follows the
// string may not be mapped.
func readString(pid int, addr uint64) (string, error) {
	const page = 4096
	var text []byte
	for len(text) < unix.PathMax {
		buf := make([]byte, page-addr%page)
		n, err := readMemory(pid, addr, buf)
		if err != nil {
			return "", err
		}
		if n == 0 {
			return "", unix.EFAULT
		}
		if s, _, ok := strings.Cut(string(buf[:n]), "\x00"); ok {
			if len(text)+len(s) >= unix.PathMax {
				break
			}
			return string(text) + s, nil
		}
		text = append(text, buf[:n]...)
		addr += uint64(n)
	}
	return "", unix.ENAMETOOLONG
}

// readTimes reads two times whose second word counts units of so many
// nanoseconds. No address means now.
func readTimes(pid int, addr uint64, unit int64) (*[2]unix.Timespec, error) {
	if addr == 0 {
		return &[2]unix.Timespec{{Nsec: unix.UTIME_NOW}, {Nsec: unix.UTIME_NOW}}, nil
	}
	var buf [32]byte
	if n, err := readMemory(pid, addr, buf[:]); err != nil || n != len(buf) {
		return nil, unix.EFAULT
	}
	word := func(i int) int64 { return int64(binary.NativeEndian.Uint64(buf[8*i:])) }
	return &[2]unix.Timespec{
		unix.Timespec{Sec: word(0), Nsec: word(1) * unit},
		unix.Timespec{Sec: word(2), Nsec: word(3) * unit},
	}, nil
}

func readSeconds(pid int, addr uint64) (*[2]unix.Timespec, error) {
	if addr == 0 {
		return readTimes(pid, 0, 1)
	}
	var buf [16]byte
	if n, err := readMemory(pid, addr, buf[:]); err != nil || n != len(buf) {
		return nil, unix.EFAULT
	}
	word := func(i int) int64 { return int64(binary.NativeEndian.Uint64(buf[8*i:])) }
	return &[2]unix.Timespec{{Sec: word(0)}, {Sec: word(1)}}, nil
}
