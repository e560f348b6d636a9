package helper

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/elastic/go-seccomp-bpf/arch"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const statusText = "Name:\tsh) x\nState:\tS (sleeping)\nPPid:\t1\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nGroups:\t9 10 \nThreads:\t3\n" +
	"CapInh:\t0000000000000001\nCapPrm:\t0000000000000002\nCapEff:\t0000000000000004\nCapBnd:\t000001ffffffffff\nCapAmb:\t0000000000000008\nNoNewPrivs:\t1\nSeccomp:\t2\n"

func TestParseStatus(t *testing.T) {
	t.Parallel()
	s, err := parseStatus(statusText)
	require.NoError(t, err)
	require.Equal(t, Status{
		UIDs: [4]int{1, 2, 3, 4}, GIDs: [4]int{5, 6, 7, 8}, Groups: []int{9, 10},
		Caps: [5]uint64{1, 2, 4, 0x1ffffffffff, 8}, NoNewPrivs: true, Seccomp: 2, Threads: 3,
	}, s)
	// What is missing is never taken for an empty set.
	for line := range strings.Lines(statusText) {
		name, _, _ := strings.Cut(line, ":")
		if slices.Contains([]string{"Name", "State", "PPid", "Threads", "Seccomp"}, name) {
			continue
		}
		_, err := parseStatus(strings.ReplaceAll(statusText, line, ""))
		require.Error(t, err, "without %s", name)
		_, err = parseStatus(strings.ReplaceAll(statusText, line, name+":\tx\n"))
		if name != "NoNewPrivs" {
			require.Error(t, err, "with a bad %s", name)
		}
	}
	dead, err := parseStatus(strings.Replace(strings.Replace(statusText, "S (sleeping)", "Z (zombie)", 1), "Threads:\t3", "Threads:\t1", 1))
	require.NoError(t, err)
	require.True(t, dead.Dead)
	halfDead, err := parseStatus(strings.Replace(statusText, "S (sleeping)", "Z (zombie)", 1))
	require.NoError(t, err)
	require.False(t, halfDead.Dead, "the first thread of several has ended")
	own, err := readStatus("/proc/self/status")
	require.NoError(t, err)
	require.Equal(t, os.Getuid(), own.UIDs[0])
}

// A name that no architecture knows would shut nothing.
func TestGroups_Names(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, name := range []string{"x86_64", "aarch64"} {
		info, err := arch.GetInfo(name)
		require.NoError(t, err)
		for call := range info.SyscallNames {
			known[call] = true
		}
	}
	// Newer than the table; until it has them they do not exist for a command.
	newer := []string{"setxattrat", "removexattrat"}
	for _, g := range groups(&Seccomp{NoSockets: true, NoIPC: true, SameUser: true, Broker: true, OpenFiles: true}) {
		for _, n := range g.NamesWithCondtions {
			require.True(t, known[n.Name], n.Name)
		}
		for _, name := range g.Names {
			require.True(t, known[name] || slices.Contains(newer, name), name)
		}
	}
}

