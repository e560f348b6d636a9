package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/envtest"
	"github.com/wp-durable/wp-durable/durable/env/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newEnv(t *testing.T, opts *local.Options) *local.Env {
	t.Helper()
	e, err := local.New(t.TempDir(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// The contract of an environment (E19).
func TestEnv(t *testing.T) {
	t.Parallel()
	for name, shell := range map[string]string{"default shell": "", "sh": "/bin/sh"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envtest.Run(t, func(t *testing.T) *envtest.Harness {
				return &envtest.Harness{
					Env:          newEnv(t, &local.Options{Shell: shell}),
					Merges:       true,
					RawOutput:    true,
					PrivateSpill: true,
				}
			})
		})
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	t.Run("a missing folder is made", func(t *testing.T) {
		t.Parallel()
		e, err := local.New(filepath.Join(base, "a", "b"), nil)
		require.NoError(t, err)
		defer e.Close()
		require.DirExists(t, filepath.Join(base, "a", "b"))
	})
	t.Run("a file is refused", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(base, "file")
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		_, err := local.New(file, nil)
		require.ErrorContains(t, err, "open environment")
	})
	t.Run("a folder and a link to it are one file system", func(t *testing.T) {
		t.Parallel()
		dir := newEnv(t, nil)
		link := filepath.Join(t.TempDir(), "link")
		require.NoError(t, os.Symlink(dir.WorkDir(), link))
		linked, err := local.New(link, nil)
		require.NoError(t, err)
		defer linked.Close()
		require.Equal(t, dir.ID(), linked.ID())
		require.Equal(t, dir.WorkDir(), linked.WorkDir())
		require.NotEqual(t, dir.ID(), newEnv(t, nil).ID())
		require.NoError(t, linked.Write(t.Context(), link+"/f", strings.NewReader("x"), env.WriteOptions{}), "both names are inside")
		_, err = linked.Stat(t.Context(), dir.WorkDir()+"/f")
		require.NoError(t, err)
	})
}

// S5.2: what a command's environment is.
func TestEnv_Exec_Environment(t *testing.T) {
	t.Setenv("WP_TEST_OF_SERVER", "secret")
	run := func(e *local.Env) map[string]string {
		var out strings.Builder
		_, err := e.Exec(t.Context(), env.ExecRequest{Argv: []string{"env"}, Output: func(_ env.Stream, s string, _, _ int64) { out.WriteString(s) }})
		require.NoError(t, err)
		vars := map[string]string{}
		for line := range strings.Lines(out.String()) {
			k, v, _ := strings.Cut(strings.TrimSpace(line), "=")
			vars[k] = v
		}
		return vars
	}
	e := newEnv(t, nil)
	require.Equal(t, map[string]string{
		"HOME": e.WorkDir(), "TMPDIR": e.WorkDir() + "/.tmp", "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
	}, run(e))
	require.DirExists(t, e.WorkDir()+"/.tmp")
	require.Equal(t, map[string]string{"PATH": "/usr/bin:/bin", "A": "b"},
		run(newEnv(t, &local.Options{Env: []string{"PATH=/usr/bin:/bin", "A=b"}})))
}

func TestEnv_Write_Link(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	for _, dir := range []string{"a/b", "c"} {
		require.NoError(t, e.Mkdir(t.Context(), dir))
	}
	// ../real below a link to a folder is beside that folder, not the link
	for name, to := range map[string]string{"link": "a/real", "c/dir": "../a/b", "a/b/up": "../real", "new": "a/made"} {
		require.NoError(t, os.Symlink(to, filepath.Join(e.WorkDir(), name)))
	}
	for p, file := range map[string]string{"link": "a/real", "c/dir/up": "a/real", "new": "a/made"} {
		require.NoError(t, e.Write(t.Context(), p, strings.NewReader(p), env.WriteOptions{}))
		b, err := os.ReadFile(filepath.Join(e.WorkDir(), file))
		require.NoError(t, err)
		require.Equal(t, p, string(b))
		info, err := os.Lstat(filepath.Join(e.WorkDir(), p))
		require.NoError(t, err)
		require.NotZero(t, info.Mode()&os.ModeSymlink, "the link stays")
	}
}

func TestEnv_Errors(t *testing.T) {
	t.Parallel()
	e := newEnv(t, nil)
	require.NoError(t, os.Symlink("/etc", filepath.Join(e.WorkDir(), "etc")))
	for p, message := range map[string]string{
		"none":       "none: no such file or directory",
		"../x":       "../x: is outside the work folder " + e.WorkDir(),
		"etc/passwd": "etc/passwd: leads outside the work folder",
	} {
		_, err := e.Open(t.Context(), p)
		require.EqualError(t, err, message)
		_, err = e.Exec(t.Context(), env.ExecRequest{Command: "true", Dir: p})
		require.EqualError(t, err, message)
	}
	_, err := e.Exec(t.Context(), env.ExecRequest{Argv: []string{"./none"}})
	var failed *env.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, env.SpawnFailed, failed.Code)
	require.NotContains(t, failed.Message, e.WorkDir())
}
