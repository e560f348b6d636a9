//go:build unix

package local

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"github.com/wp-durable/wp-durable/durable/env"
)

// maxLinks is how many links a path may go through, as in the kernel.
const maxLinks = 40

// Write creates or replaces a file whole. The content goes to a new file
// beside it, which then takes its name; a link is followed, so that it stays a
// link. What was written is not flushed to the disk.
func (e *Env) Write(ctx context.Context, p string, r io.Reader, opts env.WriteOptions) error {
	rel, err := e.path(ctx, p)
	if err != nil {
		return err
	}
	rel, old, err := e.target(p, rel)
	if err != nil {
		return err
	}
	if old != nil && opts.Exclusive {
		return &env.Error{Code: env.Exists, Path: p, Message: "file exists"}
	}
	dir := parent(rel)
	if err := e.mkdir(p, dir); err != nil {
		return err
	}
	temp := dir + "/.wp-" + rand.Text()
	f, err := e.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fail(p, err)
	}
	err = e.fill(ctx, f, r, opts, old)
	if err == nil {
		if opts.Exclusive {
			err = e.claim(temp, rel)
		} else {
			err = e.root.Rename(temp, rel)
		}
	}
	if err != nil || opts.Exclusive {
		_ = e.root.Remove(temp)
	}
	if err != nil {
		return fail(p, err)
	}
	return nil
}

// fill gives the new file its content, mode and owner, and closes it.
func (e *Env) fill(ctx context.Context, f *os.File, r io.Reader, opts env.WriteOptions, old fs.FileInfo) error {
	defer f.Close()
	if _, err := io.Copy(f, contextReader{ctx, r}); err != nil {
		return err
	}
	mode := cmp.Or(opts.Mode.Perm(), 0o644)
	if old != nil {
		mode = cmp.Or(opts.Mode.Perm(), old.Mode().Perm())
		// a file of another user stays theirs where this one may give it away
		if st, ok := old.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
			_ = f.Chown(int(st.Uid), int(st.Gid))
		}
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	return f.Close()
}

// claim gives the file at temp the name rel as well, unless it is taken.
func (e *Env) claim(temp, rel string) error {
	err := e.root.Link(temp, rel)
	if err == nil || errors.Is(err, fs.ErrExist) {
		return err
	}
	// a file system without hard links: take the name first, then fill it
	f, err := e.root.OpenFile(rel, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close()
	return e.root.Rename(temp, rel)
}

// target follows the links at the end of rel and returns the path of the file
// and what is there, nil for nothing. Only a regular file may be there.
func (e *Env) target(p, rel string) (string, fs.FileInfo, error) {
	for range maxLinks {
		info, err := e.root.Lstat(rel)
		if errors.Is(err, fs.ErrNotExist) {
			return rel, nil, nil
		}
		if err != nil {
			return "", nil, fail(p, err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			return rel, info, regular(p, info)
		}
		to, err := e.root.Readlink(rel)
		if err != nil {
			return "", nil, fail(p, err)
		}
		if path.IsAbs(to) {
			return "", nil, &env.Error{Code: env.PermissionDenied, Path: p, Message: "leads outside the work folder"}
		}
		// not cleaned: the folder may itself be reached through a link
		rel = parent(rel) + "/" + strings.TrimRight(to, "/")
	}
	return "", nil, fail(p, syscall.ELOOP)
}

// parent is the folder of rel, as it is written.
func parent(rel string) string {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i]
	}
	return "."
}

// Append adds to the end of a file, making it when absent.
func (e *Env) Append(ctx context.Context, p string, r io.Reader) error {
	rel, err := e.path(ctx, p)
	if err != nil {
		return err
	}
	if err := e.mkdir(p, parent(rel)); err != nil {
		return err
	}
	f, _, err := e.open(p, rel, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, contextReader{ctx, r})
	if err := cmp.Or(err, f.Close()); err != nil {
		return fail(p, err)
	}
	return nil
}

// contextReader ends with the error of ctx once it is cancelled.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
