package envtest

import (
	"context"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/env"
)

var fileTests = map[string]func(t *testing.T, h *Harness){
	"identity": func(t *testing.T, h *Harness) {
		require.NotEmpty(t, h.Env.ID())
		require.True(t, path.IsAbs(h.Env.WorkDir()), "%s", h.Env.WorkDir())
		require.Equal(t, h.Env.WorkDir()+"\n", run(t, h, "pwd -P"))
	},

	"stat": func(t *testing.T, h *Harness) {
		before := time.Now().Add(-time.Minute)
		write(t, h, "dir/file.txt", "hello")
		info, err := h.Env.Stat(t.Context(), "dir/file.txt")
		require.NoError(t, err)
		require.Equal(t, "file.txt", info.Name)
		require.EqualValues(t, 5, info.Size)
		require.True(t, info.Mode.IsRegular())
		require.True(t, info.ModTime.After(before) && info.ModTime.Before(time.Now().Add(time.Minute)), "%v", info.ModTime)

		info, err = h.Env.Stat(t.Context(), "dir")
		require.NoError(t, err)
		require.True(t, info.Mode.IsDir())

		run(t, h, "ln -s dir/file.txt link")
		info, err = h.Env.Stat(t.Context(), "link")
		require.NoError(t, err, "a link that stays inside is followed")
		require.EqualValues(t, 5, info.Size)
		require.True(t, info.Mode.IsRegular())
	},

	"paths": func(t *testing.T, h *Harness) {
		write(t, h, "a b/ü €.txt", "x")
		for _, p := range []string{"a b/ü €.txt", "./a b//ü €.txt", "a b/../a b/ü €.txt", h.Env.WorkDir() + "/a b/ü €.txt"} {
			requireContent(t, h, p, "x")
		}
		info, err := h.Env.Stat(t.Context(), ".")
		require.NoError(t, err)
		require.True(t, info.Mode.IsDir())
		info, err = h.Env.Stat(t.Context(), h.Env.WorkDir())
		require.NoError(t, err)
		require.True(t, info.Mode.IsDir())
	},

	"list": func(t *testing.T, h *Harness) {
		write(t, h, "d/b", "12")
		write(t, h, "d/a", "1")
		write(t, h, "d/sub/x", "")
		list, next, err := h.Env.List(t.Context(), "d", "")
		require.NoError(t, err)
		require.Empty(t, next)
		require.Len(t, list, 3)
		require.Equal(t, []string{"a", "b", "sub"}, []string{list[0].Name, list[1].Name, list[2].Name})
		require.EqualValues(t, 2, list[1].Size)
		require.True(t, list[1].Mode.IsRegular())
		require.True(t, list[2].Mode.IsDir())

		require.NoError(t, h.Env.Mkdir(t.Context(), "empty"))
		list, next, err = h.Env.List(t.Context(), "empty", "")
		require.NoError(t, err)
		require.Empty(t, next)
		require.Empty(t, list)

		list, _, err = h.Env.List(t.Context(), ".", "")
		require.NoError(t, err)
		require.NotEmpty(t, list)
	},

	"list in pages": func(t *testing.T, h *Harness) {
		const n = 2500
		run(t, h, fmt.Sprintf("mkdir many && cd many && i=0 && while [ $i -lt %d ]; do : > f$i; i=$((i+1)); done", n))
		seen := map[string]bool{}
		last, cursor, pages := "", "", 0
		for {
			list, next, err := h.Env.List(t.Context(), "many", cursor)
			require.NoError(t, err)
			pages++
			require.LessOrEqual(t, pages, n)
			for _, info := range list {
				require.Greater(t, info.Name, last, "pages go on in order")
				last = info.Name
				seen[info.Name] = true
			}
			if next == "" {
				break
			}
			// what was listed may go without disturbing what follows
			require.NoError(t, h.Env.Remove(t.Context(), "many/"+last))
			cursor = next
		}
		require.Len(t, seen, n)
	},

	"open": func(t *testing.T, h *Harness) {
		write(t, h, "f", "0123456789")
		r, err := h.Env.Open(t.Context(), "f")
		require.NoError(t, err)
		require.EqualValues(t, 10, r.Size())
		b := make([]byte, 4)
		n, err := r.ReadAt(b, 3)
		require.NoError(t, err)
		require.Equal(t, "3456", string(b[:n]))
		n, err = r.ReadAt(b, 8)
		require.ErrorIs(t, err, io.EOF)
		require.Equal(t, "89", string(b[:n]))
		n, err = r.ReadAt(b, 50)
		require.ErrorIs(t, err, io.EOF)
		require.Zero(t, n)
		all, err := io.ReadAll(r)
		require.NoError(t, err, "reads at positions do not move the reader")
		require.Equal(t, "0123456789", string(all))
		require.NoError(t, r.Close())

		write(t, h, "empty", "")
		requireContent(t, h, "empty", "")
	},

	"mkdir, rename, remove": func(t *testing.T, h *Harness) {
		ctx := t.Context()
		require.NoError(t, h.Env.Mkdir(ctx, "a/b/c"))
		require.NoError(t, h.Env.Mkdir(ctx, "a/b/c"), "one that is there is no error")
		require.NoError(t, h.Env.Mkdir(ctx, "."))
		write(t, h, "a/b/c/f", "1")
		write(t, h, "g", "2")

		require.NoError(t, h.Env.Rename(ctx, "a/b/c/f", "g"), "a file at the new path is replaced")
		requireContent(t, h, "g", "1")
		_, err := h.Env.Stat(ctx, "a/b/c/f")
		requireCode(t, err, env.NotFound)

		require.NoError(t, h.Env.Rename(ctx, "a", "moved"))
		info, err := h.Env.Stat(ctx, "moved/b/c")
		require.NoError(t, err)
		require.True(t, info.Mode.IsDir())

		write(t, h, "moved/b/x", "")
		require.NoError(t, h.Env.Remove(ctx, "moved"), "with all below it")
		_, err = h.Env.Stat(ctx, "moved")
		requireCode(t, err, env.NotFound)

		run(t, h, "mkdir keep && : > keep/f && ln -s keep link")
		require.NoError(t, h.Env.Remove(ctx, "link"))
		_, err = h.Env.Stat(ctx, "keep/f")
		require.NoError(t, err, "a link is removed, not what it leads to")
	},

	"error codes": func(t *testing.T, h *Harness) {
		ctx := t.Context()
		write(t, h, "file", "x")
		require.NoError(t, h.Env.Mkdir(ctx, "dir"))
		write(t, h, "full/f", "")
		run(t, h, "mkfifo fifo && ln -s loop loop")
		long := strings.Repeat("x", 300)
		put := func(p string) error { return h.Env.Write(ctx, p, strings.NewReader("new"), env.WriteOptions{}) }
		open := func(p string) error { _, err := h.Env.Open(ctx, p); return err }
		stat := func(p string) error { _, err := h.Env.Stat(ctx, p); return err }
		list := func(p string) error { _, _, err := h.Env.List(ctx, p, ""); return err }
		for name, tc := range map[string]struct {
			err   error
			codes []env.Code
		}{
			"stat missing":             {stat("none"), []env.Code{env.NotFound}},
			"stat below missing":       {stat("none/f"), []env.Code{env.NotFound}},
			"stat below a file":        {stat("file/f"), []env.Code{env.NotDirectory}},
			"stat loop":                {stat("loop"), []env.Code{env.Invalid}},
			"open missing":             {open("none"), []env.Code{env.NotFound}},
			"open folder":              {open("dir"), []env.Code{env.IsDirectory}},
			"open fifo":                {open("fifo"), []env.Code{env.Invalid}},
			"list missing":             {list("none"), []env.Code{env.NotFound}},
			"list file":                {list("file"), []env.Code{env.NotDirectory}},
			"write folder":             {put("dir"), []env.Code{env.IsDirectory}},
			"write work folder":        {put("."), []env.Code{env.IsDirectory}},
			"write below a file":       {put("file/f"), []env.Code{env.NotDirectory}},
			"write fifo":               {put("fifo"), []env.Code{env.Invalid}},
			"mkdir at a file":          {h.Env.Mkdir(ctx, "file"), []env.Code{env.Exists}},
			"mkdir below a file":       {h.Env.Mkdir(ctx, "file/d"), []env.Code{env.NotDirectory}},
			"remove missing":           {h.Env.Remove(ctx, "none"), []env.Code{env.NotFound}},
			"remove work folder":       {h.Env.Remove(ctx, "."), []env.Code{env.Invalid}},
			"remove work folder by ..": {h.Env.Remove(ctx, "dir/.."), []env.Code{env.Invalid}},
			"rename missing":           {h.Env.Rename(ctx, "none", "new"), []env.Code{env.NotFound}},
			"rename work folder":       {h.Env.Rename(ctx, ".", "dir/new"), []env.Code{env.Invalid}},
			"rename onto work folder":  {h.Env.Rename(ctx, "dir", "."), []env.Code{env.Invalid}},
			"rename into missing":      {h.Env.Rename(ctx, "file", "none/new"), []env.Code{env.NotFound}},
			"rename file over folder":  {h.Env.Rename(ctx, "file", "dir"), []env.Code{env.IsDirectory, env.Exists}},
			"rename folder over file":  {h.Env.Rename(ctx, "dir", "file"), []env.Code{env.NotDirectory, env.Exists}},
			"rename over full folder":  {h.Env.Rename(ctx, "dir", "full"), []env.Code{env.Exists}},
			"rename into itself":       {h.Env.Rename(ctx, "full", "full/x"), []env.Code{env.Invalid}},
			"empty path":               {stat(""), []env.Code{env.Invalid}},
			"NUL byte":                 {put("a\x00b"), []env.Code{env.Invalid}},
			"long name":                {put(long), []env.Code{env.Invalid}},
			"long name, stat":          {stat(long), []env.Code{env.Invalid, env.NotFound}},
		} {
			t.Run(name, func(t *testing.T) {
				requireCode(t, tc.err, tc.codes...)
				require.NotContains(t, tc.err.Error(), "\x00")
			})
		}
		requireContent(t, h, "file", "x")
	},

	"a cancelled ctx is aborted": func(t *testing.T, h *Harness) {
		write(t, h, "f", "x")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := h.Env.Stat(ctx, "f")
		requireCode(t, err, env.Aborted)
		_, _, err = h.Env.List(ctx, ".", "")
		requireCode(t, err, env.Aborted)
		_, err = h.Env.Open(ctx, "f")
		requireCode(t, err, env.Aborted)
		requireCode(t, h.Env.Write(ctx, "f", strings.NewReader("new"), env.WriteOptions{}), env.Aborted)
		requireCode(t, h.Env.Mkdir(ctx, "d"), env.Aborted)
		requireCode(t, h.Env.Remove(ctx, "f"), env.Aborted)
		requireCode(t, h.Env.Rename(ctx, "f", "g"), env.Aborted)
		_, err = h.Env.Exec(ctx, env.ExecRequest{Command: "echo ran > f"})
		requireCode(t, err, env.Aborted)
		requireContent(t, h, "f", "x")
	},
}
