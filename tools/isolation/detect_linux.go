package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// serverImage is what to do when nothing else helps.
const serverImage = "or run the server's container image"

// detect finds the strongest level that can work here, and why stronger ones
// cannot. A server that runs as root uses agent users or nothing: what root
// could do otherwise would be weaker than what was asked for.
func (h *host) detect(ctx context.Context) (Level, []Attempt) {
	candidates := []Level{Bwrap, Landlock}
	if os.Geteuid() == 0 {
		candidates = []Level{Root}
	}
	if h.opts.Level != "" {
		candidates = []Level{h.opts.Level}
	}
	var tried []Attempt
	for _, l := range candidates {
		var err error
		switch l {
		case Root:
			err = h.rootWorks()
		case Bwrap:
			err = h.bwrapWorks(ctx)
		case Landlock:
			err = h.landlockWorks()
		case None:
			err = errors.New("switched off")
		}
		if err == nil {
			return l, tried
		}
		tried = append(tried, Attempt{l, err.Error()})
	}
	return None, tried
}

// rootCaps are what the server needs to become others and end their processes.
var rootCaps = map[string]uint{
	"CAP_SETUID": unix.CAP_SETUID, "CAP_SETGID": unix.CAP_SETGID, "CAP_SETPCAP": unix.CAP_SETPCAP,
	"CAP_KILL": unix.CAP_KILL, "CAP_CHOWN": unix.CAP_CHOWN,
}

func (h *host) rootWorks() error {
	if os.Geteuid() != 0 {
		return errors.New("the server does not run as root")
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	var missing []string
	for name, c := range rootCaps {
		if caps[c/32].Effective&(1<<(c%32)) == 0 {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("root lacks %s; give them to the container, or start the server as an ordinary user", strings.Join(missing, ", "))
	}
	if h.opts.Network == NetworkOff && !h.filters {
		return errNoFilters
	}
	return procShows()
}

// procShows looks whether what outlives its command can be found.
func procShows() error {
	hides, err := helper.ProcHides()
	if err != nil {
		return fmt.Errorf("processes cannot be listed: %w", err)
	}
	if hides {
		return errors.New("/proc hides processes (option hidepid), so that what outlives a command could not be found; mount it without that option")
	}
	return nil
}

var errNoFilters = errors.New("the kernel takes no system call filters")

func (h *host) bwrapWorks(ctx context.Context) (err error) {
	if h.bwrap, err = findBwrap(ctx); err != nil {
		h.install = errors.Is(err, errNotInstalled)
		return err
	}
	if !h.filters {
		return errNoFilters
	}
	if h.opts.Network == NetworkOn && h.abi < helper.ScopeABI {
		return fmt.Errorf("network is on, and only Landlock ABI %d keeps commands from your other programs' sockets then; the kernel has %d",
			helper.ScopeABI, h.abi)
	}
	return nil
}

func (h *host) landlockWorks() error {
	if h.abi < helper.ScopeABI {
		return fmt.Errorf("it takes ABI %d or newer of Landlock, the kernel has %d", helper.ScopeABI, h.abi)
	}
	if !h.filters {
		return errNoFilters
	}
	if err := procShows(); err != nil {
		return err
	}
	// Landlock only allows, so nothing inside an allowed folder can be hidden.
	for _, dir := range join(systemDirs, h.opts.ReadOnly) {
		if real, err := filepath.EvalSymlinks(dir); err == nil && inside(h.data, real) {
			return fmt.Errorf("the data folder is inside %s, which commands must read; set WP_DURABLE_DATA_DIR to another", dir)
		}
	}
	return nil
}

// advice says why nothing works and what would; install is whether a program
// that is not there could help.
func advice(tried []Attempt, install bool) string {
	var parts []string
	for _, t := range tried {
		parts = append(parts, fmt.Sprintf("%s: %s", t.Level, t.Reason))
	}
	s := "commands cannot be isolated here (" + strings.Join(parts, "; ") + ")"
	if install {
		return s + "; install bubblewrap, " + serverImage
	}
	return s + "; " + strings.TrimPrefix(serverImage, "or ")
}

// notes says in which respects the level is weaker than the others.
func (h *host) notes() []string {
	var notes []string
	switch h.level {
	case Root:
		if h.shared() {
			note := "all trees share one user id"
			if h.abi > 0 {
				note += ", so attributes of files are not separated: a command can " + h.crossing()
			} else {
				note += " and the kernel has no Landlock, so their files are not separated"
			}
			notes = append(notes, note+"; a range in WP_DURABLE_AGENT_UIDS gives each its own and separates them")
		}
		if h.pool.aside {
			notes = append(notes, runDir+" cannot be written, so another server with the same user ids and another data folder is not noticed")
		}
		if h.abi < helper.ScopeABI {
			notes = append(notes, fmt.Sprintf("the kernel's Landlock (ABI %d) does not keep commands of one user from signalling each other", h.abi))
		}
		if !h.filters {
			notes = append(notes, "the kernel takes no system call filters")
		}
		if h.abi > 0 {
			notes = append(notes, "/tmp and /dev/shm cannot be written, so there are no named semaphores and no shared memory; TMPDIR is in the work folder")
		} else {
			notes = append(notes, "without Landlock /tmp and /dev/shm are shared by all trees")
		}
		if h.shared() && h.abi > 0 {
			notes = append(notes, "programs cannot make terminals; they can with a range in WP_DURABLE_AGENT_UIDS")
		}
	case Landlock:
		notes = append(notes,
			fmt.Sprintf("the process limit is what you run when a command starts, plus %d", h.opts.NPROC),
			"commands have no network",
			"names, sizes and times of files outside the work folder can be looked up by those who guess their paths",
			"there is no /tmp, /dev/shm or shared memory; TMPDIR is in the work folder",
		)
	}
	return notes
}
