package isolation

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// probeTree is the tree of the self-test. No conversation has this id.
const probeTree = 0

// createName is the file that the probe tries to make in other places.
const createName = ".wp-durable-isolation-probe"

// sharedMemory is where files are memory for all programs.
const sharedMemory = "/dev/shm"

// lowPID is above what processes of a fresh namespace have.
const lowPID = 100

// probePatience bounds one command of the self-test on a slow machine.
const probePatience = time.Minute

// selfTest tries every promise of the level for real: with a probe that runs
// as a command does, and with the file operations that tools use. What it made
// is gone when it returns.
func (h *host) selfTest(ctx context.Context, problems []string) []Check {
	t := &selfTest{
		host: h, problems: problems,
		env: &environment{host: h, tree: h.tree(probeTree), conversation: probeTree},
		dir: filepath.Join(h.data, probeName),
	}
	defer t.cleanUp()
	if t.folders(); !t.passed() {
		return t.checks // nothing else can be tried
	}
	if err := t.setUp(ctx); err != nil {
		t.fail("set up", err.Error())
		return t.checks
	}
	if t.shell(ctx); !t.passed() {
		return t.checks
	}
	if t.probe(ctx); t.result != nil {
		t.judge()
	}
	t.leftovers()
	t.operations(ctx)
	return t.checks
}

type selfTest struct {
	host     *host
	problems []string
	env      *environment
	dir      string // the probe's own folder in the data folder

	private  string // a file for the server alone
	other    string // another conversation's folder
	setuid   string // a set-user-id program, empty for none
	daemon   string // the file that a left-over process locks
	sockets  []string
	abstract string // a socket without a file
	tcp      string
	closers  []func()

	request helper.ProbeRequest
	result  *helper.ProbeResult
	checks  []Check
}

func (t *selfTest) pass(name, detail string) { t.checks = append(t.checks, Check{name, true, detail}) }
func (t *selfTest) fail(name, detail string) { t.checks = append(t.checks, Check{name, false, detail}) }

// expect adds a check that holds when nothing is wrong.
func (t *selfTest) expect(name, promise string, wrong []string) {
	if len(wrong) > 0 {
		t.fail(name, strings.Join(wrong, "; "))
		return
	}
	t.pass(name, promise)
}

func (t *selfTest) passed() bool {
	for _, c := range t.checks {
		if !c.OK {
			return false
		}
	}
	return true
}

// folders looks at modes, owners and the way to the work folders.
func (t *selfTest) folders() {
	h := t.host
	wrong := append([]string{}, t.problems...)
	mode := func(path string, allowed fs.FileMode) {
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			wrong = append(wrong, err.Error())
		case info.Mode().Perm()&^allowed != 0:
			wrong = append(wrong, fmt.Sprintf("%s has mode %04o, more than %04o: its file system may not keep modes", path, info.Mode().Perm(), allowed))
		}
	}
	through, list := fs.FileMode(0o700), fs.FileMode(0o700)
	if h.pool != nil {
		through, list = 0o711, 0o755
	}
	mode(h.data, through)
	mode(h.work, list)
	entries, err := os.ReadDir(h.data)
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	for _, e := range entries {
		switch {
		case e.Name() == workName:
		case e.IsDir():
			mode(filepath.Join(h.data, e.Name()), 0o700)
		case e.Type().IsRegular():
			mode(filepath.Join(h.data, e.Name()), 0o600)
		}
	}
	for _, path := range h.opts.Private {
		mode(path, 0o600)
	}
	if a, err := h.agentOf(probeTree); err != nil {
		wrong = append(wrong, err.Error())
	} else if dir := h.blocked(a); dir != "" {
		wrong = append(wrong, fmt.Sprintf("user %d cannot enter %s, which the data folder is in: set WP_DURABLE_DATA_DIR to a folder such as /var/lib/wp-durable, or chmod o+x %s", a.uid, dir, dir))
	}
	t.expect("folders", "the data folder is the server's alone, work folders are the agents'", wrong)
}

// setUp makes what the probe must not reach.
func (t *selfTest) setUp(ctx context.Context) error {
	h := t.host
	if err := os.RemoveAll(t.dir); err != nil {
		return err
	}
	if err := os.Mkdir(t.dir, 0o711); err != nil {
		return err
	}
	t.private = filepath.Join(t.dir, "private")
	if err := os.WriteFile(t.private, []byte("for the server alone"), 0o600); err != nil {
		return err
	}
	if _, _, err := h.open(t.env.tree); err != nil {
		return err
	}
	if err := t.setUpOther(); err != nil {
		return err
	}
	if err := t.setUpSockets(ctx); err != nil {
		return err
	}
	t.daemon = filepath.Join(t.env.tree.path, "left-over")
	if h.pool == nil {
		return nil
	}
	program, err := os.ReadFile("/usr/bin/id")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	t.setuid = filepath.Join(t.env.tree.path, "id")
	return t.plant(t.setuid, program, 0o755|fs.ModeSetuid)
}

