package isolation

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// need checks what a level needs of the machine.
func need(t *testing.T, l Level) {
	t.Helper()
	switch l {
	case Root:
		isolationtest.Need(t, os.Geteuid() == 0, "root")
	case Bwrap:
		_, err := exec.LookPath("bwrap")
		isolationtest.Need(t, err == nil, "bubblewrap")
	case Landlock:
		isolationtest.Need(t, helper.LandlockABI() >= helper.ScopeABI, "Landlock ABI 6")
	}
}

// atLevel runs a test at a level: as it is at the level root, and else, when
// the tests run as root, in a process of an ordinary user of its own.
func atLevel(t *testing.T, l Level, test func(t *testing.T)) {
	t.Helper()
	need(t, l)
	if l == Root || os.Geteuid() != 0 {
		test(t)
		return
	}
	uid := isolationtest.Reserve(t, 1)
	asProcess(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}, nil)
}

// inProcess runs a test at a level in a process of its own, also as root: it
// may change what a process has once.
func inProcess(t *testing.T, l Level, test func(t *testing.T)) {
	t.Helper()
	need(t, l)
	if isChild() {
		test(t)
		return
	}
	attr := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		attr.Credential = &syscall.Credential{}
		if l != Root {
			uid := uint32(isolationtest.Reserve(t, 1))
			attr.Credential = &syscall.Credential{Uid: uid, Gid: uid}
		}
	}
	asProcess(t, attr, nil)
}

// eachLevel runs a test at every level.
func eachLevel(t *testing.T, test func(t *testing.T, l Level)) {
	t.Helper()
	for _, l := range []Level{Root, Bwrap, Landlock} {
		t.Run(string(l), func(t *testing.T) {
			t.Parallel()
			atLevel(t, l, func(t *testing.T) { test(t, l) })
		})
	}
}

// childEnv marks a process of a test of its own.
const childEnv = "WP_TEST_CHILD"

func isChild() bool { return os.Getenv(childEnv) != "" }

// asProcess runs this test alone in another process, with arguments of prefix
// before its program.
func asProcess(t *testing.T, attr *syscall.SysProcAttr, prefix []string) {
	t.Helper()
	program := os.Getenv(programEnv)
	var pattern []string
	for part := range strings.SplitSeq(t.Name(), "/") {
		pattern = append(pattern, "^"+part+"$")
	}
	dir, err := os.MkdirTemp("", "wp-durable-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	if attr.Credential != nil {
		require.NoError(t, os.Chown(dir, int(attr.Credential.Uid), int(attr.Credential.Gid)))
	}
	args := append(append([]string{}, prefix...), program,
		"-test.run="+strings.Join(pattern, "/"), "-test.v", "-test.count=1", "-test.timeout=9m")
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + dir, "TMPDIR=" + dir, "CI=" + os.Getenv("CI"), "WP_TEST_SECRET=value of a secret", childEnv + "=1",
		programEnv + "=" + program, helperEnv + "=" + os.Getenv(helperEnv)}
	cmd.Dir, cmd.SysProcAttr = dir, attr
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil || testing.Verbose() {
		var kept strings.Builder
		for line := range strings.Lines(string(out)) {
			if !strings.HasPrefix(strings.TrimSpace(line), "=== ") {
				kept.WriteString(line)
			}
		}
		t.Logf("in a process of its own:\n%s", kept.String())
	}
	require.NoError(t, err)
	skipped := bytes.Contains(out, []byte("--- SKIP: "+t.Name()))
	isolationtest.Need(t, !skipped, "what it needs in a process of its own")
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

// manager opens a manager whose self-test must pass.
func manager(t *testing.T, o *Options) *Manager {
	t.Helper()
	m := openAny(t, o)
	require.Equal(t, OK, m.Status().State, m.Status().Reason)
	return m
}

// openAny opens a manager.
func openAny(t *testing.T, o *Options) *Manager {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = isolationtest.DataDir(t)
	}
	if o.AgentUIDs == "" && os.Geteuid() == 0 {
		o.AgentUIDs = isolationtest.UIDs(t, 1)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	if o.NPROC == 0 {
		o.NPROC = 64 // the self-test starts as many
	}
	o.helper = os.Getenv(helperEnv)
	m, err := Open(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func environmentOf(t *testing.T, m *Manager, tree int64) env.Environment {
	t.Helper()
	e, err := m.Env(t.Context(), &EnvParams{Tree: tree})
	require.NoError(t, err)
	return e
}

// outcome is how a command ended and what it printed.
type outcome struct {
	env.ExecResult
	text string
	err  error
}

func execute(ctx context.Context, e env.Environment, command string) outcome {
	var o outcome
	var text strings.Builder
	o.ExecResult, o.err = e.Exec(ctx, env.ExecRequest{
		Command: command, Timeout: time.Minute,
		Output: func(_ env.Stream, s string, _, _ int64) { text.WriteString(s) },
	})
	o.text = text.String()
	return o
}

// shell runs a command that must succeed and returns what it printed.
func shell(t *testing.T, e env.Environment, command string) string {
	t.Helper()
	o := execute(t.Context(), e, command)
	require.NoError(t, o.err)
	require.Zero(t, o.ExitCode, "%s: %s", command, o.text)
	return o.text
}

func content(ctx context.Context, e env.Environment, path string) (string, error) {
	r, err := e.Open(ctx, path)
	if err != nil {
		return "", err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return string(b), err
}

func requireCode(t *testing.T, err error, codes ...env.Code) {
	t.Helper()
	var e *env.Error
	require.ErrorAs(t, err, &e)
	require.Contains(t, codes, e.Code, "%v", err)
}

// failed returns the names of the checks that did not hold.
func failed(m *Manager) []string {
	var names []string
	for _, c := range m.Status().Checks {
		if !c.OK {
			names = append(names, c.Name)
		}
	}
	return names
}
