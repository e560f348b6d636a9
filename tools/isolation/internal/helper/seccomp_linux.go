package helper

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/elastic/go-seccomp-bpf"
	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const (
	actKill   = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	actNotify = 0x7fc00000 // SECCOMP_RET_USER_NOTIF
	actErrno  = 0x00050000 // SECCOMP_RET_ERRNO, the errno in the low bits
	actAllow  = 0x7fff0000 // SECCOMP_RET_ALLOW

	offsetNumber = 0 // of the call's number and architecture in seccomp_data
	offsetArch   = 4
)

// What no command may call. Most of it needs a capability that commands do not
// have, or a user namespace that they cannot make; shut here, a mistake
// elsewhere gives nothing.
var (
	forbidden = []string{
		// into other processes
		"ptrace", "process_vm_readv", "process_vm_writev", "process_madvise",
		"process_mrelease", "kcmp", "pidfd_getfd",
		// kernel keyrings, which belong to the user and not to the process
		"add_key", "request_key", "keyctl",
		// large and often broken parts of the kernel
		"bpf", "perf_event_open", "userfaultfd",
		// mounts and namespaces
		"setns", "mount", "umount2", "pivot_root", "chroot", "fsopen", "fsconfig",
		"fsmount", "fspick", "move_mount", "open_tree", "mount_setattr",
		// files by handle instead of by path, and watching a whole file system
		"name_to_handle_at", "open_by_handle_at", "fanotify_init",
		// the machine
		"kexec_load", "kexec_file_load", "init_module", "finit_module",
		"delete_module", "acct", "swapon", "swapoff", "reboot", "quotactl",
		"quotactl_fd", "iopl", "ioperm", "vhangup", "syslog", "settimeofday",
		"clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname",
	}
	// Programs have another way when these do not exist. The arguments of
	// clone3 are in memory, where a filter cannot see a new user namespace.
	absent = []string{"io_uring_setup", "io_uring_enter", "io_uring_register", "clone3"}
	ipc    = []string{
		"shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl",
		"semget", "semop", "semtimedop", "semctl", "mq_open", "mq_unlink",
	}
	// With a person's user these reach that person's other programs: nothing
	// of Landlock stands before them.
	sameUser = []string{
		"migrate_pages", "move_pages",
		"chown", "lchown", "fchownat", "setxattr", "lsetxattr", "setxattrat",
		"removexattr", "lremovexattr", "removexattrat",
	}
	// Changes of mode and time by path, which the supervisor makes.
	brokered = []string{"chmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat"}
	// The same and more for open files, where a command may open what its user
	// owns and it may only read.
	brokeredOpen = []string{"fchmod", "fchown"}
	attributes   = []string{"fsetxattr", "fremovexattr"}
)

// conditional is a call that is shut only for some arguments: any of the sets
// shuts it.
func conditional(name string, sets ...seccomp.ArgumentConditions) []seccomp.NameWithConditions {
	var out []seccomp.NameWithConditions
	for _, s := range sets {
		out = append(out, seccomp.NameWithConditions{Name: name, Conditions: s})
	}
	return out
}

func not(arg uint32, values ...uint64) seccomp.ArgumentConditions {
	var set seccomp.ArgumentConditions
	for _, v := range values {
		set = append(set, seccomp.Condition{Argument: arg, Operation: seccomp.NotEqual, Value: v})
	}
	return set
}

func bits(arg uint32, mask uint64) seccomp.ArgumentConditions {
	return seccomp.ArgumentConditions{{Argument: arg, Operation: seccomp.BitsSet, Value: mask}}
}

func groups(s *Seccomp) []seccomp.SyscallGroup {
	errno := func(e unix.Errno) seccomp.Action { return seccomp.Action(actErrno | uint32(e)) }
	type nc = seccomp.NameWithConditions
	denied := seccomp.SyscallGroup{Action: errno(unix.EPERM), Names: append([]string{}, forbidden...)}
	add := func(list []nc) { denied.NamesWithCondtions = append(denied.NamesWithCondtions, list...) }
	add(conditional("clone", bits(0, unix.CLONE_NEWUSER)))
	add(conditional("unshare", bits(0, unix.CLONE_NEWUSER)))
	// A limit of another process of the same user can end that process.
	add(conditional("prlimit64", not(0, 0)))
	// Other families' pairs would be a way around the families of sockets.
	add(conditional("socketpair", not(0, unix.AF_UNIX)))
	families := seccomp.SyscallGroup{Action: errno(unix.EAFNOSUPPORT)}
	if s.NoSockets {
		denied.Names = append(denied.Names, "socket")
		// A datagram socket of a pair can be sent to any address; the bit is
		// set in the datagram and raw types and in no other.
		add(conditional("socketpair", bits(1, unix.SOCK_DGRAM)))
	} else {
		families.NamesWithCondtions = conditional("socket",
			not(0, unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK))
	}
	// Programs that copy attributes go on when there are none.
	unsupported := seccomp.SyscallGroup{Action: errno(unix.ENOTSUP)}
	notify := seccomp.SyscallGroup{Action: seccomp.Action(actNotify)}
	if s.NoIPC {
		denied.Names = append(denied.Names, ipc...)
	}
	if s.SameUser {
		denied.Names = append(denied.Names, sameUser...)
		add(conditional("sched_setaffinity", not(0, 0)))
		add(conditional("sched_setscheduler", not(0, 0)))
		add(conditional("sched_setparam", not(0, 0)))
		add(conditional("sched_setattr", not(0, 0)))
		add(conditional("setpriority", not(0, unix.PRIO_PROCESS), not(1, 0)))
		add(conditional("ioprio_set", not(0, 1), not(1, 0)))
	}
	if s.Broker {
		notify.Names = append(notify.Names, brokered...)
		if s.OpenFiles {
			unsupported.Names = attributes
			notify.Names = append(append(notify.Names, "utimensat"), brokeredOpen...)
		} else {
			// Without a path it changes an open file, which was Landlock's to allow.
			notify.NamesWithCondtions = conditional("utimensat", not(1, 0))
		}
	}
	gone := seccomp.SyscallGroup{Action: errno(unix.ENOSYS), Names: absent}
	return []seccomp.SyscallGroup{denied, families, unsupported, notify, gone}
}

