package isolation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
)

// attackRole has the test program try something as a command: it prints
// "worked", or "refused" and why.
const attackRole = "attack"

// arm puts the test program into a work folder, so that commands can attack
// with more than a shell has.
func arm(t *testing.T, e env.Environment) {
	t.Helper()
	f, err := os.Open(cmp.Or(os.Getenv(helperEnv), selfExe))
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, e.Write(t.Context(), "attacker", f, env.WriteOptions{Mode: 0o755}))
}

// attack runs an attack and returns what it printed.
func attack(t *testing.T, e env.Environment, args ...string) string {
	t.Helper()
	var out strings.Builder
	res, err := e.Exec(t.Context(), env.ExecRequest{
		Argv: append([]string{"./attacker", attackRole}, args...), Timeout: time.Minute,
		Output: func(_ env.Stream, s string, _, _ int64) { out.WriteString(s) },
	})
	require.NoError(t, err)
	if res.Signal != "" {
		return res.Signal
	}
	require.Zero(t, res.ExitCode, out.String())
	return strings.TrimSpace(out.String())
}

// attacker is the test program as a command.
func attacker(args []string) {
	err := errors.New("no such attack")
	if f := attacks[args[0]]; f != nil {
		err = f(args[1:])
	}
	if err != nil {
		fmt.Println("refused:", err)
		return
	}
	fmt.Println("worked")
}

func pidOf(args []string) int {
	pid, err := strconv.Atoi(args[0])
	if err != nil || pid <= 0 {
		panic("no process id")
	}
	return pid
}

var attacks = map[string]func(args []string) error{
	"ptrace": func(args []string) error { return unix.PtraceSeize(pidOf(args)) },
	"memory": func(args []string) error {
		buf := make([]byte, 8)
		local := []unix.Iovec{{Base: &buf[0], Len: 8}}
		_, err := unix.ProcessVMReadv(pidOf(args), local, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		if errors.Is(err, unix.EFAULT) {
			return nil // the right was there
		}
		return err
	},
	"mem file": func(args []string) error { return readable(fmt.Sprintf("/proc/%d/mem", pidOf(args))) },
	"maps":     func(args []string) error { return readable(fmt.Sprintf("/proc/%d/maps", pidOf(args))) },
	"environ":  func(args []string) error { return readable(fmt.Sprintf("/proc/%d/environ", pidOf(args))) },
	"root": func(args []string) error {
		_, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/", pidOf(args)))
		return err
	},
	"descriptors": func(args []string) error {
		_, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pidOf(args)))
		return err
	},
	"signal": func(args []string) error { return unix.Kill(pidOf(args), 0) },
	"kill":   func(args []string) error { return unix.Kill(pidOf(args), unix.SIGKILL) },
	"limit": func(args []string) error {
		return unix.Prlimit(pidOf(args), unix.RLIMIT_NOFILE, &unix.Rlimit{}, nil)
	},
	"affinity": func(args []string) error {
		var set unix.CPUSet
		set.Set(0)
		return unix.SchedSetaffinity(pidOf(args), &set)
	},
	"priority": func(args []string) error { return unix.Setpriority(unix.PRIO_PROCESS, pidOf(args), 19) },
	"pidfd": func(args []string) error {
		fd, err := unix.PidfdOpen(pidOf(args), 0)
		if err != nil {
			return err
		}
		_, err = unix.PidfdGetfd(fd, 0, 0)
		return err
	},
	"connect": func(args []string) error {
		c, err := net.DialTimeout(args[0], args[1], 5*time.Second)
		if err == nil {
			err = c.Close()
		}
		return err
	},
	"datagram": func(args []string) error {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		if err != nil {
			return err
		}
		return unix.Sendto(fds[0], []byte("attack"), 0, &unix.SockaddrUnix{Name: args[0]})
	},
	"vsock": func([]string) error { _, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0); return err },
	"user namespace": func([]string) error {
		cmd := exec.Command("/bin/true")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
		return cmd.Run()
	},
	"unshare": func([]string) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"io_uring": func([]string) error {
		var params [120]byte
		_, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
		if e != 0 {
			return e
		}
		return nil
	},
	"shared memory": func([]string) error { _, err := unix.SysvShmGet(0x7770, 4096, 0o666|unix.IPC_CREAT); return err },
	"mode":          func(args []string) error { return os.Chmod(args[0], 0o777) },
	"mode at": func(args []string) error {
		dir, err := unix.Open(filepath.Dir(args[0]), unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return unix.Fchmodat(dir, filepath.Base(args[0]), 0o777, 0)
	},
	"mode by descriptor": func(args []string) error {
		fd, err := unix.Open(args[0], unix.O_PATH, 0)
		if err != nil {
			return err
		}
		return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), 0o777)
	},
	"times":      func(args []string) error { return os.Chtimes(args[0], time.Unix(1, 0), time.Unix(1, 0)) },
	"owner":      func(args []string) error { return os.Chown(args[0], -1, os.Getgid()) },
	"attributes": func(args []string) error { return unix.Setxattr(args[0], "user.attack", []byte("x"), 0) },
	"write":      func(args []string) error { return os.WriteFile(args[0], []byte("attacked"), 0o600) },
	"read":       func(args []string) error { return readable(args[0]) },
	"list":       func(args []string) error { _, err := os.ReadDir(args[0]); return err },
	"hard link":  func(args []string) error { return os.Link(args[0], "stolen") },
	// A call in the numbers of the 32-bit system, which a filter that only
	// knows its own cannot judge.
	"foreign call": func([]string) error {
		if err := os.WriteFile("foreign", foreignProgram, 0o755); err != nil {
			return err
		}
		return exec.Command("./foreign").Run()
	},
	// Processes that fork and end, so that no list of them is ever right.
	"hop": func([]string) error {
		return exec.Command("perl", "-e", "fork and exit; setpgrp; while (1) { fork and exit }").Run()
	},
}

