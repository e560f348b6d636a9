package helper

// ProbeRequest says what a probe, which runs exactly as a command does, is to
// try. It is the second argument of [RoleProbe], as JSON.
type ProbeRequest struct {
	Read    []string // files to read
	Write   []string // files to open for writing
	Create  []string // files to make; whoever asks looks for them and removes them
	List    []string // folders to list
	Mode    []string // files whose mode to change to what it is
	Own     string   // a file to make and change the mode and times of
	Signal  []int    // processes to signal with 0
	Limit   []int    // processes whose limits to set to what they are
	Environ []int    // processes whose environment to read
	Connect []string // "unix:path", "unixgram:path", "abstract:name" or "tcp:addr"
	SetUID  string   // a set-user-id copy of id to run
	Calls   bool     // the system calls that none may have
	Limits  *ProbeLimits
	// Daemon has a process left behind that ignores signals, cannot be looked
	// into and holds a lock on this file.
	Daemon string
}

// ProbeLimits are limits to run into.
type ProbeLimits struct {
	FSize int64
	NPROC int
}

// ProbeResult is what the probe saw.
type ProbeResult struct {
	UID, EUID, GID, EGID int
	Groups               []int
	Env                  []string
	HasStatus            bool
	Caps                 map[string]string // what is not empty
	NoNewPrivs           bool
	Seccomp              int
	Descriptors          []int // above the standard ones
	SessionLeader        bool  // the command leads a session of its own
	StdinNull            bool
	Core                 uint64
	FSize                uint64
	NPROC                uint64
	// Succeeded holds, as "verb target", each attempt that worked, Refused
	// each that did not, with the reason, and Listed what folders showed.
	Succeeded map[string]bool
	Refused   map[string]string
	Listed    map[string][]string
}
