package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// bubblewrap is the program that makes the namespaces.
type bubblewrap struct {
	path string
	// noUserns tells that it can forbid further user namespaces. The system
	// call filter does so too.
	noUserns bool
}

// The user that commands are inside the namespace; outside it is the person.
const insideUID = "61337"

var errNotInstalled = errors.New("bubblewrap is not installed (Debian, Ubuntu, Fedora and Arch call the package bubblewrap)")

// findBwrap finds bubblewrap and tries whether it may make namespaces here.
func findBwrap(ctx context.Context) (bubblewrap, error) {
	const patience = 20 * time.Second
	path, err := exec.LookPath("bwrap")
	if err != nil {
		return bubblewrap{}, errNotInstalled
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var first error
	for _, noUserns := range []bool{true, false} {
		b := bubblewrap{path: path, noUserns: noUserns}
		cmd := exec.CommandContext(ctx, path, append(append(b.namespaces(), systemBinds()...), "--proc", "/proc", "--dev", "/dev", "--", "/bin/true")...)
		cmd.Env = []string{}
		out, err := cmd.CombinedOutput()
		if err == nil {
			return b, nil
		}
		if first == nil {
			first = fmt.Errorf("bubblewrap cannot make its namespaces: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return bubblewrap{}, first
}

// namespaces are the arguments that separate everything but the network.
func (b bubblewrap) namespaces() []string {
	args := []string{
		"--unshare-user", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--uid", insideUID, "--gid", insideUID, "--hostname", "agent",
		"--new-session", "--die-with-parent", "--cap-drop", "ALL", "--clearenv",
	}
	if b.noUserns {
		args = append(args, "--disable-userns")
	}
	return args
}

// systemBinds show the system's folders, those that are links as links.
func systemBinds() []string {
	var args []string
	for _, dir := range systemDirs {
		info, err := os.Lstat(dir)
		switch {
		case err != nil:
		case info.Mode()&os.ModeSymlink != 0:
			if to, err := os.Readlink(dir); err == nil {
				args = append(args, "--symlink", to, dir)
			}
		default:
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	return args
}

// bwrapArgs are bubblewrap's arguments for a plan. The program to run is the
// descriptor exeFD, so it need not be at any path inside.
func (h *host) bwrapArgs(p *helper.Plan, exeFD int) []string {
	args := h.bwrap.namespaces()
	if h.weak("uid") {
		args = append(args, "--uid", "0", "--gid", "0")
	}
	if h.weak("caps") {
		args = append(args, "--cap-add", "ALL")
	}
	if p.Init {
		args = append(args, "--unshare-pid", "--as-pid-1")
	}
	if !h.network && !h.weak("netns") {
		args = append(args, "--unshare-net")
	}
	args = append(args, systemBinds()...)
	for _, f := range present(systemFiles) {
		args = append(args, "--ro-bind-try", f, f)
	}
	if h.network {
		for _, f := range networkFiles {
			args = append(args, "--ro-bind-try", f, f)
		}
	}
	for _, name := range []string{"passwd", "group"} {
		args = append(args, "--ro-bind", filepath.Join(h.data, ownName, name), "/etc/"+name)
	}
	args = append(args, "--proc", "/proc", "--dev", "/dev")
	inTemp := func(path string) bool { return inside(path, "/tmp") }
	if inTemp(h.data) || slices.ContainsFunc(h.opts.ReadOnly, inTemp) {
		// What is bound has to have a place in it.
		args = append(args, "--tmpfs", "/tmp")
	} else {
		// A link, and no mount: what the agent made of that folder is then
		// looked up inside, and never by bubblewrap outside.
		args = append(args, "--symlink", filepath.Join(p.WorkDir, tempDir), "/tmp")
	}
	for _, dir := range h.opts.ReadOnly {
		args = append(args, "--ro-bind-try", dir, dir)
	}
	if h.weak("hide") {
		args = append(args, "--bind", h.data, h.data)
	} else {
		// Whatever was shown above, the data folder was not among it.
		args = append(args, "--tmpfs", h.data)
	}
	args = append(args, "--bind", p.WorkDir, p.WorkDir, "--remount-ro", h.data, "--remount-ro", "/")
	return append(args, "--chdir", "/", "--", "/proc/self/fd/"+strconv.Itoa(exeFD), helper.RoleRun)
}

// writeAccounts makes the account files that commands see instead of the
// system's.
func (h *host) writeAccounts() error {
	for name, text := range map[string]string{
		"passwd": "agent:x:" + insideUID + ":" + insideUID + ":agent:/:/bin/sh\n",
		"group":  "agent:x:" + insideUID + ":\n",
	} {
		if err := os.WriteFile(filepath.Join(h.data, ownName, name), []byte(text), 0o600); err != nil {
			return fmt.Errorf("account files: %w", err)
		}
	}
	return nil
}
