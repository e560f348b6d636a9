package helper

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// The roles, as first argument of the program.
const (
	RoleRun   = "__run"
	RoleExec  = "__exec"
	RoleProbe = "__probe"
	RoleKill  = "__kill"
)

// The descriptors that a supervisor is started with, beside its standard ones.
// PlanFD brings the [Plan] and stays open as long as the call may run: its end
// of file means that the caller is gone or wants the call dead. ReportFD takes
// one [Report]. Further descriptors are only held, for the locks on them.
const (
	PlanFD   = 3
	ReportFD = 4
)

// A Plan says what to run and which rights to leave it.
type Plan struct {
	Argv []string
	Env  []string
	// WorkDir is the work folder, Dir the folder to start in.
	WorkDir string
	Dir     string

	// Switch tells to become UID and GID with no other group, and to drop the
	// bounding set, which needs the capabilities for it.
	Switch   bool
	UID, GID int
	// NoBounding tells that the bounding set must be found empty without
	// dropping it here.
	NoBounding bool

	FSize int64 // bytes a file may have
	NPROC int   // processes and threads of the user
	// NPROCAbove adds to NPROC what the user runs when the call starts.
	NPROCAbove bool

	Landlock *Landlock
	Seccomp  *Seccomp
	// Init tells that the supervisor is process 1 of a namespace, whose end
	// kills what is left.
	Init bool

	// Weaken names protections to leave out. Only tests of the self-test set
	// it: each check must fail without its protection.
	Weaken []string
}

// Landlock says what a command may reach of the file system, and whether it is
// kept from signalling and from abstract sockets outside its own call.
type Landlock struct {
	// FS restricts the file system to the lists below.
	FS        bool
	ReadOnly  []string // folders and files, also to execute; missing ones are left out
	ReadWrite []string // folders
	Devices   []string // files to read and write
	// MinABI is the oldest Landlock that keeps the promise; with 0 the helper
	// does what the kernel can, down to nothing.
	MinABI int
}

// Seccomp says which system calls a command loses, beyond those that none may
// have.
type Seccomp struct {
	// NoSockets shuts every socket but a pair of connected streams.
	NoSockets bool
	// NoIPC shuts shared memory, semaphores and queues that have keys instead of
	// files: they outlive the call and reach every process of the user.
	NoIPC bool
	// SameUser shuts what reaches other processes and files of one's own user
	// and has no Landlock hook, where that user is a person or shared by trees.
	SameUser bool
	// Broker has the supervisor change file modes and times, which Landlock
	// does not bound, and only inside the work folder.
	Broker bool
	// OpenFiles has the broker judge changes of open files too, where the user
	// owns files that commands may only read.
	OpenFiles bool
}

func (p *Plan) weak(name string) bool { return slices.Contains(p.Weaken, name) }

// Where a command can fail to start: a right could not be given up, the folder
// could not be entered, the program could not be run.
const (
	StageDescent = "descent"
	StageDir     = "dir"
	StageExec    = "exec"
)

// A Report is what a supervisor tells at the end of a call.
type Report struct {
	// Error says why the command did not start; ExitCode and Signal are then
	// meaningless. NotFound and the like are told apart by Errno.
	Error string
	Errno int
	// Stage is where it failed.
	Stage string

	ExitCode int // -1 when a signal ended it
	Signal   int
	// Killed counts what the command had left running.
	Killed int
}

const maxFrame = 8 << 20

// WriteFrame writes v as one frame.
func WriteFrame(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if len(b) > maxFrame {
		return fmt.Errorf("frame of %d bytes is too large", len(b))
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, len(b)+4), uint32(len(b)))
	if _, err := w.Write(append(frame, b...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// ReadFrame reads one frame into v. It returns io.EOF when there is none.
func ReadFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxFrame {
		return fmt.Errorf("frame of %d bytes is too large", n)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("decode frame: %w", err)
	}
	return nil
}
