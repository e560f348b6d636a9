package helper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ctlFD is the descent's end of the pair it shares with the supervisor.
const ctlFD = 3

// descend is the role of the descent: it takes every right from its thread,
// reads back from the kernel what it still has, and becomes the command. What
// it cannot give up is told to the supervisor, and nothing is run.
func descend() error {
	unix.CloseOnExec(ctlFD)
	ctl := os.NewFile(ctlFD, "supervisor")
	var o order
	if err := ReadFrame(ctl, &o); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("started without a plan")
		}
		return fmt.Errorf("read plan: %w", err)
	}
	d := descent{Plan: o.Plan, parent: o.Parent}
	err := d.run()
	if err == nil {
		d.stage, err = StageExec, d.exec()
	}
	r := refusal{Stage: d.stage, Error: err.Error()}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		r.Errno = int(errno)
	}
	return WriteFrame(ctl, r)
}

// descent gives up rights step by step. Everything happens on one thread,
// because that thread's rights are those of the command after exec.
type descent struct {
	Plan
	parent int
	stage  string
	status *os.File // this thread's status, opened while /proc can be read
}

func (d *descent) run() error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"fds", func() error { return closeOnExec(3) }},
		{"session", d.session},
		{"status", d.openStatus},
		{"rlimits", d.limits},
		{"caps", d.dropBounding},
		{"uid", d.switchUser},
		{"caps", d.dropCapabilities},
		{"nnp", noNewPrivs},
		{"parent", d.followParent},
		{"dir", func() error { return unix.Chdir(d.Dir) }},
		{"landlock", d.landlock},
		{"seccomp", d.seccomp},
	}
	for _, s := range steps {
		if d.weak(s.name) {
			continue
		}
		d.stage = StageDescent
		if s.name == "dir" {
			d.stage = StageDir
		}
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	if len(d.Weaken) > 0 {
		return nil
	}
	if err := d.verify(); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	return nil
}

func (d *descent) session() error {
	unix.Umask(0o022)
	if sid, err := unix.Getsid(0); err != nil || sid != os.Getpid() {
		return fmt.Errorf("not a session of its own: %d, %w", sid, err)
	}
	return nil
}

func (d *descent) openStatus() error {
	f, err := os.Open("/proc/thread-self/status")
	d.status = f
	return err
}

func (d *descent) limits() error {
	for _, l := range []struct {
		what  int
		value int64
	}{
		{unix.RLIMIT_CORE, 0},
		{unix.RLIMIT_FSIZE, d.FSize},
		{unix.RLIMIT_NPROC, int64(d.NPROC)},
	} {
		// Never above what holds already: an ordinary user may not, and root
		// has no reason to.
		var now unix.Rlimit
		if err := unix.Getrlimit(l.what, &now); err != nil {
			return err
		}
		v := min(uint64(l.value), now.Max)
		if err := unix.Setrlimit(l.what, &unix.Rlimit{Cur: v, Max: v}); err != nil {
			return fmt.Errorf("limit %d to %d: %w", l.what, v, err)
		}
	}
	return nil
}

func (d *descent) dropBounding() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient set: %w", err)
	}
	if !d.Switch {
		return nil
	}
	for c := uintptr(0); c < 64; c++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the last one the kernel knows
		}
		if err != nil {
			return fmt.Errorf("drop capability %d from the bounding set: %w", c, err)
		}
	}
	return nil
}

// switchUser changes the ids of this thread alone: the runtime's own calls
// would change every thread, which a process about to exec need not.
func (d *descent) switchUser() error {
	if !d.Switch {
		return nil
	}
	if d.UID <= 0 || d.GID <= 0 {
		return fmt.Errorf("refuse to run as %d:%d", d.UID, d.GID)
	}
	if err := setThreadUser(d.UID, d.GID, d.weak("groups")); err != nil {
		return err
	}
	return nil
}

// setThreadUser makes the calling thread a process of uid and gid with no
// other groups. There is no way back.
func setThreadUser(uid, gid int, keepGroups bool) error {
	if !keepGroups {
		if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
			return fmt.Errorf("clear groups: %w", e)
		}
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); e != 0 {
		return fmt.Errorf("set group %d: %w", gid, e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return fmt.Errorf("set user %d: %w", uid, e)
	}
	return nil
}

func (d *descent) dropCapabilities() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("clear capability sets: %w", err)
	}
	return nil
}

func noNewPrivs() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// followParent has the kernel end the command with its supervisor. A change of
// user undoes the setting that the supervisor made.
func (d *descent) followParent() error {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return err
	}
	if os.Getppid() != d.parent {
		return errors.New("supervisor is gone")
	}
	return nil
}

// verify compares what the kernel says of this thread with the plan. Setting
// calls can succeed without effect, so only this counts.
func (d *descent) verify() error {
	b, err := io.ReadAll(d.status)
	if err != nil {
		return err
	}
	s, err := parseStatus(string(b))
	if err != nil {
		return err
	}
	if d.Switch {
		if want := [4]int{d.UID, d.UID, d.UID, d.UID}; s.UIDs != want {
			return fmt.Errorf("user ids are %v", s.UIDs)
		}
		if want := [4]int{d.GID, d.GID, d.GID, d.GID}; s.GIDs != want {
			return fmt.Errorf("group ids are %v", s.GIDs)
		}
		if len(s.Groups) > 0 {
			return fmt.Errorf("still in the groups %v", s.Groups)
		}
	}
	for i, set := range s.Caps {
		if capSets[i] == "CapBnd" && !d.Switch && !d.NoBounding {
			continue // cannot be dropped by an ordinary user, and gives nothing with no_new_privs
		}
		if set != 0 {
			return fmt.Errorf("%s is %x", capSets[i], set)
		}
	}
	if !s.NoNewPrivs {
		return errors.New("no_new_privs is not set")
	}
	if d.Seccomp != nil && s.Seccomp != 2 {
		return errors.New("no system call filter is set")
	}
	return nil
}

// exec becomes the command. A name without a slash is looked for in the PATH
// of the command's own environment.
func (d *descent) exec() error {
	if len(d.Argv) == 0 || d.Argv[0] == "" {
		return syscall.ENOENT
	}
	name := d.Argv[0]
	if strings.Contains(name, "/") {
		return syscall.Exec(name, d.Argv, d.Env)
	}
	var path string
	for _, e := range slices.Backward(d.Env) {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
			break
		}
	}
	last := error(syscall.ENOENT)
	for _, dir := range filepath.SplitList(path) {
		err := syscall.Exec(filepath.Join(dir, name), d.Argv, d.Env)
		switch {
		case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		case errors.Is(err, syscall.EACCES):
			last = err
		default:
			return err
		}
	}
	return last
}
