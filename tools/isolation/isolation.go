package isolation

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// Main turns the process into a helper when it was started as one, and never
// returns then. Every program that opens a [Manager], tests included, must call
// it before anything else in main.
func Main() { helper.Main() }

// Level is a way to keep commands apart.
type Level string

// The levels, from the strongest. None is the absence of one.
const (
	Root     Level = "root"     // the server is root, commands run as agent users
	Bwrap    Level = "bwrap"    // bubblewrap, for an ordinary user
	Landlock Level = "landlock" // Landlock and a system call filter, for an ordinary user
	None     Level = "none"
)

// State says whether commands may run.
type State string

// The states. Off means that no level works here, Failed that one was found but
// does not keep a promise.
const (
	OK     State = "ok"
	Failed State = "failed"
	Off    State = "off"
)

// Network says whether commands reach the network.
type Network string

// The choices. Default is on at the level root, where the container around the
// server bounds it, and off elsewhere.
const (
	NetworkDefault Network = ""
	NetworkOn      Network = "on"
	NetworkOff     Network = "off"
)

// The defaults of [Options].
const (
	DefaultAgentUIDs          = "61337"
	DefaultNPROC              = 256
	DefaultFSize              = 2 << 30
	DefaultConcurrentCommands = 16
)

// Options say how a [Manager] works. Every zero field but DataDir has a
// default.
type Options struct {
	// DataDir is the server's data folder; work folders are in its folder
	// work. It is made when it is not there. Everything else in it is for the
	// server alone: Open takes others' rights from the files that are there,
	// and those made later must be made with mode 0600, so open a database
	// before, or start with a umask of 077.
	DataDir string
	// Level forces a level instead of taking the strongest that works.
	Level Level
	// AgentUIDs is the user id that commands run as at the level root, or a
	// range "first-last" with one for each tree. Default: DefaultAgentUIDs.
	//
	// With a single one, Landlock and the system call filter keep commands of
	// one tree from reading, writing and changing the files of another, but
	// not from looking up names, sizes and times of files whose paths they
	// guess, nor, below Landlock ABI 9, from connecting to sockets there. A
	// range separates trees in all of that (S6.2). It is needed for
	// conversations that must know nothing of each other.
	AgentUIDs string
	// NPROC bounds the processes and threads of a user, between MinNPROC and
	// MaxNPROC. At the level landlock
	// it is added to what the user runs. Default: DefaultNPROC.
	NPROC int
	// FSize bounds a file, in bytes. Default: DefaultFSize.
	FSize int64
	// ConcurrentCommands bounds how many commands run at a time, over all
	// trees; more wait. Default: DefaultConcurrentCommands.
	ConcurrentCommands int
	// Network says whether commands reach the network. The level landlock has
	// none whatever is asked.
	Network Network
	// ReadOnly are further folders that commands may read and run programs
	// from, beyond the system's own, at levels that bound reading.
	ReadOnly []string
	// Private are files outside of the data folder that commands must not
	// reach, such as a database. They get mode 0600, and the self-test tries
	// to read them.
	Private []string
	// SecretEnvNames are environment variables that hold secrets. The
	// self-test looks for them where a command could.
	SecretEnvNames []string
	// Logger takes what happens to folders and left-over processes. Default:
	// nothing is logged.
	Logger *slog.Logger

	// weaken names protections to leave out, to show that the self-test
	// notices.
	weaken []string
	// helper is the program to start as helper processes. Default: this one.
	helper string
}

