package helper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// probeSpare is how many processes above the limit a probe tries to start.
const probeSpare = 16

// probe is the role of the self-test's command: it tries what a command must
// not be able to do and prints a [ProbeResult].
func probe() error {
	if len(os.Args) > 2 && os.Args[2] == daemonArg {
		return daemon(os.Args[3])
	}
	var req ProbeRequest
	if len(os.Args) < 3 {
		return errors.New("no request given")
	}
	if err := json.Unmarshal([]byte(os.Args[2]), &req); err != nil {
		return fmt.Errorf("decode request: %w", err)
	}
	p := prober{ProbeResult: ProbeResult{
		UID: os.Getuid(), EUID: os.Geteuid(), GID: os.Getgid(), EGID: os.Getegid(),
		Env: os.Environ(), Caps: map[string]string{},
		Succeeded: map[string]bool{}, Refused: map[string]string{}, Listed: map[string][]string{},
	}}
	p.look()
	p.files(req)
	p.others(req)
	if req.Calls {
		p.calls()
	}
	if req.SetUID != "" {
		p.setUID(req.SetUID)
	}
	if req.Limits != nil {
		p.limits(req.Limits)
	}
	if req.Daemon != "" {
		cmd := exec.CommandContext(context.Background(), "/proc/self/exe", RoleProbe, daemonArg, req.Daemon)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		err := cmd.Start()
		for deadline := time.Now().Add(10 * time.Second); err == nil; time.Sleep(time.Millisecond) {
			if info, statErr := os.Stat(req.Daemon); statErr == nil && info.Size() > 0 {
				break
			}
			if time.Now().After(deadline) {
				err = errors.New("it does not start")
			}
		}
		p.note("daemon", req.Daemon, err)
	}
	return json.NewEncoder(os.Stdout).Encode(p.ProbeResult)
}

type prober struct{ ProbeResult }

func (p *prober) note(verb, target string, err error) {
	key := strings.TrimSpace(verb + " " + target)
	if err == nil {
		p.Succeeded[key] = true
		return
	}
	p.Refused[key] = err.Error()
}

// look describes the process itself.
func (p *prober) look() {
	p.Groups, _ = os.Getgroups()
	if s, err := readStatus("/proc/self/status"); err == nil {
		p.HasStatus = true
		p.NoNewPrivs, p.Seccomp = s.NoNewPrivs, s.Seccomp
		for i, set := range s.Caps {
			if set != 0 {
				p.Caps[capSets[i]] = strconv.FormatUint(set, 16)
			}
		}
	} else {
		// Without /proc the kernel still tells the sets that matter.
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&head, &data[0]); err != nil || data[0] != (unix.CapUserData{}) || data[1] != (unix.CapUserData{}) {
			p.Caps["capget"] = fmt.Sprintf("%v %v", data, err)
		}
		nnp, _ := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
		p.NoNewPrivs = nnp == 1
		p.Seccomp, _ = unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	}
	for fd := 3; fd < 1024; fd++ {
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		// The runtime's own descriptors are marked, what was inherited is not.
		if err == nil && flags&unix.FD_CLOEXEC == 0 {
			p.Descriptors = append(p.Descriptors, fd)
		}
	}
	sid, err := unix.Getsid(0)
	p.SessionLeader = err == nil && sid == os.Getpid()
	var stdin, null unix.Stat_t
	if unix.Fstat(0, &stdin) == nil && unix.Stat("/dev/null", &null) == nil {
		p.StdinNull = stdin.Rdev == null.Rdev && stdin.Mode&unix.S_IFMT == unix.S_IFCHR
	}
	for what, to := range map[int]*uint64{
		unix.RLIMIT_CORE: &p.Core, unix.RLIMIT_FSIZE: &p.FSize, unix.RLIMIT_NPROC: &p.NPROC,
	} {
		var l unix.Rlimit
		if unix.Getrlimit(what, &l) == nil {
			*to = l.Max
		}
	}
}

func (p *prober) files(req ProbeRequest) {
	for _, path := range req.Read {
		p.note("read", path, readSome(path))
	}
	for _, path := range req.Write {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		p.note("write", path, err)
	}
	for _, path := range req.Create {
		fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
		if err == nil {
			_ = unix.Close(fd)
		}
		p.note("create", path, err)
	}
	for _, path := range req.List {
		entries, err := os.ReadDir(path)
		p.note("list", path, err)
		if err == nil {
			names := make([]string, 0, len(entries))
			for _, e := range entries {
				names = append(names, e.Name())
			}
			p.Listed[path] = names
		}
	}
	for _, path := range req.Mode {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		if err == nil {
			err = unix.Chmod(path, st.Mode&0o7777)
		}
		p.note("mode", path, err)
	}
	if req.Own != "" {
		p.note("own", req.Own, ownFile(req.Own))
	}
}