// program assembles the filter for the machine's own architecture. Calls of
// another one, such as the 32-bit calls of an amd64 process, end the process,
// and calls newer than the table do not exist: neither can be judged.
func program(s *Seccomp) ([]bpf.RawInstruction, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, err
	}
	newest := 0
	for _, n := range info.SyscallNames {
		newest = max(newest, n)
	}
	policy := seccomp.Policy{DefaultAction: seccomp.Action(actAllow)}
	for _, g := range groups(s) {
		policy.Syscalls = append(policy.Syscalls, known(g, info))
	}
	rest, err := policy.Assemble()
	if err != nil {
		return nil, err
	}
	insts := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: actKill},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: uint32(newest), SkipTrue: 1},
		bpf.RetConstant{Val: actErrno | uint32(unix.ENOSYS)},
	}
	return bpf.Assemble(append(insts, rest...))
}

// known leaves out the calls that the architecture does not have.
func known(g seccomp.SyscallGroup, info *arch.Info) seccomp.SyscallGroup {
	out := seccomp.SyscallGroup{Action: g.Action}
	for _, name := range g.Names {
		if _, ok := info.SyscallNames[name]; ok {
			out.Names = append(out.Names, name)
		}
	}
	for _, n := range g.NamesWithCondtions {
		if _, ok := info.SyscallNames[n.Name]; ok {
			out.NamesWithCondtions = append(out.NamesWithCondtions, n)
		}
	}
	return out
}

// SeccompWorks tells whether the kernel takes filters with every action that
// the levels use.
func SeccompWorks() bool {
	for _, action := range []uint32{actKill, actNotify, actErrno} {
		_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
		if e != 0 {
			return false
		}
	}
	return true
}

// BrokerWorks tells whether the kernel lets a supervisor make calls for a
// command that cannot be left waiting by a signal.
func BrokerWorks() bool {
	// Flags are looked at before the filter, of which there is none.
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, brokerFlags, 0)
	return e == unix.EFAULT
}

const brokerFlags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// seccomp sets the filter on this thread, and with a broker hands its listener
// to the supervisor.
func (d *descent) seccomp() error {
	if d.Seccomp == nil {
		return nil
	}
	raw, err := program(d.Seccomp)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		filter[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	var flags uintptr
	if d.Seccomp.Broker {
		flags = brokerFlags
	}
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
	if e != 0 {
		return fmt.Errorf("set filter: %w", e)
	}
	if !d.Seccomp.Broker {
		return nil
	}
	defer unix.Close(int(fd))
	return sendListener(ctlFD, int(fd))
}

func sendListener(sock, fd int) error {
	return ignoringEINTR(func() error {
		return unix.Sendmsg(sock, []byte{0}, unix.UnixRights(fd), nil, 0)
	})
}

// receiveListener takes the listener from the descent, or -1 when it ended or
// was started without a filter.
func receiveListener(sock int) (int, error) {
	buf, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	var n, oobn int
	if err := ignoringEINTR(func() (err error) {
		n, oobn, _, _, err = unix.Recvmsg(sock, buf, oob, unix.MSG_PEEK|unix.MSG_CMSG_CLOEXEC)
		return err
	}); err != nil {
		return -1, err
	}
	if n == 0 || oobn == 0 {
		return -1, nil // the end, or a refusal, which stays to be read
	}
	// The peek made a descriptor of its own; the byte goes now.
	if _, _, _, _, err := unix.Recvmsg(sock, buf, nil, 0); err != nil {
		return -1, err
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return -1, err
	}
	for _, m := range msgs {
		fds, err := unix.ParseUnixRights(&m)
		if err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, errors.New("no descriptor in the message")
}
