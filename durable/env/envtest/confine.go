package envtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
)

const secret = "this must never be read"

// outside makes a folder outside the work folder that holds a secret, and
// checks at the end that nothing was changed in it.
func outside(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(secret), 0o644))
	t.Cleanup(func() {
		list, err := os.ReadDir(dir)
		if err != nil || len(list) != 1 {
			t.Errorf("files outside the work folder: %v, %v", list, err)
		}
		if b, err := os.ReadFile(filepath.Join(dir, "f")); err != nil || string(b) != secret {
			t.Errorf("file outside the work folder: %q, %v", b, err)
		}
	})
	return dir
}

// S5.6: outside is refused, by every operation, however it is spelled.
var confineTests = map[string]func(t *testing.T, h *Harness){
	"outside paths": func(t *testing.T, h *Harness) {
		out := outside(t)
		for _, p := range []string{
			"..", "../f", "a/../../f", out, out + "/f", h.Env.WorkDir() + "/../f", h.Env.WorkDir() + "x/f", "/", "/etc/passwd",
		} {
			refused(t, h, p, env.PermissionDenied)
		}
	},

	"links that lead out": func(t *testing.T, h *Harness) {
		out := outside(t)
		run(t, h, "ln -s "+out+" dir && ln -s "+out+"/f file && ln -s ../.. up && ln -s "+out+"/new dangling && mkdir sub && ln -s ../dir sub/chain")
		for _, p := range []string{"dir/f", "dir/new", "dir/new/deep", "file", "up/f", "dangling", "sub/chain/f"} {
			refused(t, h, p, env.PermissionDenied, env.Invalid)
		}
	},

	"links that stay inside": func(t *testing.T, h *Harness) {
		run(t, h, "mkdir -p real/deep && echo -n x > real/deep/f && ln -s real/deep d && ln -s ../d/f real/l")
		requireContent(t, h, "d/f", "x")
		requireContent(t, h, "real/l", "x")
		write(t, h, "d/new", "y")
		requireContent(t, h, "real/deep/new", "y")
	},

	// a link that is swapped while a path is looked up cannot win
	"swapped links": func(t *testing.T, h *Harness) {
		out := outside(t)
		ctx, cancel := context.WithCancel(limited(t))
		swapping := make(chan struct{})
		var once sync.Once
		var swapper sync.WaitGroup
		swapper.Go(func() {
			_, _ = h.Env.Exec(ctx, env.ExecRequest{
				Command: "mkdir real; echo inside > real/f; echo go; while :; do ln -s real d; rm d; ln -s " + out + " d; rm d; mkdir d; echo inside > d/f; rm -r d; done",
				Output:  func(env.Stream, string, int64, int64) { once.Do(func() { close(swapping) }) },
			})
		})
		defer swapper.Wait()
		defer cancel()
		select {
		case <-swapping:
		case <-ctx.Done():
			require.Fail(t, "the swapping command did not start")
		}
		reads, refusals := 0, 0
		for i := 0; i < 20000 && (i < 500 || reads < 20 || refusals < 20); i++ {
			got, err := read(ctx, h.Env, "d/f")
			require.NotContains(t, got, secret)
			if err == nil && got != "" {
				reads++
			} else {
				refusals++
			}
			switch i % 20 {
			case 0:
				_ = h.Env.Write(ctx, "d/f", strings.NewReader("planted"), env.WriteOptions{})
			case 5:
				_ = h.Env.Write(ctx, "d/new", strings.NewReader("planted"), env.WriteOptions{Exclusive: true})
			case 10:
				_ = h.Env.Mkdir(ctx, "d/sub/deep")
				_ = h.Env.Remove(ctx, "d/f")
			case 15:
				if !h.NoAppend {
					_ = h.Env.Append(ctx, "d/f", strings.NewReader("planted"))
				}
				_ = h.Env.Rename(ctx, "real/f", "d/moved")
				_ = h.Env.Rename(ctx, "d/f", "taken")
				_ = h.Env.Write(ctx, "real/f", strings.NewReader("inside"), env.WriteOptions{})
				got, _ := read(ctx, h.Env, "taken")
				require.NotContains(t, got, secret)
			}
		}
		require.Positive(t, reads, "some reads reached the file inside")
		require.Positive(t, refusals, "some reads met the link")
	},
}

// refused asserts that no operation gets at p.
func refused(t *testing.T, h *Harness, p string, codes ...env.Code) {
	t.Helper()
	ctx := t.Context()
	// a link that leads out is NotFound where the environment cannot see what
	// it leads to
	if codes[0] != env.PermissionDenied || len(codes) > 1 {
		codes = append(codes, env.NotFound)
	}
	got, err := read(ctx, h.Env, p)
	requireCode(t, err, append(codes, env.IsDirectory)...)
	require.Empty(t, got)
	_, err = h.Env.Stat(ctx, p)
	requireCode(t, err, codes...)
	_, _, err = h.Env.List(ctx, p, "")
	requireCode(t, err, append(codes, env.NotDirectory)...)
	requireCode(t, h.Env.Write(ctx, p, strings.NewReader("planted"), env.WriteOptions{}), codes...)
	requireCode(t, h.Env.Write(ctx, p, strings.NewReader("planted"), env.WriteOptions{Exclusive: true}), append(codes, env.Exists)...)
	if !h.NoAppend {
		requireCode(t, h.Env.Append(ctx, p, strings.NewReader("planted")), codes...)
	}
	requireCode(t, h.Env.Mkdir(ctx, p+"/made"), append(codes, env.NotDirectory)...)
	requireCode(t, h.Env.Remove(ctx, p+"/f"), append(codes, env.NotDirectory)...)
	requireCode(t, h.Env.Rename(ctx, p+"/f", "stolen"), append(codes, env.NotDirectory)...)
	_, err = h.Env.Exec(ctx, env.ExecRequest{Command: "true", Dir: p})
	requireCode(t, err, env.SpawnFailed)
}
