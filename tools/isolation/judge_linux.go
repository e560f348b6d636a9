package isolation

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// judge makes checks of what the probe could do.
func (t *selfTest) judge() {
	t.identity()
	t.environment()
	t.privileges()
	t.limits()
	t.start()
	t.files()
	t.conversations()
	t.processes()
	t.reach()
	t.calls()
}

func (t *selfTest) identity() {
	h, r := t.host, t.result
	uid := os.Getuid()
	switch h.level {
	case Root:
		uid = t.env.uid()
	case Bwrap:
		uid, _ = strconv.Atoi(insideUID)
	}
	var wrong []string
	if r.UID != uid || r.EUID != uid {
		wrong = append(wrong, fmt.Sprintf("commands run as user %d/%d instead of %d", r.UID, r.EUID, uid))
	}
	if h.level == Root {
		if r.GID != uid || r.EGID != uid {
			wrong = append(wrong, fmt.Sprintf("commands run as group %d/%d instead of %d", r.GID, r.EGID, uid))
		}
		if len(r.Groups) > 0 {
			wrong = append(wrong, fmt.Sprintf("commands are in the groups %v", r.Groups))
		}
	}
	t.expect("identity", fmt.Sprintf("commands run as user %d", uid), wrong)
}

func (t *selfTest) environment() {
	var wrong []string
	have := map[string]bool{}
	for _, kv := range t.result.Env {
		name, _, _ := strings.Cut(kv, "=")
		have[name] = true
		switch {
		case slices.Contains(t.host.opts.SecretEnvNames, name):
			wrong = append(wrong, name+", a secret, is in the environment")
		case !slices.Contains(allowedEnv, name) && name != "PWD":
			wrong = append(wrong, name+" is in the environment")
		}
	}
	for _, name := range allowedEnv {
		if !have[name] {
			wrong = append(wrong, name+" is missing from the environment")
		}
	}
	t.expect("environment", "only "+strings.Join(allowedEnv, ", "), wrong)
}

func (t *selfTest) privileges() {
	r := t.result
	var wrong []string
	for set, value := range r.Caps {
		if set == "CapBnd" && t.host.level == Landlock {
			continue // an ordinary user's, which no_new_privs makes worthless
		}
		wrong = append(wrong, set+" is "+value)
	}
	t.expect("capabilities", "none, in any of the sets", wrong)
	wrong = nil
	if !r.NoNewPrivs {
		wrong = append(wrong, "no_new_privs is not set")
	}
	if t.setuid != "" && r.Succeeded["setuid "+t.setuid] {
		wrong = append(wrong, "a set-user-id program got its owner's rights")
	}
	t.expect("new privileges", "set-user-id programs give nothing", wrong)
}

func (t *selfTest) limits() {
	h, r := t.host, t.result
	var wrong []string
	if r.Core != 0 {
		wrong = append(wrong, fmt.Sprintf("core files may have %d bytes", r.Core))
	}
	if r.FSize > uint64(h.opts.FSize) {
		wrong = append(wrong, fmt.Sprintf("files may have %d bytes", r.FSize))
	}
	if r.NPROC > uint64(h.opts.NPROC) && h.level != Landlock {
		wrong = append(wrong, fmt.Sprintf("there may be %d processes", r.NPROC))
	}
	for _, what := range []string{"fsize", "nproc"} {
		if r.Succeeded["outgrow "+what] {
			wrong = append(wrong, "the limit of "+what+" did not hold")
		}
	}
	if why, few := r.Refused["start few"]; few {
		wrong = append(wrong, why+": "+h.tooMany())
	}
	t.expect("limits", fmt.Sprintf("files of %d bytes, %d processes, no core files", h.opts.FSize, r.NPROC), wrong)
}

func (t *selfTest) start() {
	r := t.result
	var wrong []string
	if len(r.Descriptors) > 0 {
		wrong = append(wrong, fmt.Sprintf("descriptors %v of the server are open", r.Descriptors))
	}
	if !r.SessionLeader {
		wrong = append(wrong, "commands are in the server's session")
	}
	if !r.StdinNull {
		wrong = append(wrong, "standard input is not the null device")
	}
	t.expect("descriptors", "none inherited, a session of its own, no input", wrong)
}

