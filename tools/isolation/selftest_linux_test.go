package isolation

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// weakenings are, for each level, protections and the check that must fail
// when they are taken away (S6.4). Where two protections cover a promise, both
// go.
var weakenings = map[Level][]struct {
	check string
	parts []string
}{
	Root: {
		{"folders", []string{"modes"}},
		{"identity", []string{"uid", "caps"}},
		{"identity", []string{"groups"}},
		{"environment", []string{"env"}},
		{"capabilities", []string{"caps"}},
		{"new privileges", []string{"nnp", "landlock", "seccomp"}},
		{"limits", []string{"rlimits"}},
		{"descriptors", []string{"fds"}},
		{"descriptors", []string{"session"}},
		{"files", []string{"uid", "caps", "landlock"}},
		{"conversations", []string{"landlock"}},
		{"conversations", []string{"seccomp"}},
		{"processes", []string{"uid", "caps", "landlock", "seccomp"}},
		{"environments", []string{"uid", "caps", "landlock"}},
		{"sockets", []string{"uid", "caps", "landlock"}},
		{"system calls", []string{"seccomp"}},
		{"left-over processes", []string{"kill", "sweep"}},
		{"file operations", []string{"fsuid"}},
	},
	Bwrap: {
		{"folders", []string{"modes"}},
		{"identity", []string{"uid"}},
		{"environment", []string{"env"}},
		{"capabilities", []string{"caps"}},
		{"limits", []string{"rlimits"}},
		{"descriptors", []string{"fds"}},
		{"descriptors", []string{"session"}},
		{"files", []string{"hide"}},
		{"conversations", []string{"hide"}},
		{"processes", []string{"pidns", "seccomp"}},
		{"environments", []string{"pidns"}},
		{"sockets", []string{"hide"}},
		{"network", []string{"netns"}},
		{"system calls", []string{"seccomp"}},
		{"left-over processes", []string{"pidns", "kill"}},
	},
	Landlock: {
		{"folders", []string{"modes"}},
		{"environment", []string{"env"}},
		{"new privileges", []string{"nnp", "landlock", "seccomp"}},
		{"limits", []string{"rlimits"}},
		{"descriptors", []string{"fds"}},
		{"descriptors", []string{"session"}},
		{"files", []string{"landlock"}},
		{"files", []string{"seccomp"}},
		{"conversations", []string{"landlock"}},
		{"processes", []string{"landlock"}},
		{"processes", []string{"seccomp"}},
		{"environments", []string{"landlock"}},
		{"sockets", []string{"seccomp"}},
		{"network", []string{"seccomp"}},
		{"system calls", []string{"seccomp"}},
		{"left-over processes", []string{"kill"}},
	},
}

// S6.4: each check fails when its protection is taken away, and the tools are
// off then.
func TestSelfTest_Weakened(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		if l == Root && !isChild() {
			// With a group to lose.
			asProcess(t, &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: []uint32{4}}}, nil)
			return
		}
		// A descriptor that this program was given, open for whom it starts.
		stray, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Close(stray) })
		t.Run("not", func(t *testing.T) {
			require.Empty(t, failed(manager(t, &Options{Level: l})), "nothing is taken away")
		})
		for _, w := range weakenings[l] {
			t.Run(strings.ReplaceAll(w.check, " ", "-")+"/"+strings.Join(w.parts, "+"), func(t *testing.T) {
				dir := isolationtest.DataDir(t)
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(dir, "server.db"), []byte("rows"), 0o644))
				m := openAny(t, &Options{Level: l, DataDir: dir, weaken: w.parts, SecretEnvNames: []string{"WP_TEST_SECRET"}})
				require.Contains(t, failed(m), w.check, "%+v", m.Status().Checks)
				if w.check == "environments" && l != Bwrap && isChild() {
					require.Contains(t, detail(m, w.check), "with WP_TEST_SECRET: set them for the server alone")
				}
				require.Equal(t, Failed, m.Status().State)
				require.Contains(t, m.Status().Reason, "self-test of "+string(l))
				_, err := m.Env(t.Context(), &EnvParams{Tree: 1})
				require.ErrorIs(t, err, ErrUnavailable)
				require.NoDirExists(t, filepath.Join(dir, workName, "0"))
				require.NoDirExists(t, filepath.Join(dir, probeName))
			})
		}
	})
}

func detail(m *Manager, check string) string {
	for _, c := range m.Status().Checks {
		if c.Name == check {
			return c.Detail
		}
	}
	return ""
}

// S6.2: with a range the modes alone keep conversations apart.
func TestSelfTest_Range(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		m := openAny(t, &Options{AgentUIDs: isolationtest.UIDs(t, 3), weaken: []string{"landlock"}})
		require.NotContains(t, failed(m), "conversations")
		m = openAny(t, &Options{AgentUIDs: isolationtest.UIDs(t, 3), weaken: []string{"landlock", "modes"}})
		require.Contains(t, failed(m), "conversations")
	})
}

// S6.4: what the self-test makes is gone, and every check says what it tried.
func TestSelfTest(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) {
		dir := isolationtest.DataDir(t)
		require.NoError(t, os.MkdirAll(dir, 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "server.db"), []byte("rows"), 0o644))
		outside := filepath.Join(t.TempDir(), "elsewhere.db")
		require.NoError(t, os.WriteFile(outside, []byte("rows"), 0o644))
		m := manager(t, &Options{Level: l, DataDir: dir, Private: []string{outside}, SecretEnvNames: []string{"WP_TEST_SECRET"}})
		s := m.Status()
		require.Equal(t, l, s.Level)
		require.Equal(t, l == Root, s.Network)
		require.GreaterOrEqual(t, len(s.Checks), 15)
		for _, c := range s.Checks {
			require.True(t, c.OK)
			require.NotEmpty(t, c.Detail)
		}
		require.NoDirExists(t, filepath.Join(dir, workName, "0"))
		require.NoDirExists(t, filepath.Join(dir, probeName))
		for path, mode := range map[string]os.FileMode{
			dir: 0o711, filepath.Join(dir, "server.db"): 0o600, outside: 0o600,
			filepath.Join(dir, workName): 0o755, filepath.Join(dir, spillName): 0o700,
		} {
			if l != Root && (path == dir || path == filepath.Join(dir, workName)) {
				mode = 0o700
			}
			info, err := os.Lstat(path)
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), path)
		}
	})
}