// The filter as the kernel runs it.
func TestProgram(t *testing.T) {
	t.Parallel()
	info, err := arch.GetInfo("")
	require.NoError(t, err)
	strict := &Seccomp{NoSockets: true, NoIPC: true, SameUser: true, Broker: true}
	open := &Seccomp{Broker: true, OpenFiles: true}
	deny := actErrno | uint32(unix.EPERM)
	nr := func(name string) uint32 {
		n, ok := info.SyscallNames[name]
		require.True(t, ok, name)
		return uint32(n)
	}
	const foreign = 0x40000003 // the 32-bit system of amd64
	for name, c := range map[string]struct {
		s      *Seccomp
		arch   uint32
		number uint32
		args   []uint64
		want   uint32
	}{
		"read":                        {&Seccomp{}, uint32(info.ID), nr("read"), nil, actAllow},
		"ptrace":                      {&Seccomp{}, uint32(info.ID), nr("ptrace"), nil, deny},
		"another architecture":        {&Seccomp{}, foreign, nr("read"), nil, actKill},
		"newer than the table":        {&Seccomp{}, uint32(info.ID), 9999, nil, actErrno | uint32(unix.ENOSYS)},
		"clone3":                      {&Seccomp{}, uint32(info.ID), nr("clone3"), nil, actErrno | uint32(unix.ENOSYS)},
		"clone":                       {&Seccomp{}, uint32(info.ID), nr("clone"), []uint64{unix.CLONE_VM | uint64(unix.SIGCHLD)}, actAllow},
		"clone, user namespace":       {&Seccomp{}, uint32(info.ID), nr("clone"), []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, deny},
		"unshare, user namespace":     {&Seccomp{}, uint32(info.ID), nr("unshare"), []uint64{unix.CLONE_NEWUSER | unix.CLONE_NEWNS}, deny},
		"own limits":                  {&Seccomp{}, uint32(info.ID), nr("prlimit64"), []uint64{0}, actAllow},
		"another's limits":            {&Seccomp{}, uint32(info.ID), nr("prlimit64"), []uint64{17}, deny},
		"another's limits, high bits": {&Seccomp{}, uint32(info.ID), nr("prlimit64"), []uint64{1<<40 | 17}, deny},
		"internet socket":             {&Seccomp{}, uint32(info.ID), nr("socket"), []uint64{unix.AF_INET}, actAllow},
		"packet socket":               {&Seccomp{}, uint32(info.ID), nr("socket"), []uint64{unix.AF_PACKET}, actErrno | uint32(unix.EAFNOSUPPORT)},
		"socket, high bits":           {&Seccomp{}, uint32(info.ID), nr("socket"), []uint64{1<<32 | unix.AF_PACKET}, actErrno | uint32(unix.EAFNOSUPPORT)},
		"no sockets":                  {strict, uint32(info.ID), nr("socket"), []uint64{unix.AF_UNIX}, deny},
		"stream pair":                 {strict, uint32(info.ID), nr("socketpair"), []uint64{unix.AF_UNIX, unix.SOCK_STREAM | unix.SOCK_CLOEXEC}, actAllow},
		"packet pair":                 {strict, uint32(info.ID), nr("socketpair"), []uint64{unix.AF_UNIX, unix.SOCK_SEQPACKET | unix.SOCK_NONBLOCK}, actAllow},
		"datagram pair":               {strict, uint32(info.ID), nr("socketpair"), []uint64{unix.AF_UNIX, unix.SOCK_DGRAM | unix.SOCK_CLOEXEC}, deny},
		"pair of another family":      {strict, uint32(info.ID), nr("socketpair"), []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, deny},
		"pair of another, with net":   {&Seccomp{}, uint32(info.ID), nr("socketpair"), []uint64{unix.AF_TIPC, unix.SOCK_STREAM}, deny},
		"datagram pair with net":      {&Seccomp{}, uint32(info.ID), nr("socketpair"), []uint64{unix.AF_UNIX, unix.SOCK_DGRAM}, actAllow},
		"raw pair":                    {strict, uint32(info.ID), nr("socketpair"), []uint64{unix.AF_UNIX, unix.SOCK_RAW}, deny},
		"shared memory":               {&Seccomp{NoIPC: true}, uint32(info.ID), nr("shmget"), nil, deny},
		"queue":                       {&Seccomp{NoIPC: true}, uint32(info.ID), nr("mq_open"), nil, deny},
		"own priority":                {strict, uint32(info.ID), nr("setpriority"), []uint64{unix.PRIO_PROCESS, 0}, actAllow},
		"another's priority":          {strict, uint32(info.ID), nr("setpriority"), []uint64{unix.PRIO_PROCESS, 17}, deny},
		"the user's priority":         {strict, uint32(info.ID), nr("setpriority"), []uint64{unix.PRIO_USER, 0}, deny},
		"affinity of another":         {strict, uint32(info.ID), nr("sched_setaffinity"), []uint64{17}, deny},
		"mode by path":                {strict, uint32(info.ID), nr("fchmodat"), nil, actNotify},
		"mode by descriptor":          {strict, uint32(info.ID), nr("fchmod"), nil, actAllow},
		"times by path":               {strict, uint32(info.ID), nr("utimensat"), []uint64{3, 4}, actNotify},
		"times by descriptor":         {strict, uint32(info.ID), nr("utimensat"), []uint64{3, 0}, actAllow},
		"mode of an open file":        {open, uint32(info.ID), nr("fchmod"), nil, actNotify},
		"owner of an open file":       {open, uint32(info.ID), nr("fchown"), nil, actNotify},
		"times of an open file":       {open, uint32(info.ID), nr("utimensat"), []uint64{3, 0}, actNotify},
		"attributes of an open file":  {open, uint32(info.ID), nr("fsetxattr"), nil, actErrno | uint32(unix.ENOTSUP)},
		"mode by path at other levels": {
			&Seccomp{}, uint32(info.ID), nr("fchmodat"), nil, actAllow},
	} {
		require.Equal(t, c.want, judge(t, c.s, c.arch, c.number, c.args), name)
	}
}