// ownFile does what every program may do with a file of its own.
func ownFile(path string) error {
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o755); err != nil {
		return err
	}
	then := time.Unix(1e9, 0)
	if err := os.Chtimes(path, then, then); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err == nil && (info.Mode().Perm() != 0o755 || !info.ModTime().Equal(then)) {
		err = fmt.Errorf("mode and time are %v, %v", info.Mode(), info.ModTime())
	}
	return err
}

func readSome(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	n, err := unix.Read(fd, make([]byte, 16))
	if err == nil && n == 0 {
		return errors.New("empty")
	}
	return err
}

// others tries to reach other processes and sockets.
func (p *prober) others(req ProbeRequest) {
	for _, pid := range req.Signal {
		p.note("signal", strconv.Itoa(pid), unix.Kill(pid, 0))
	}
	for _, pid := range req.Limit {
		var l unix.Rlimit
		err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &l)
		if err == nil {
			err = unix.Prlimit(pid, unix.RLIMIT_CORE, &l, nil)
		}
		p.note("limit", strconv.Itoa(pid), err)
	}
	for _, pid := range req.Environ {
		p.note("environ", strconv.Itoa(pid), readSome(fmt.Sprintf("/proc/%d/environ", pid)))
	}
	for _, target := range req.Connect {
		kind, addr, _ := strings.Cut(target, ":")
		switch kind {
		case "abstract":
			kind, addr = "unix", "@"+addr
		case "unixgram":
			p.note("connect", target, sendDatagram(addr))
			continue
		}
		dialer := net.Dialer{Timeout: time.Second}
		c, err := dialer.DialContext(context.Background(), kind, addr)
		if err == nil {
			_ = c.Close()
		}
		p.note("connect", target, err)
	}
}

// sendDatagram sends to a socket of the file system from one of a pair, which
// needs no call of socket.
func sendDatagram(path string) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	return unix.Sendto(fds[0], []byte("x"), unix.MSG_DONTWAIT, &unix.SockaddrUnix{Name: path})
}

// calls tries the system calls that open a way out.
func (p *prober) calls() {
	raw := func(name string, nr uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		_, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
		p.noteErrno(name, e)
	}
	// No process has this id, which only those learn who may ask.
	_, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_CONT, 1<<30, 0, 0, 0, 0)
	if e == unix.ESRCH {
		e = 0
	}
	p.noteErrno("ptrace", e)
	var params [120]byte
	raw("io_uring_setup", unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)))
	raw("keyctl", unix.SYS_KEYCTL, 0, ^uintptr(3), 1) // get this user's keyring
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, 0o600|unix.IPC_CREAT)
	if err == nil {
		_, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	p.note("call", "shmget", err)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		_ = unix.Close(fds[0])
		_ = unix.Close(fds[1])
	}
	p.note("call", "socketpair", err)
	// A child does it, since success would change this process.
	cmd := exec.CommandContext(context.Background(), "/proc/self/exe", RoleProbe, "{}")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	p.note("call", "userns", cmd.Run())
}

func (p *prober) noteErrno(call string, e syscall.Errno) {
	if e != 0 {
		p.note("call", call, e)
		return
	}
	p.note("call", call, nil)
}

// setUID runs a set-user-id copy of id: with the right taken away, it starts as
// the one who runs it.
func (p *prober) setUID(path string) {
	out, err := exec.CommandContext(context.Background(), path, "-u").Output()
	if uid := strings.TrimSpace(string(out)); err == nil && uid == strconv.Itoa(os.Geteuid()) {
		err = fmt.Errorf("runs as %s", uid)
	}
	p.note("setuid", path, err)
}

func (p *prober) limits(l *ProbeLimits) {
	// A byte past the limit, in a file without blocks.
	const name = ".fsize-probe"
	signal.Ignore(unix.SIGXFSZ)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		_, err = f.WriteAt([]byte("x"), l.FSize)
		_ = f.Close()
		_ = os.Remove(name)
	}
	p.note("outgrow", "fsize", err)

	var children []*exec.Cmd
	err = nil
	for len(children) < l.NPROC+probeSpare {
		cmd := exec.CommandContext(context.Background(), "/bin/sleep", "60")
		if err = cmd.Start(); err != nil {
			break
		}
		children = append(children, cmd)
	}
	for _, c := range children {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	if len(children) < l.NPROC/4 {
		err = fmt.Errorf("after %d processes: %w", len(children), err)
		p.note("start", "few", err)
	}
	p.note("outgrow", "nproc", err)
}

const daemonArg = "daemon"

// daemon is what a command leaves behind: a session of its own that ignores
// signals and lets nobody look into it. It goes on until it is killed, or for a
// minute.
func daemon(path string) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM, unix.SIGPIPE)
	for range 6000 {
		if _, err := fmt.Fprintln(f, os.Getpid()); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}
