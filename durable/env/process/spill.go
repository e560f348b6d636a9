//go:build unix

package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/wp-durable/wp-durable/durable/env"
)

// spill keeps the whole output of a command in a file once it is past a bound;
// up to then it is in memory. A nil spill keeps nothing.
type spill struct {
	env.Spill
	dir string

	head  []byte // what was printed before there was a file
	lines int64  // newlines in head
	file  *os.File
	size  int64 // of the file
	err   error // why nothing more is kept
}

func newSpill(dir string, s *env.Spill) (*spill, error) {
	if s == nil {
		return nil, nil
	}
	if s.Name == "" || s.Name == "." || s.Name == ".." || strings.ContainsAny(s.Name, "/\x00") {
		return nil, &env.Error{Code: env.Invalid, Path: s.Name, Message: "not a name for a spill file"}
	}
	return &spill{Spill: *s, dir: dir}, nil
}

func (s *spill) write(p []byte) {
	if s == nil || s.err != nil {
		return
	}
	if s.file == nil {
		s.head = append(s.head, p...)
		s.lines += int64(bytes.Count(p, []byte{'\n'}))
		if s.fits() {
			return
		}
		if s.file, s.err = s.create(); s.err != nil {
			return
		}
		p, s.head = s.head, nil
	}
	if s.MaxBytes > 0 {
		p = p[:min(int64(len(p)), max(s.MaxBytes-s.size, 0))]
	}
	var n int
	n, s.err = s.file.Write(p)
	s.size += int64(n)
}

// fits reports whether the output needs no file yet.
func (s *spill) fits() bool {
	lines := s.lines
	if n := len(s.head); n > 0 && s.head[n-1] != '\n' {
		lines++
	}
	if s.AfterBytes <= 0 && s.AfterLines <= 0 {
		return false
	}
	return (s.AfterBytes <= 0 || int64(len(s.head)) <= s.AfterBytes) && (s.AfterLines <= 0 || lines <= s.AfterLines)
}

// create makes the file: with the name of the request when there is a folder
// for it, else without a name.
func (s *spill) create() (*os.File, error) {
	if s.dir != "" {
		path := filepath.Join(s.dir, s.Name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	}
	f, err := os.CreateTemp("", "spill-*")
	if err != nil {
		return nil, err
	}
	return f, os.Remove(f.Name())
}

// publish puts the file in its place, if there is one.
func (s *spill) publish(ctx context.Context, put func(context.Context, string, io.Reader) (string, error)) (path string, size int64, problem string) {
	if s == nil || s.file == nil && s.err == nil {
		return "", 0, ""
	}
	if s.err == nil {
		if put == nil {
			s.err = errors.New("there is no place for it")
		} else {
			path, s.err = put(ctx, s.Name, io.NewSectionReader(s.file, 0, s.size))
		}
	}
	if s.err != nil {
		return "", 0, "the whole output could not be kept: " + cause(s.err)
	}
	return path, s.size, ""
}

// close gives the file up, also the one in the private folder.
func (s *spill) close() {
	if s == nil || s.file == nil {
		return
	}
	_ = s.file.Close()
	if s.dir != "" {
		_ = os.Remove(filepath.Join(s.dir, s.Name))
	}
	s.file = nil
}
