package envtest

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
)

var writeTests = map[string]func(t *testing.T, h *Harness){
	"creates with the folders above": func(t *testing.T, h *Harness) {
		write(t, h, "a/b/c.txt", "content")
		requireContent(t, h, "a/b/c.txt", "content")
		require.Equal(t, "content", run(t, h, "cat a/b/c.txt"))
	},

	"replaces whole": func(t *testing.T, h *Harness) {
		write(t, h, "f", strings.Repeat("long", 10000))
		write(t, h, "f", "short")
		requireContent(t, h, "f", "short")
		list, _, err := h.Env.List(t.Context(), ".", "")
		require.NoError(t, err)
		for _, info := range list {
			require.Contains(t, []string{"f", ".tmp"}, info.Name, "nothing is left beside the file")
		}
	},

	"mode": func(t *testing.T, h *Harness) {
		ctx := t.Context()
		mode := func(p string) uint32 {
			info, err := h.Env.Stat(ctx, p)
			require.NoError(t, err)
			return uint32(info.Mode.Perm())
		}
		write(t, h, "plain", "x")
		require.EqualValues(t, 0o644, mode("plain"))
		require.NoError(t, h.Env.Write(ctx, "script", strings.NewReader("x"), env.WriteOptions{Mode: 0o755}))
		require.EqualValues(t, 0o755, mode("script"))
		write(t, h, "script", "y")
		require.EqualValues(t, 0o755, mode("script"), "a replaced file keeps its mode")
	},

	"exclusive": func(t *testing.T, h *Harness) {
		ctx := t.Context()
		const n = 8
		var wg sync.WaitGroup
		errs := make([]error, n)
		for i := range n {
			wg.Go(func() {
				content := strings.Repeat(string(rune('a'+i)), 1000)
				errs[i] = h.Env.Write(ctx, "once", strings.NewReader(content), env.WriteOptions{Exclusive: true})
			})
		}
		wg.Wait()
		winner := -1
		for i, err := range errs {
			if err != nil {
				requireCode(t, err, env.Exists)
				continue
			}
			require.Equal(t, -1, winner, "one writer wins")
			winner = i
		}
		require.NotEqual(t, -1, winner)
		requireContent(t, h, "once", strings.Repeat(string(rune('a'+winner)), 1000))
		require.NoError(t, h.Env.Mkdir(ctx, "dir"))
		requireCode(t, h.Env.Write(ctx, "dir", strings.NewReader(""), env.WriteOptions{Exclusive: true}), env.Exists, env.IsDirectory)
	},

	"a reader sees the old content or the new": func(t *testing.T, h *Harness) {
		const size, rounds = 64 << 10, 100
		content := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), size) }
		write(t, h, "f", content(0))
		ctx, done := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for ctx.Err() == nil {
					got, err := read(context.WithoutCancel(ctx), h.Env, "f")
					if err != nil || got != strings.Repeat(got[:1], size) {
						t.Errorf("torn read: %d bytes, %v", len(got), err)
						return
					}
				}
			})
		}
		for i := range rounds {
			write(t, h, "f", content(i))
		}
		done()
		wg.Wait()
	},

	"a failing source changes nothing": func(t *testing.T, h *Harness) {
		write(t, h, "f", "old")
		broken := errors.New("source broke")
		err := h.Env.Write(t.Context(), "f", io.MultiReader(strings.NewReader("new"), errorReader{broken}), env.WriteOptions{})
		require.ErrorIs(t, err, broken)
		requireContent(t, h, "f", "old")
		err = h.Env.Write(t.Context(), "g", errorReader{broken}, env.WriteOptions{})
		require.ErrorIs(t, err, broken)
		_, err = h.Env.Stat(t.Context(), "g")
		requireCode(t, err, env.NotFound)
	},

	"large": func(t *testing.T, h *Harness) {
		const size = 20 << 20
		require.NoError(t, h.Env.Write(t.Context(), "f", io.LimitReader(zeros{}, size), env.WriteOptions{}))
		r, err := h.Env.Open(t.Context(), "f")
		require.NoError(t, err)
		require.EqualValues(t, size, r.Size())
		n, err := io.Copy(io.Discard, r)
		require.NoError(t, err)
		require.EqualValues(t, size, n)
		require.NoError(t, r.Close())
	},

	"append": func(t *testing.T, h *Harness) {
		ctx := t.Context()
		add := func(p, s string) error { return h.Env.Append(ctx, p, strings.NewReader(s)) }
		if h.NoAppend {
			requireCode(t, add("f", "x"), env.NotSupported)
			return
		}
		require.NoError(t, add("new/f", "one"))
		require.NoError(t, add("new/f", "two"))
		requireContent(t, h, "new/f", "onetwo")
		run(t, h, "mkfifo fifo")
		requireCode(t, add("fifo", "x"), env.Invalid)
		requireCode(t, add("new", "x"), env.IsDirectory)
		requireCode(t, add("../f", "x"), env.PermissionDenied)
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		requireCode(t, h.Env.Append(cancelled, "new/f", strings.NewReader("x")), env.Aborted)
		requireContent(t, h, "new/f", "onetwo")
	},
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