// plant makes a file of root in the agent's folder. The agent makes it and root
// takes it over, since root may not be able to enter that folder.
func (t *selfTest) plant(path string, content []byte, mode fs.FileMode) error {
	_, a, err := t.host.open(t.env.tree)
	if err != nil {
		return err
	}
	var f *os.File
	err = a.do(func() (err error) {
		f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Chown(0, 0), f.Chmod(mode), f.Close())
}

// setUpOther makes another conversation's folder: of another user where trees
// have their own.
func (t *selfTest) setUpOther() error {
	h := t.host
	t.other = filepath.Join(t.dir, "other")
	mode := fs.FileMode(0o700)
	if h.weak("modes") {
		mode = 0o755
	}
	if err := os.Mkdir(t.other, mode); err != nil {
		return err
	}
	note := filepath.Join(t.other, "note")
	if err := os.WriteFile(note, []byte("another conversation's"), 0o644); err != nil {
		return err
	}
	if h.pool == nil {
		return nil
	}
	uid := h.pool.ids.last
	return errors.Join(os.Lchown(note, uid, uid), os.Lchown(t.other, uid, uid))
}

func (t *selfTest) setUpSockets(ctx context.Context) error {
	var config net.ListenConfig
	listen := func(network, addr string) (net.Listener, error) {
		l, err := config.Listen(ctx, network, addr)
		if err == nil {
			t.closers = append(t.closers, func() { _ = l.Close() })
		}
		return l, err
	}
	// Paths of sockets are short; the folder's own name need not be.
	dir, err := os.Open(t.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	short := func(name string) string { return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name) }
	if _, err := listen("unix", short("stream")); err != nil {
		return err
	}
	datagram, err := config.ListenPacket(ctx, "unixgram", short("datagram"))
	if err != nil {
		return err
	}
	t.closers = append(t.closers, func() { _ = datagram.Close() })
	for _, name := range []string{"stream", "datagram"} {
		if err := os.Chmod(filepath.Join(t.dir, name), 0o600); err != nil {
			return err
		}
	}
	t.sockets = []string{"unix:" + filepath.Join(t.dir, "stream"), "unixgram:" + filepath.Join(t.dir, "datagram")}
	name := "wp-durable-probe-" + rand.Text()
	if _, err := listen("unix", "@"+name); err != nil {
		return err
	}
	t.abstract = "abstract:" + name
	if l, err := listen("tcp", "127.0.0.1:0"); err == nil {
		t.tcp = "tcp:" + l.Addr().String()
	}
	return nil
}

func (t *selfTest) cleanUp() {
	for _, c := range t.closers {
		c()
	}
	h := t.host
	for _, path := range t.request.Create {
		_ = os.Remove(path)
	}
	if h.pool != nil && t.other != "" {
		_ = os.Lchown(t.other, 0, 0) // root may not be able to enter what is others'
	}
	if err := os.RemoveAll(t.dir); err != nil {
		h.opts.Logger.Error("self-test leaves its folder", "error", err)
	}
	if err := h.remove(context.Background(), probeTree); err != nil {
		h.opts.Logger.Error("self-test leaves its work folder", "error", err)
	}
	h.mu.Lock()
	delete(h.trees, probeTree)
	h.mu.Unlock()
}

// shell starts a command as a tool would.
func (t *selfTest) shell(ctx context.Context) {
	const code = 7
	res, err := t.env.Exec(ctx, env.ExecRequest{Command: fmt.Sprintf("exit %d", code), Timeout: probePatience})
	switch {
	case err != nil:
		t.fail("commands", "a command does not start: "+reasonOf(err))
	case res.ExitCode != code:
		t.fail("commands", fmt.Sprintf("a command that exits with %d ended with %d %s", code, res.ExitCode, res.Signal))
	default:
		t.pass("commands", t.host.shell+" runs")
	}
}

// reasonOf is an environment's error with its cause, for people.
func reasonOf(err error) string {
	var e *env.Error
	if errors.As(err, &e) && e.Err != nil {
		return fmt.Sprintf("%v (%v)", err, e.Err)
	}
	return err.Error()
}

// probe runs the probe through the same path as every command.
func (t *selfTest) probe(ctx context.Context) {
	h := t.host
	t.request = t.probeRequest()
	arg, err := json.Marshal(t.request)
	if err != nil {
		t.fail("probe", err.Error())
		return
	}
	plan, err := t.env.plan([]string{selfExe, helper.RoleProbe, string(arg)}, t.env.tree.path)
	if err != nil {
		t.fail("probe", err.Error())
		return
	}
	if plan.Landlock != nil {
		plan.Landlock.ReadOnly = append(plan.Landlock.ReadOnly, selfExe)
	}
	var out, errOut strings.Builder
	res, err := t.env.run(ctx, env.ExecRequest{
		Timeout: probePatience,
		Output: func(s env.Stream, text string, _, _ int64) {
			if s == env.Stdout {
				out.WriteString(text)
			} else {
				errOut.WriteString(text)
			}
		},
	}, plan)
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d %s: %s", res.ExitCode, res.Signal, strings.TrimSpace(errOut.String()))
	}
	var r helper.ProbeResult
	if err == nil {
		err = json.Unmarshal([]byte(out.String()), &r)
	}
	if err != nil {
		detail := "the probe did not run: " + reasonOf(err)
		if info, err := os.Stat(selfExe); err == nil && h.pool != nil && info.Mode()&0o005 != 0o005 {
			detail += "; agents must be able to run the server's program: chmod 0755 it"
		}
		t.fail("probe", detail)
		return
	}
	t.result = &r
}

