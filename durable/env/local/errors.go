//go:build unix

package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/wp-durable/wp-durable/durable/env"
)

// fail makes an error of what the system said about path p.
func fail(p string, err error) *env.Error {
	var known *env.Error
	if errors.As(err, &known) {
		return known
	}
	e := &env.Error{Code: env.Unknown, Path: p, Message: reason(err), Err: err}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		e.Code = env.Aborted
		e.Message = "aborted"
	case errors.Is(err, fs.ErrNotExist):
		e.Code = env.NotFound
	case errors.Is(err, fs.ErrExist):
		e.Code = env.Exists
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Code = env.PermissionDenied
	case errors.Is(err, syscall.ENOTDIR):
		e.Code = env.NotDirectory
	case errors.Is(err, syscall.EISDIR):
		e.Code = env.IsDirectory
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.ELOOP),
		errors.Is(err, syscall.ENXIO), errors.Is(err, fs.ErrInvalid):
		e.Code = env.Invalid
	case errors.Is(err, syscall.EFBIG):
		e.Code = env.TooLarge
	case escapes(err):
		e.Code = env.PermissionDenied
		e.Message = "leads outside the work folder"
	}
	return e
}

// escapes reports whether err is os.Root's refusal of a path. It has no name;
// but it is the only path error that does not come from the system, beside the
// ones of a closed file.
func escapes(err error) bool {
	inner := innermost(err)
	var errno syscall.Errno
	return inner != nil && !errors.As(inner, &errno) && !errors.Is(inner, os.ErrClosed) && !errors.Is(inner, os.ErrDeadlineExceeded)
}

// innermost returns what a path or link error says, nil when err is neither.
func innermost(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		return l.Err
	}
	return nil
}

// reason is the message of err without the server's paths.
func reason(err error) string {
	if inner := innermost(err); inner != nil {
		return inner.Error()
	}
	return err.Error()
}