// worked returns the attempts of a verb that did what they must not.
func (t *selfTest) worked(verb string, targets ...string) []string {
	var wrong []string
	for _, target := range targets {
		key := verb + " " + target
		if t.result.Succeeded[key] {
			wrong = append(wrong, "a command could "+key)
		} else if _, tried := t.result.Refused[key]; !tried {
			wrong = append(wrong, key+" was not tried")
		}
	}
	return wrong
}

// listed returns what a folder showed beyond the way to what commands may
// reach, which a namespace has to make.
func (t *selfTest) listed(dir string) []string {
	var wrong []string
	shown := append([]string{t.env.tree.path}, t.host.opts.ReadOnly...)
	for _, name := range t.result.Listed[dir] {
		if name == createName {
			continue // its own
		}
		onTheWay := func(path string) bool { return inside(path, filepath.Join(dir, name)) }
		if t.host.level != Bwrap || !slices.ContainsFunc(shown, onTheWay) {
			wrong = append(wrong, fmt.Sprintf("a command could list %s: %s", dir, name))
			break
		}
	}
	return wrong
}

func (t *selfTest) files() {
	h, q := t.host, t.request
	note := filepath.Join(t.other, "note")
	var wrong []string
	for _, path := range q.Read {
		if path != note {
			wrong = append(wrong, t.worked("read", path)...)
		}
	}
	if !t.result.Succeeded["own "+q.Own] {
		wrong = append(wrong, "a command cannot handle its own file: "+t.result.Refused["own "+q.Own])
	}
	wrong = append(wrong, t.worked("write", q.Write...)...)
	for _, path := range q.Create {
		// In a namespace a folder of that name may be another.
		if _, err := os.Lstat(path); err == nil || h.level != Bwrap {
			wrong = append(wrong, t.worked("create", path)...)
		}
	}
	wrong = append(wrong, t.worked("mode", t.private)...)
	for _, dir := range q.List {
		if dir != "/proc" && dir != t.other {
			wrong = append(wrong, t.listed(dir)...)
		}
	}
	promise := "the data folder cannot be listed, read or written, nor the system written"
	if h.pool == nil {
		promise += ", nor the home folder reached"
	}
	t.expect("files", promise, wrong)
}

func (t *selfTest) conversations() {
	h, note := t.host, filepath.Join(t.other, "note")
	if h.shared() && h.abi == 0 {
		t.pass("conversations", "not separated: one user id for all trees, and no Landlock")
		return
	}
	wrong := append(t.worked("read", note), t.listed(t.other)...)
	promise := "another conversation's files cannot be reached"
	if !h.shared() || h.brokers {
		wrong = append(wrong, t.worked("mode", t.other, note)...)
	}
	if h.shared() {
		promise = "another conversation's files cannot be read or written; not separated: attributes. A command can " + h.crossing()
	}
	t.expect("conversations", promise, wrong)
}

// crossing is what a command can do in another conversation's folder, whose
// paths it has to guess, where both have one user and Landlock parts them.
func (h *host) crossing() string {
	can := "look up names, sizes and times of another conversation's files when it guesses their paths"
	if !h.brokers {
		can += ", change their modes and times"
	}
	if h.abi < helper.UnixABI {
		can += ", and connect to sockets there"
	}
	return can
}

func (t *selfTest) processes() {
	h, q, r := t.host, t.request, t.result
	var wrong []string
	each := func(verb string, pids []int) {
		for _, pid := range pids {
			wrong = append(wrong, t.worked(verb, strconv.Itoa(pid))...)
		}
	}
	each("signal", q.Signal)
	each("limit", q.Limit)
	t.expect("processes", "the server cannot be signalled or limited", wrong)

	wrong = nil
	for _, pid := range q.Environ {
		for _, w := range t.worked("environ", strconv.Itoa(pid)) {
			wrong = append(wrong, w+t.secretsOf(pid))
		}
	}
	if h.pool == nil {
		// Only the namespace's own few processes may be seen, or none.
		const own = 8
		seen := 0
		for _, name := range r.Listed["/proc"] {
			if _, err := strconv.Atoi(name); err == nil {
				seen++
			}
		}
		if h.level == Landlock && r.Succeeded["list /proc"] || seen > own {
			wrong = append(wrong, fmt.Sprintf("a command sees %d processes", seen))
		}
	}
	t.expect("environments", "those of the server and the processes that started it cannot be read", wrong)
}

