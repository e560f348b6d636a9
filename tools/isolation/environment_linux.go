package isolation

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"syscall"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
)

// environment is a work folder as its conversations use it. Files are reached
// as the package local does, with the rights of the agent; commands run under
// the level.
type environment struct {
	host         *host
	tree         *tree
	conversation int64
}

var _ env.Environment = (*environment)(nil)

// ID is equal for environments of the same work folder.
func (e *environment) ID() string { return "workdir:" + e.tree.path }

// WorkDir is the path of the work folder, the same inside and outside.
func (e *environment) WorkDir() string { return e.tree.path }

// with calls f with the folder's files and the rights of its agent.
func (e *environment) with(f func(files *local.Env) error) error {
	done, err := e.host.begin()
	if err != nil {
		return stopping(err)
	}
	defer done()
	return e.inFolder(f)
}

func stopping(err error) error {
	return &env.Error{Code: env.Aborted, Message: "the server is stopping", Err: err}
}

func (e *environment) inFolder(f func(files *local.Env) error) error {
	e.tree.use.RLock()
	defer e.tree.use.RUnlock()
	files, a, err := e.host.open(e.tree)
	if err != nil {
		return unusable(err)
	}
	return a.do(func() error { return f(files) })
}

// unusable makes an error of a work folder that cannot be made or opened.
func unusable(err error) error {
	e := &env.Error{Code: env.Unknown, Message: "the work folder cannot be used", Err: err}
	switch {
	case errors.Is(err, ErrLimit):
		e.Code, e.Message = env.NotSupported, "limit: no more work folders can be used at a time on this server"
	case errors.Is(err, syscall.ENOSPC):
		e.Message = "no space is left on the server's disk"
	}
	return e
}

func (e *environment) Stat(ctx context.Context, p string) (info env.FileInfo, err error) {
	err = e.with(func(files *local.Env) error {
		info, err = files.Stat(ctx, p)
		return err
	})
	return info, err
}

func (e *environment) List(ctx context.Context, dir, cursor string) (list []env.FileInfo, next string, err error) {
	err = e.with(func(files *local.Env) error {
		list, next, err = files.List(ctx, dir, cursor)
		return err
	})
	return list, next, err
}

// Open reads a regular file that belongs to the agent; who owns it is asked of
// the open file.
func (e *environment) Open(ctx context.Context, p string) (env.Reader, error) {
	var r env.Reader
	err := e.with(func(files *local.Env) (err error) {
		r, err = files.Open(ctx, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := e.owned(r, p); err != nil {
		_ = r.Close()
		return nil, err
	}
	return r, nil
}

func (e *environment) owned(r env.Reader, p string) error {
	f, ok := r.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return &env.Error{Code: env.Unknown, Path: p, Message: "the file's owner is not known"}
	}
	info, err := f.Stat()
	if err != nil {
		return &env.Error{Code: env.Unknown, Path: p, Message: "the file's owner is not known", Err: err}
	}
	a, err := e.host.agentOf(e.tree.id)
	if err != nil {
		return unusable(err)
	}
	if int(info.Sys().(*syscall.Stat_t).Uid) != a.uid && !e.host.weak("fsuid") {
		return &env.Error{Code: env.PermissionDenied, Path: p, Message: "the file belongs to another user"}
	}
	return nil
}

// feed calls f with a reader of what r gives, while r itself is read here: it
// is the caller's, and must not run with the agent's rights.
func feed(r io.Reader, f func(r io.Reader) error) error {
	inner, outer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := f(inner)
		_ = inner.CloseWithError(errStopped)
		done <- err
	}()
	// An error of r reaches f, which gives it back; one of the pipe says that
	// f has ended.
	_, err := io.Copy(outer, r)
	_ = outer.CloseWithError(err)
	return <-done
}

var errStopped = errors.New("no more is read")

func (e *environment) Write(ctx context.Context, p string, r io.Reader, opts env.WriteOptions) error {
	return feed(r, func(r io.Reader) error {
		return e.with(func(files *local.Env) error { return files.Write(ctx, p, r, opts) })
	})
}

func (e *environment) Append(ctx context.Context, p string, r io.Reader) error {
	return feed(r, func(r io.Reader) error {
		return e.with(func(files *local.Env) error { return files.Append(ctx, p, r) })
	})
}

func (e *environment) Mkdir(ctx context.Context, p string) error {
	return e.with(func(files *local.Env) error { return files.Mkdir(ctx, p) })
}

func (e *environment) Remove(ctx context.Context, p string) error {
	return e.with(func(files *local.Env) error { return files.Remove(ctx, p) })
}

func (e *environment) Rename(ctx context.Context, oldPath, newPath string) error {
	return e.with(func(files *local.Env) error { return files.Rename(ctx, oldPath, newPath) })
}
