package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
	"github.com/wp-durable/wp-durable/server"
	"github.com/wp-durable/wp-durable/tools"
	"github.com/wp-durable/wp-durable/tools/isolation"
)

// workplace is where conversations' commands run: the isolation, or in a test
// mode plain folders.
type workplace struct {
	manager *isolation.Manager
	plain   *plainFolders // nil but in the test mode
}

func (h *Host) openWorkplace(ctx context.Context) error {
	c := h.config
	if c.Test.Unisolated {
		h.work.plain = &plainFolders{dir: filepath.Join(h.dataDir, "work"), open: map[int64]*local.Env{}}
		return nil
	}
	l := c.Limits
	m, err := isolation.Open(ctx, &isolation.Options{
		DataDir: h.dataDir, AgentUIDs: c.AgentUIDs, NPROC: int(l.NProc), FSize: l.FSize,
		ConcurrentCommands: int(l.ConcurrentCommands), Private: h.private(), SecretEnvNames: h.opts.SecretNames, Logger: h.log,
	})
	if err != nil {
		return err
	}
	h.work.manager = m
	return nil
}

// private returns the files that commands must not reach and that are not in
// the data folder.
func (h *Host) private() []string {
	if filepath.Dir(h.database) == h.dataDir {
		return nil
	}
	return []string{h.database, h.database + "-wal", h.database + "-shm", h.database + ".lock"}
}

// available reports whether commands can run.
func (w *workplace) available() bool {
	return w.plain != nil || w.manager != nil && w.manager.Status().State == isolation.OK
}

func (w *workplace) env(ctx context.Context, c *durable.Conversation) (env.Environment, error) {
	rec := c.Record()
	switch {
	case w.plain != nil:
		return w.plain.env(int64(rec.TreeID))
	case !w.available():
		return nil, durable.ErrNoEnvironment
	}
	return w.manager.Env(ctx, &isolation.EnvParams{Tree: int64(rec.TreeID), Conversation: int64(rec.ID)})
}

// status is what the server shows of the isolation.
func (w *workplace) status() server.Isolation {
	if w.plain != nil {
		return server.Isolation{State: server.IsolationOff, Reason: "WP_DURABLE_TEST_UNISOLATED: commands run as the server's user, for tests only", Network: true}
	}
	st := w.manager.Status()
	out := server.Isolation{State: string(st.State), Level: string(st.Level), Reason: st.Reason, Network: st.Network, Notes: st.Notes}
	if st.Level == isolation.None {
		out.Level = ""
	}
	for _, a := range st.Tried {
		out.Notes = append(out.Notes, fmt.Sprintf("%s does not work here: %s", a.Level, a.Reason))
	}
	for _, check := range st.Checks {
		out.Checks = append(out.Checks, server.IsolationCheck{Name: check.Name, OK: check.OK, Detail: check.Detail})
	}
	return out
}

func (w *workplace) close() error {
	var errs []error
	if w.manager != nil {
		errs = append(errs, w.manager.Close())
	}
	if w.plain != nil {
		errs = append(errs, w.plain.close())
	}
	return errors.Join(errs...)
}

// extension returns the tools that the workplace can serve, and the prompt
// sections that say so.
func (h *Host) extension() durable.Extension {
	l := h.config.Limits
	o := &tools.Options{
		BashTimeout: time.Duration(l.BashTimeoutMS) * time.Millisecond, BashOutputBytes: int(l.BashOutputBytes), SpillBytes: l.SpillBytes,
		Network: h.work.status().Network, Programs: programs(), EmptyForks: true,
	}
	if !h.work.available() {
		o.Which = []string{}
	}
	return maskTools(tools.Extension(o), h.redact)
}

// programs returns which of the programs that models like to use are where
// commands look for them.
func programs() []string {
	var found []string
	for _, name := range []string{"git", "jq", "curl", "python3", "node", "npm", "go", "gcc", "make"} {
		for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} {
			if _, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				found = append(found, name)
				break
			}
		}
	}
	return found
}

// environment is what the server shows of a conversation's environment. The
// folder itself is made at its first use.
func (h *Host) environment(_ context.Context, c *durable.Conversation) (*server.Environment, error) {
	if !h.work.available() {
		return nil, nil
	}
	tree := strconv.FormatInt(int64(c.Record().TreeID), 10)
	return &server.Environment{Kind: "workdir", Path: filepath.Join(h.dataDir, "work", tree)}, nil
}

// plainFolders are work folders without isolation, for tests.
type plainFolders struct {
	dir string

	mu   sync.Mutex
	open map[int64]*local.Env // guarded by mu
}

func (p *plainFolders) env(tree int64) (env.Environment, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.open[tree]; e != nil {
		return e, nil
	}
	e, err := local.New(filepath.Join(p.dir, strconv.FormatInt(tree, 10)), nil)
	if err != nil {
		return nil, err
	}
	p.open[tree] = e
	return e, nil
}

func (p *plainFolders) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, e := range p.open {
		errs = append(errs, e.Close())
	}
	return errors.Join(errs...)
}

// toolsReason says in one line whether there are tools, for people.
func (h *Host) toolsReason() string {
	st := h.work.status()
	switch {
	case h.work.plain != nil:
		return "on, NOT ISOLATED (" + st.Reason + ")"
	case st.State == server.IsolationOK:
		return "on, isolated by " + st.Level
	}
	return "off: " + strings.TrimSpace(st.Reason)
}