// withDefaults returns a checked copy.
func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.DataDir == "" {
		return c, fmt.Errorf("options: DataDir is empty")
	}
	abs, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("options: DataDir: %w", err)
	}
	c.DataDir = abs
	switch c.Level {
	case "", Root, Bwrap, Landlock, None:
	default:
		return c, fmt.Errorf("options: Level: unknown level %q", c.Level)
	}
	switch c.Network {
	case NetworkDefault, NetworkOn, NetworkOff:
	default:
		return c, fmt.Errorf("options: Network: %q is neither on nor off", c.Network)
	}
	c.helper = cmp.Or(c.helper, "/proc/self/exe") // also after its file was replaced
	c.AgentUIDs = cmp.Or(c.AgentUIDs, DefaultAgentUIDs)
	if err := CheckAgentUIDs(c.AgentUIDs); err != nil {
		return c, fmt.Errorf("options: AgentUIDs: %w", err)
	}
	c.NPROC = cmp.Or(c.NPROC, DefaultNPROC)
	if err := CheckNPROC(c.NPROC); err != nil {
		return c, fmt.Errorf("options: NPROC: %w", err)
	}
	c.FSize = cmp.Or(c.FSize, DefaultFSize)
	if c.FSize < 0 {
		return c, fmt.Errorf("options: FSize: %d is negative", c.FSize)
	}
	c.ConcurrentCommands = cmp.Or(c.ConcurrentCommands, DefaultConcurrentCommands)
	if c.ConcurrentCommands < 0 {
		return c, fmt.Errorf("options: ConcurrentCommands: %d is negative", c.ConcurrentCommands)
	}
	for _, list := range []struct {
		name  string
		paths []string
	}{{"ReadOnly", c.ReadOnly}, {"Private", c.Private}} {
		for _, p := range list.paths {
			if !filepath.IsAbs(p) {
				return c, fmt.Errorf("options: %s: %q is not an absolute path", list.name, p)
			}
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return c, nil
}

// MinNPROC is the least [Options.NPROC]: fewer processes let a shell do nothing.
// MaxNPROC is the most, which is what a kernel can count.
const (
	MinNPROC = 16
	MaxNPROC = 1 << 22
)

// CheckNPROC reports what is wrong with a value of [Options.NPROC], as [Open]
// would.
func CheckNPROC(n int) error {
	if n < MinNPROC || n > MaxNPROC {
		return fmt.Errorf("%d is not between %d and %d", n, MinNPROC, MaxNPROC)
	}
	return nil
}

// Status says what isolates commands here and how well.
type Status struct {
	Level Level
	State State
	// Reason says why State is not OK, and what to do.
	Reason string
	// Network tells whether commands reach the network.
	Network bool
	// Notes say in which respects the level is weaker than others.
	Notes []string
	// Checks are the promises the self-test tried.
	Checks []Check
	// Tried are the levels that were looked at before this one and why they
	// do not work here.
	Tried []Attempt
}

// Check is one promise of the self-test.
type Check struct {
	Name string
	OK   bool
	// Detail says what was tried, and when it failed, what happened.
	Detail string
}

// Attempt is a level that does not work here.
type Attempt struct {
	Level  Level
	Reason string
}

// EnvParams name a work folder and who uses it.
type EnvParams struct {
	// Tree is the id of the conversation at the root of the tree, which owns
	// the work folder.
	Tree int64
	// Conversation is the id that commands see as WP_CONVERSATION_ID. Default:
	// Tree.
	Conversation int64
}

// Manager gives out isolated environments. Its methods may be called
// concurrently.
type Manager struct {
	status Status
	host   *host // nil unless the state is OK
}

// Open finds the strongest level that works here, or takes the forced one, puts
// the data folder in order, ends what an earlier server left running, and tries
// every promise of the level. A level that is missing or breaks a promise is no
// error: [Manager.Status] says so, and [Manager.Env] refuses. Errors are wrong
// options, a data folder or user ids that another server uses, and failing
// disks.
func Open(ctx context.Context, opts *Options) (*Manager, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	return open(ctx, o)
}

// Status returns what Open found.
func (m *Manager) Status() Status { return m.status }

// Env returns the environment of a tree's work folder. The folder is made at
// first use.
func (m *Manager) Env(ctx context.Context, p *EnvParams) (env.Environment, error) {
	if m.status.State != OK {
		return nil, fmt.Errorf("%w: %s", ErrUnavailable, m.status.Reason)
	}
	if p.Tree <= 0 || p.Conversation < 0 {
		return nil, fmt.Errorf("environment of tree %d: no such id", p.Tree)
	}
	return m.host.env(p.Tree, cmp.Or(p.Conversation, p.Tree))
}

// Remove deletes a tree's work folder and frees its user id. It is [ErrBusy]
// while a call uses the folder.
func (m *Manager) Remove(ctx context.Context, tree int64) error {
	if m.status.State != OK {
		return fmt.Errorf("%w: %s", ErrUnavailable, m.status.Reason)
	}
	return m.host.remove(ctx, tree)
}

// Size returns how many bytes and entries a tree's work folder holds, 0 when it
// is not there.
func (m *Manager) Size(ctx context.Context, tree int64) (bytes, entries int64, err error) {
	if m.status.State != OK {
		return 0, 0, fmt.Errorf("%w: %s", ErrUnavailable, m.status.Reason)
	}
	return m.host.size(ctx, tree)
}

// Close ends running commands, waits for them, and frees the locks. It may be
// called more than once.
func (m *Manager) Close() error {
	if m.host == nil {
		return nil
	}
	return m.host.close()
}