func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if n, err := f.Read(make([]byte, 16)); n == 0 && err != nil && !errors.Is(err, syscall.EIO) {
		return err
	}
	return nil
}

// foreignProgram is a program of amd64 that asks for its process id as a 32-bit
// program does, and exits with 0 when it gets one.
var foreignProgram = func() []byte {
	code := []byte{
		0xb8, 20, 0, 0, 0, // mov eax, 20 (getpid of the 32-bit system)
		0xcd, 0x80, // int 0x80
		0x31, 0xff, // xor edi, edi
		0x85, 0xc0, // test eax, eax
		0x79, 0x05, // jns +5
		0xbf, 1, 0, 0, 0, // mov edi, 1
		0xb8, 60, 0, 0, 0, // mov eax, 60 (exit)
		0x0f, 0x05, // syscall
	}
	const base, head = 0x400000, 64 + 56
	le := func(n int, v uint64) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(v >> (8 * i))
		}
		return b
	}
	var p []byte
	p = append(p, 0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	p = append(p, le(2, 2)...)         // executable
	p = append(p, le(2, 62)...)        // amd64
	p = append(p, le(4, 1)...)         // version
	p = append(p, le(8, base+head)...) // entry
	p = append(p, le(8, 64)...)        // program headers
	p = append(p, le(8, 0)...)         // section headers
	p = append(p, le(4, 0)...)
	p = append(p, le(2, 64)...)
	p = append(p, le(2, 56)...)
	p = append(p, le(2, 1)...)
	p = append(p, le(6, 0)...)
	p = append(p, le(4, 1)...) // load
	p = append(p, le(4, 5)...) // read, execute
	p = append(p, le(8, 0)...)
	p = append(p, le(8, base)...)
	p = append(p, le(8, base)...)
	p = append(p, le(8, uint64(head+len(code)))...)
	p = append(p, le(8, uint64(head+len(code)))...)
	p = append(p, le(8, 0x1000)...)
	return append(p, code...)
}()

// running is a command that goes on beside a test.
type running struct {
	first  string // what it printed first
	cancel context.CancelFunc
	ended  chan outcome
}

// background starts a command and returns once it has printed something.
func background(t *testing.T, e env.Environment, command string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, ended: make(chan outcome, 1)}
	began := make(chan string, 1)
	go func() {
		var o outcome
		o.ExecResult, o.err = e.Exec(ctx, env.ExecRequest{Command: command, Output: func(_ env.Stream, s string, _, _ int64) {
			select {
			case began <- s:
			default:
			}
			o.text += s
		}})
		r.ended <- o
	}()
	t.Cleanup(func() {
		cancel()
		<-r.ended
		close(r.ended)
	})
	select {
	case r.first = <-began:
	case o := <-r.ended:
		r.ended <- o
		require.Fail(t, "the command ended", "%+v", o)
	}
	return r
}

// alive reports whether the command still runs.
func (r *running) alive() bool {
	select {
	case o := <-r.ended:
		r.ended <- o
		return false
	default:
		return true
	}
}
