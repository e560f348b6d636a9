package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// host is the machine as a manager uses it.
type host struct {
	opts    Options
	level   Level
	network bool
	shell   string
	bwrap   bubblewrap
	install bool // bubblewrap is not there

	data, work, spill string

	filters bool // the kernel takes system call filters
	brokers bool // and lets a supervisor make calls for a command
	abi     int  // of Landlock

	exe   *os.File // this program, for bubblewrap to run
	lock  *os.File // the server's lock on the data folder
	calls *os.File // held by each call's helper too
	pool  *pool    // nil but at the level root
	slots chan struct{}

	closing context.Context
	stop    context.CancelFunc

	mu     sync.Mutex
	trees  map[int64]*tree // guarded by mu
	closed bool            // guarded by mu
	active sync.WaitGroup  // calls; added to under mu while not closed
}

// runDir is where the lock on user ids is: one place for all servers of a
// machine or container, which agents cannot write.
const runDir = "/run"

func open(ctx context.Context, o Options) (*Manager, error) {
	if !helper.Hooked() {
		return nil, ErrNotHooked
	}
	data, err := dataDir(o.DataDir)
	if err != nil {
		return nil, err
	}
	h := &host{
		opts: o, data: data, work: filepath.Join(data, workName), spill: filepath.Join(data, spillName),
		slots: make(chan struct{}, o.ConcurrentCommands), trees: map[int64]*tree{}, shell: findShell(),
	}
	h.look()
	h.closing, h.stop = context.WithCancel(context.Background())
	var tried []Attempt
	h.level, tried = h.detect(ctx)
	if h.level == None {
		h.stop()
		return &Manager{status: Status{Level: None, State: Off, Reason: advice(tried, h.install), Tried: tried}}, nil
	}
	h.network = h.level == Root && o.Network != NetworkOff || h.level == Bwrap && o.Network == NetworkOn
	status := Status{Level: h.level, State: OK, Network: h.network, Tried: tried}
	problems, err := h.prepare(ctx)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("isolation: %w", err), h.close())
	}
	status.Notes = h.notes()
	status.Checks = h.selfTest(ctx, problems)
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("isolation: %w", context.Cause(ctx)), h.close())
	}
	for _, c := range status.Checks {
		if !c.OK && status.State == OK {
			status.State, status.Reason = Failed, fmt.Sprintf("self-test of %s failed: %s: %s", h.level, c.Name, c.Detail)
		}
	}
	if status.State != OK {
		return &Manager{status: status}, h.close()
	}
	return &Manager{status: status, host: h}, nil
}

// look asks the kernel what it has.
func (h *host) look() {
	if h.weak("old kernel") {
		return
	}
	h.filters, h.abi = helper.SeccompWorks(), helper.LandlockABI()
	h.brokers = h.filters && h.abi > 0 && helper.BrokerWorks()
}

// shared tells whether trees have one agent user together.
func (h *host) shared() bool { return h.pool != nil && h.pool.ids.single() }

// prepare puts the data folder in order and ends what an earlier server left.
// It returns what is wrong with the work folders.
func (h *host) prepare(ctx context.Context) (problems []string, err error) {
	if err := h.claim(ctx); err != nil {
		return nil, err
	}
	if h.exe, err = os.Open(h.opts.helper); err != nil {
		return nil, fmt.Errorf("open program: %w", err)
	}
	if h.level == Root {
		ids, err := parseRange(h.opts.AgentUIDs)
		if err != nil {
			return nil, err
		}
		if h.pool, err = newPool(ids, &h.opts, runDir, filepath.Join(h.data, ownName)); err != nil {
			return nil, err
		}
		h.pool.spare = h.weak("sweep")
		h.pool.abandoned = h.abandoned
		if err := h.pool.sweep(ids); err != nil {
			return nil, err
		}
	}
	if err := h.setModes(); err != nil {
		return nil, err
	}
	if h.level == Bwrap {
		if err := h.writeAccounts(); err != nil {
			return nil, err
		}
	}
	if problems, err = h.adopt(); err != nil {
		return nil, fmt.Errorf("work folders: %w", err)
	}
	return problems, h.rescueSpills(ctx)
}

func findShell() string {
	for _, name := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return name
		}
	}
	return "/bin/sh"
}

// weak tells whether a test took a protection away.
func (h *host) weak(name string) bool { return slices.Contains(h.opts.weaken, name) }

func (h *host) env(tree, conversation int64) (env.Environment, error) {
	if err := h.running(); err != nil {
		return nil, err
	}
	return &environment{host: h, tree: h.tree(tree), conversation: conversation}, nil
}

func (h *host) running() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return ErrClosed
	}
	return nil
}

// begin counts a call that close waits for.
func (h *host) begin() (done func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	h.active.Add(1)
	return h.active.Done, nil
}

func (h *host) close() error {
	h.mu.Lock()
	first := !h.closed
	h.closed = true
	h.mu.Unlock()
	h.stop()
	h.active.Wait()
	if !first {
		return nil
	}
	var errs []error
	h.mu.Lock()
	for _, t := range h.trees {
		t.mu.Lock()
		if t.files != nil {
			errs = append(errs, t.files.Close())
			t.files = nil
		}
		t.mu.Unlock()
	}
	h.mu.Unlock()
	if h.pool != nil {
		errs = append(errs, h.pool.close())
	}
	for _, f := range []*os.File{h.exe, h.calls, h.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