func (t *selfTest) probeRequest() helper.ProbeRequest {
	h := t.host
	r := helper.ProbeRequest{
		Read:    append([]string{t.private}, h.opts.Private...),
		Write:   []string{t.private, "/etc/passwd", "/etc/ld.so.cache"},
		Create:  []string{"/etc/" + createName, "/usr/" + createName, filepath.Join(h.data, createName), filepath.Join(h.work, createName)},
		List:    []string{h.data, "/proc"},
		Mode:    []string{t.private, t.other, filepath.Join(t.other, "note")},
		Own:     filepath.Join(t.env.tree.path, "own"),
		Connect: append([]string{t.abstract}, t.sockets...),
		SetUID:  t.setuid,
		Calls:   true,
		Limits:  &helper.ProbeLimits{FSize: h.opts.FSize, NPROC: h.opts.NPROC},
		Daemon:  t.daemon,
	}
	if folderExists(sharedMemory) && (h.abi > 0 || h.level == Bwrap) {
		r.Create = append(r.Create, filepath.Join(sharedMemory, createName))
	}
	if entries, err := os.ReadDir(h.data); err == nil {
		for _, e := range entries {
			if e.Type().IsRegular() {
				r.Read = append(r.Read, filepath.Join(h.data, e.Name()))
			}
		}
	}
	if home, err := os.UserHomeDir(); err == nil && h.pool == nil && home != "/" {
		r.List = append(r.List, home)
		r.Create = append(r.Create, filepath.Join(home, createName))
	}
	r.Read = append(r.Read, filepath.Join(t.other, "note"))
	r.List = append(r.List, t.other)
	if t.tcp != "" && !h.network {
		r.Connect = append(r.Connect, t.tcp)
	}
	for _, pid := range ancestors() {
		// In a namespace of its own the probe has a low number itself.
		if h.level != Bwrap || pid > lowPID {
			r.Environ = append(r.Environ, pid)
		}
	}
	if len(r.Environ) > 0 {
		r.Signal, r.Limit = r.Environ[:1], r.Environ[:1]
	}
	return r
}

// ancestors are this process, its parent, and so on, as far as can be seen.
func ancestors() []int {
	var pids []int
	for pid := os.Getpid(); pid > 0; {
		pids = append(pids, pid)
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			break
		}
		pid = 0
		for line := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(line, "PPid:"); ok {
				pid, _ = strconv.Atoi(strings.TrimSpace(v))
			}
		}
	}
	return pids
}

// leftovers looks whether the process that the probe left behind is gone.
func (t *selfTest) leftovers() {
	const name, promise = "left-over processes", "a session of its own that ignores signals and shuts its /proc ended with its command"
	if t.result == nil {
		return
	}
	if !t.result.Succeeded["daemon "+t.daemon] {
		t.fail(name, "could not be tried: "+t.result.Refused["daemon "+t.daemon])
		return
	}
	_, a, err := t.host.open(t.env.tree)
	if err == nil {
		err = a.do(func() error {
			f, err := os.Open(t.daemon)
			if err != nil {
				return err
			}
			defer f.Close()
			return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		})
	}
	if err != nil {
		t.fail(name, "a process outlived its command: "+err.Error())
		return
	}
	t.pass(name, promise)
}
