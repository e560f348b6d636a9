package helper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The name that helper processes have in process lists.
const processName = "wp-durable"

// order is what the supervisor hands to the descent.
type order struct {
	Plan   Plan
	Parent int // pid of the supervisor, to see that it is still there
}

// refusal is why the descent did not become the command.
type refusal struct {
	Stage string
	Error string
	Errno int
}

// supervise is the role of the supervisor: it starts the descent, waits until
// the command ends or the plan's descriptor does, kills every descendant and
// reports.
func supervise() error {
	planFile := os.NewFile(PlanFD, "plan")
	reportFile := os.NewFile(ReportFD, "report")
	if planFile == nil || reportFile == nil {
		return errors.New("started without a plan")
	}
	var plan Plan
	if err := ReadFrame(planFile, &plan); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	if !plan.weak("fds") {
		if err := closeOnExec(3); err != nil {
			return err
		}
	}
	// Nobody of the same user may look into this process, and what the command
	// orphans comes to it.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("set undumpable: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	if plan.NPROCAbove {
		n, err := countTasks(os.Getuid())
		if err != nil {
			return fmt.Errorf("count processes: %w", err)
		}
		plan.NPROC += n
	}
	c := call{plan: plan}
	report := c.run(planFile)
	if !plan.Init && !plan.weak("kill") {
		report.Killed = killDescendants(descendants)
	}
	if err := WriteFrame(reportFile, report); err != nil && !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil
}

// call is one command under supervision.
type call struct {
	plan Plan

	mu  sync.Mutex
	pid int // guarded by mu once the command is started; 0 once reaped
}

func (c *call) run(lifeline *os.File) Report {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return failure(StageDescent, "make socket pair", err)
	}
	null, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return failure(StageDescent, "open /dev/null", err)
	}
	if c.plan.Switch {
		giveOutput(c.plan.UID, c.plan.GID)
	}
	pid, err := syscall.ForkExec("/proc/self/exe", []string{processName, RoleExec}, &syscall.ProcAttr{
		Dir:   "/",
		Files: []uintptr{uintptr(null), 1, 2, uintptr(pair[1])},
		Sys:   &syscall.SysProcAttr{Setsid: !c.plan.weak("session"), Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return failure(StageDescent, "start", err)
	}
	c.pid = pid
	// Only the command holds its output from here on.
	_ = unix.Close(pair[1])
	_ = unix.Dup3(null, 1, 0)
	_ = unix.Dup3(null, 2, 0)

	go func() {
		_, _ = io.Copy(io.Discard, lifeline)
		c.kill()
	}()

	ctl := os.NewFile(uintptr(pair[0]), "descent")
	refused, err := c.hand(ctl)
	if err != nil {
		c.kill()
		refused = &refusal{Stage: StageDescent, Error: err.Error()}
	}
	status, err := c.wait()
	switch {
	case refused != nil:
		return Report{Error: refused.Error, Errno: refused.Errno, Stage: refused.Stage, ExitCode: -1}
	case err != nil:
		return failure(StageExec, "wait", err)
	case status.Signaled():
		return Report{ExitCode: -1, Signal: int(status.Signal())}
	}
	return Report{ExitCode: status.ExitStatus()}
}

// giveOutput lets the command open its own output anew, by /dev/stdout and
// /dev/stderr: a pipe belongs to who made it.
func giveOutput(uid, gid int) {
	for fd := 1; fd <= 2; fd++ {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
			_ = unix.Fchown(fd, uid, gid)
		}
	}
}

// hand gives the plan to the descent and returns when it has become the
// command, was killed, or refused.
func (c *call) hand(ctl *os.File) (*refusal, error) {
	defer ctl.Close()
	if err := WriteFrame(ctl, order{Plan: c.plan, Parent: os.Getpid()}); err != nil {
		return nil, err
	}
	if c.plan.Seccomp != nil && c.plan.Seccomp.Broker {
		listener, err := receiveListener(int(ctl.Fd()))
		if err != nil {
			return nil, fmt.Errorf("receive seccomp listener: %w", err)
		}
		if listener >= 0 {
			if err := startBroker(listener, &c.plan); err != nil {
				return nil, fmt.Errorf("start broker: %w", err)
			}
		}
	}
	var r refusal
	switch err := ReadFrame(ctl, &r); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read from descent: %w", err)
	}
	return &r, nil
}

// kill ends the command's first process, unless it has ended.
func (c *call) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pid > 0 {
		_ = unix.Kill(c.pid, unix.SIGKILL)
	}
}

// wait reaps orphans until the command's first process has ended.
func (c *call) wait() (syscall.WaitStatus, error) {
	for {
		var info unix.Siginfo
		if err := ignoringEINTR(func() error {
			return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		}); err != nil {
			return 0, err
		}
		// The pid is free for another process only after the lock is held, so
		// that kill never meets a stranger.
		c.mu.Lock()
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if pid == c.pid && pid > 0 {
			c.pid = 0
		}
		ended := c.pid == 0
		c.mu.Unlock()
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return 0, err
		}
		if ended {
			return status, nil
		}
	}
}

func failure(stage, what string, err error) Report {
	r := Report{Error: fmt.Sprintf("%s: %v", what, err), Stage: stage, ExitCode: -1}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		r.Errno = int(errno)
	}
	return r
}

func ignoringEINTR(f func() error) error {
	for {
		if err := f(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// killDescendants ends every descendant and returns how many it found. It
// reaps none until all are dead: a dead process that nobody has waited for
// counts against the process limit, so whatever goes on forking runs into that
// limit, however fast it is. While there are children that list does not show
// it goes on looking, at intervals.
func killDescendants(list func(pid int) []process) int {
	seen := make(map[int]bool)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		var info unix.Siginfo
		err := ignoringEINTR(func() error {
			return unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		})
		if errors.Is(err, syscall.ECHILD) {
			return len(seen)
		}
		alive := false
		for _, p := range list(os.Getpid()) {
			seen[p.pid] = true
			if !p.dead {
				alive = true
				_ = unix.Kill(p.pid, unix.SIGKILL)
			}
		}
		if !alive && reap() > 0 {
			continue
		}
		time.Sleep(pause)
	}
}

// reap waits for the children that have ended and returns how many they were.
func reap() int {
	for n := 0; ; {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		switch {
		case pid > 0:
			n++
		case !errors.Is(err, syscall.EINTR):
			return n
		}
	}
}