// secretsOf names the secrets that a readable environment gives away.
func (t *selfTest) secretsOf(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	var names []string
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if name, _, _ := strings.Cut(kv, "="); slices.Contains(t.host.opts.SecretEnvNames, name) {
			names = append(names, name)
		}
	}
	if names == nil {
		return ""
	}
	return ", with " + strings.Join(names, ", ") + ": set them for the server alone, not for the shell that starts it"
}

func (t *selfTest) reach() {
	h := t.host
	targets := t.sockets
	if !h.network || h.abi >= helper.ScopeABI {
		targets = append(slices.Clone(targets), t.abstract)
	}
	t.expect("sockets", "the sockets of other programs cannot be reached", t.worked("connect", targets...))
	switch {
	case h.network:
		t.pass("network", "commands have network")
	case t.tcp == "":
		t.fail("network", "could not be tried: no loopback address to listen on")
	default:
		t.expect("network", "commands have no network", t.worked("connect", t.tcp))
	}
}

func (t *selfTest) calls() {
	r := t.result
	if !t.host.filters {
		t.pass("system calls", "not bounded: the kernel takes no system call filters")
		return
	}
	wrong := t.worked("call", "userns", "ptrace", "io_uring_setup", "keyctl")
	if t.host.level != Bwrap {
		wrong = append(wrong, t.worked("call", "shmget")...) // there it is the namespace's own
	}
	if !r.Succeeded["call socketpair"] {
		wrong = append(wrong, "socketpair does not work: "+r.Refused["call socketpair"])
	}
	if r.Seccomp != 2 {
		wrong = append(wrong, "no system call filter is set")
	}
	t.expect("system calls", "no user namespaces, tracing, io_uring, keyrings or shared memory", wrong)
}

// operations tries what the server's own file operations must not do: follow a
// link out of the folder, touch what the agent does not own, or make what it
// does not own.
func (t *selfTest) operations(ctx context.Context) {
	h, e := t.host, t.env
	var wrong []string
	refused := func(what string, err error) {
		if err == nil {
			wrong = append(wrong, "the server's file operations "+what)
		}
	}
	open := func(p string) error {
		r, err := e.Open(ctx, p)
		if err == nil {
			_ = r.Close()
		}
		return err
	}
	_, a, err := h.open(e.tree)
	if err != nil {
		t.fail("file operations", err.Error())
		return
	}
	links := map[string]string{"absolute-link": t.private, "relative-link": filepath.Join("../..", probeName, "private")}
	for name, to := range links {
		if err := a.do(func() error { return os.Symlink(to, filepath.Join(e.tree.path, name)) }); err != nil {
			wrong = append(wrong, err.Error())
		}
		refused("follow a link out of the folder", open(name))
	}
	if h.pool != nil {
		const name = "of-root"
		if err := t.plant(filepath.Join(e.tree.path, name), []byte("root's"), 0o600); err != nil {
			wrong = append(wrong, err.Error())
		}
		refused("read a file of root", open(name))
		refused("write a file of root", e.Append(ctx, name, strings.NewReader("x")))
	}
	const made = "made"
	if err := e.Write(ctx, made, strings.NewReader("x"), env.WriteOptions{}); err != nil {
		wrong = append(wrong, "a file cannot be written: "+reasonOf(err))
	}
	if err := a.do(func() error {
		info, err := os.Lstat(filepath.Join(e.tree.path, made))
		if err != nil {
			return err
		}
		if owner := int(info.Sys().(*syscall.Stat_t).Uid); owner != e.uid() {
			return fmt.Errorf("a written file belongs to user %d", owner)
		}
		return nil
	}); err != nil {
		wrong = append(wrong, err.Error())
	}
	if r, err := e.Open(ctx, made); err != nil {
		wrong = append(wrong, "a file cannot be read: "+reasonOf(err))
	} else {
		if b, err := io.ReadAll(r); err != nil || string(b) != "x" {
			wrong = append(wrong, fmt.Sprintf("a file reads as %q, %v", b, err))
		}
		_ = r.Close()
	}
	t.expect("file operations", "they reach the agent's own files and no other", wrong)
}

// uid is the user that the folder's files must belong to.
func (e *environment) uid() int {
	a, err := e.host.agentOf(e.tree.id)
	if err != nil {
		return -1
	}
	return a.uid
}