// judge runs the filter on a call. The machine of package bpf reads big-endian
// packets, so the words are given to it that way round.
func judge(t *testing.T, s *Seccomp, architecture, number uint32, args []uint64) uint32 {
	t.Helper()
	raw, err := program(s)
	require.NoError(t, err)
	insts, all := bpf.Disassemble(raw)
	require.True(t, all)
	data := make([]byte, 64)
	put := func(at int, v uint32) { binary.BigEndian.PutUint32(data[at:], v) }
	put(offsetNumber, number)
	put(offsetArch, architecture)
	for i, a := range args {
		put(16+8*i, uint32(a))
		put(20+8*i, uint32(a>>32))
	}
	vm, err := bpf.NewVM(insts)
	require.NoError(t, err)
	got, err := vm.Run(data)
	require.NoError(t, err)
	return uint32(got)
}

func TestFrame(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	want := Plan{Argv: []string{"sh", "-c", "a\x00b\n"}, UID: 5, Landlock: &Landlock{ReadOnly: []string{"/usr"}}}
	require.NoError(t, WriteFrame(&b, want))
	whole := b.String()
	var got Plan
	require.NoError(t, ReadFrame(&b, &got))
	require.Equal(t, want, got)
	require.ErrorIs(t, ReadFrame(&b, &got), io.EOF)
	for cut := 1; cut < len(whole); cut += 7 {
		err := ReadFrame(strings.NewReader(whole[:cut]), &got)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	}
	require.Error(t, ReadFrame(strings.NewReader("\xff\xff\xff\xff"), &got), "no memory is taken for a length alone")
	require.Error(t, WriteFrame(io.Discard, strings.Repeat("x", maxFrame)))
}

func TestBroker_Beneath(t *testing.T) {
	t.Parallel()
	b := &broker{workDir: "/data/work/1"}
	for path, want := range map[string]string{
		"/data/work/1": "", "/data/work/1/a": "a", "/data/work/1//a/../../b": "a/../../b",
	} {
		got, ok := b.beneath(path)
		require.True(t, ok, path)
		require.Equal(t, want, got, "where dots lead is the kernel's to say")
	}
	for _, path := range []string{"/data/work/12", "/data/work", "/", "a", "", "/data/work/1 (deleted)"} {
		_, ok := b.beneath(path)
		require.False(t, ok, path)
	}
}

func TestDescendants(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "sh -c 'sleep 1000 & echo x; wait' & wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	_, err = out.Read(make([]byte, 2))
	require.NoError(t, err)
	require.Len(t, descendants(cmd.Process.Pid), 2)
	users, err := Users(os.Getuid(), os.Getuid())
	require.NoError(t, err)
	require.Contains(t, users[os.Getuid()], cmd.Process.Pid)
	n, err := countTasks(os.Getuid())
	require.NoError(t, err)
	require.GreaterOrEqual(t, n, 4)
}

// Roles refuse what would be a catastrophe.
func TestRoles_Refuse(t *testing.T) {
	for _, uid := range []string{"0", "-1", "root", ""} {
		os.Args = []string{"test", RoleKill, uid}
		require.ErrorContains(t, killUser(), "refuse")
	}
	d := descent{Plan: Plan{Switch: true, UID: 0, GID: 0}}
	require.ErrorContains(t, d.switchUser(), "refuse")
	require.ErrorIs(t, (&descent{}).exec(), syscall.ENOENT)
	require.ErrorIs(t, (&descent{Plan: Plan{Argv: []string{"no-such-program"}, Env: []string{"PATH=/usr/bin:/bin"}}}).exec(), syscall.ENOENT)
	require.ErrorIs(t, (&descent{Plan: Plan{Argv: []string{"passwd"}, Env: []string{"PATH=/etc"}}}).exec(), syscall.EACCES)
	var errno syscall.Errno
	require.False(t, errors.As(errors.New("x"), &errno))
}
