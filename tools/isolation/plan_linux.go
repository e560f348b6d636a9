package isolation

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// What commands may read at the levels that bound reading: the system's
// programs and libraries, and of /etc what these need. Accounts, host keys,
// service configurations and sockets are not among it.
var (
	systemDirs = []string{
		"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
	}
	systemFiles = []string{
		"/etc/alternatives", "/etc/ca-certificates*", "/etc/crypto-policies", "/etc/fonts", "/etc/gitconfig",
		"/etc/java*", "/etc/ld.so.cache", "/etc/ld.so.conf*", "/etc/localtime", "/etc/locale.alias", "/etc/magic",
		"/etc/mime.types", "/etc/nodejs", "/etc/os-release", "/etc/perl", "/etc/pki", "/etc/protocols",
		"/etc/python*", "/etc/services", "/etc/ssl", "/etc/terminfo", "/etc/timezone",
	}
	networkFiles = []string{
		"/etc/gai.conf", "/etc/host.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf",
	}
	// At the level root everything that a system's users may read is there to
	// read but other users' data; modes and owners bound the rest.
	rootDirs = []string{
		"/etc", "/opt", "/proc", "/sys", "/nix", "/snap", "/run/systemd/resolve", "/run/resolvconf",
	}
	rootDevices = []string{"/dev/tty"}
	// Terminals that programs make belong to their user, and end with them. Of
	// shared memory in files a user's would outlive the call and reach other
	// trees, so there is none.
	terminals       = []string{"/dev/pts"}
	terminalDevices = []string{"/dev/ptmx"}
	devices         = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
	// Of /proc a person's commands see the machine and no process.
	machineFiles = []string{
		"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version",
		"/proc/filesystems", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/random", "/proc/sys/vm/overcommit_memory",
		"/sys/devices/system/cpu", "/sys/kernel/mm/transparent_hugepage",
	}
)

// Who commits are by when a command does not say (S6.1).
const (
	gitName  = "agent"
	gitEmail = "agent@wp-durable.invalid"
)

// allowedEnv are the variables that a command gets, and no other.
var allowedEnv = []string{
	"HOME", "TMPDIR", "PATH", "LANG", "WP_CONVERSATION_ID",
	"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
}

func (e *environment) variables() []string {
	work := e.tree.path
	list := []string{
		"HOME=" + work, "TMPDIR=" + filepath.Join(work, tempDir),
		"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
		"WP_CONVERSATION_ID=" + strconv.FormatInt(e.conversation, 10),
		"GIT_AUTHOR_NAME=" + gitName, "GIT_AUTHOR_EMAIL=" + gitEmail,
		"GIT_COMMITTER_NAME=" + gitName, "GIT_COMMITTER_EMAIL=" + gitEmail,
	}
	if e.host.weak("env") {
		list = append(list, "WEAK_SECRET=left in by a test")
	}
	return list
}

// plan says how the level runs argv in dir.
func (e *environment) plan(argv []string, dir string) (*helper.Plan, error) {
	h := e.host
	p := &helper.Plan{
		Argv: argv, Env: e.variables(), WorkDir: e.tree.path, Dir: dir,
		FSize: h.opts.FSize, NPROC: h.opts.NPROC, Weaken: h.opts.weaken,
		Seccomp: &helper.Seccomp{NoSockets: !h.network},
	}
	scope := 0
	switch h.level {
	case Root:
		a, err := h.agentOf(e.tree.id)
		if err != nil {
			return nil, err
		}
		p.Switch, p.UID, p.GID = true, a.uid, a.gid
		p.Landlock = &helper.Landlock{
			FS:        true,
			ReadOnly:  join(systemDirs, rootDirs, h.opts.ReadOnly),
			ReadWrite: []string{e.tree.path},
			Devices:   join(devices, rootDevices),
		}
		p.Seccomp.NoIPC = true
		if !h.shared() {
			p.Landlock.ReadWrite = append(p.Landlock.ReadWrite, present(terminals)...)
			p.Landlock.Devices = append(p.Landlock.Devices, terminalDevices...)
		}
		// Where trees share a user, its rights over files are not enough.
		p.Seccomp.SameUser, p.Seccomp.Broker = h.shared() && h.brokers, h.shared() && h.brokers
		if h.weak("uid") {
			p.Switch = false
		}
		// These two are on top of another user's rights, where they exist.
		if !h.filters {
			p.Seccomp = nil
		}
		if h.abi == 0 {
			p.Landlock = nil
		}
	case Bwrap:
		p.NoBounding, p.Init = true, !h.weak("pidns")
		p.Seccomp.NoSockets = false // the namespace has no network, and no socket to reach
		if h.network {
			scope = helper.ScopeABI // sockets without a file live in the network's namespace
		}
		p.Landlock = &helper.Landlock{MinABI: scope}
	case Landlock:
		p.NPROCAbove = true
		p.Seccomp.NoIPC = true
		p.Seccomp.NoSockets, p.Seccomp.SameUser, p.Seccomp.Broker, p.Seccomp.OpenFiles = true, true, true, true
		p.Landlock = &helper.Landlock{
			FS:        true,
			ReadOnly:  join(systemDirs, present(systemFiles), machineFiles, h.opts.ReadOnly),
			ReadWrite: []string{e.tree.path},
			Devices:   devices,
			MinABI:    helper.ScopeABI,
		}
	}
	return p, nil
}

func join(lists ...[]string) []string {
	var out []string
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// present are the files that match patterns.
func present(patterns []string) []string {
	var out []string
	for _, p := range patterns {
		names, _ := filepath.Glob(p) // the patterns are good
		out = append(out, names...)
	}
	return out
}

// command is the process to start for a plan: a supervisor, and at the level
// bwrap around it bubblewrap.
func (h *host) command(ctx context.Context, p *helper.Plan) *exec.Cmd {
	ctx = context.WithoutCancel(ctx) // process.Run ends it, and all it started
	var cmd *exec.Cmd
	if h.level == Bwrap {
		// Descriptors follow the three that every supervisor gets.
		cmd = exec.CommandContext(ctx, h.bwrap.path, h.bwrapArgs(p, helper.ReportFD+2)...)
		cmd.ExtraFiles = []*os.File{h.exe}
	} else {
		cmd = exec.CommandContext(ctx, h.opts.helper, helper.RoleRun)
		cmd.Args[0] = "wp-durable"
	}
	cmd.Env, cmd.Dir = []string{}, "/"
	return cmd
}
