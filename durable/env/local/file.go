//go:build unix

package local

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"

	"github.com/wp-durable/wp-durable/durable/env"
)

// pageSize is the number of entries in a page of List.
const pageSize = 1000

// Stat describes a file, following links that stay inside.
func (e *Env) Stat(ctx context.Context, p string) (env.FileInfo, error) {
	rel, err := e.path(ctx, p)
	if err != nil {
		return env.FileInfo{}, err
	}
	info, err := e.root.Stat(rel)
	if err != nil {
		return env.FileInfo{}, fail(p, err)
	}
	return fileInfo(path.Base(rel), info), nil
}

func fileInfo(name string, info fs.FileInfo) env.FileInfo {
	return env.FileInfo{Name: name, Size: info.Size(), Mode: info.Mode(), ModTime: info.ModTime()}
}

// List returns a page of a folder's entries by name, links as links. An empty
// dir is the work folder.
func (e *Env) List(ctx context.Context, dir, cursor string) ([]env.FileInfo, string, error) {
	if dir == "" {
		dir = "."
	}
	rel, err := e.path(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	f, err := e.root.OpenFile(rel, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, "", fail(dir, err)
	}
	names, err := f.Readdirnames(-1)
	_ = f.Close()
	if err != nil {
		return nil, "", fail(dir, err)
	}
	slices.Sort(names)
	if cursor != "" {
		i, found := slices.BinarySearch(names, cursor)
		if found {
			i++
		}
		names = names[i:]
	}
	next := ""
	if len(names) > pageSize {
		names = names[:pageSize]
		next = names[pageSize-1]
	}
	list := make([]env.FileInfo, 0, len(names))
	for _, name := range names {
		if err := check(ctx, dir); err != nil {
			return nil, "", err
		}
		info, err := e.root.Lstat(path.Join(rel, name))
		if err != nil {
			continue // gone since
		}
		list = append(list, fileInfo(name, info))
	}
	return list, next, nil
}

// Open reads a regular file.
func (e *Env) Open(ctx context.Context, p string) (env.Reader, error) {
	rel, err := e.path(ctx, p)
	if err != nil {
		return nil, err
	}
	f, info, err := e.open(p, rel, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return &reader{File: f, path: p, size: info.Size()}, nil
}

// open opens a regular file; anything else is refused by its descriptor, and
// opening never waits for the other end of a FIFO.
func (e *Env) open(p, rel string, flag int, mode fs.FileMode) (*os.File, fs.FileInfo, error) {
	f, err := e.root.OpenFile(rel, flag|syscall.O_NONBLOCK|syscall.O_NOCTTY, mode)
	if err != nil {
		return nil, nil, fail(p, err)
	}
	info, err := f.Stat()
	if err == nil {
		err = regular(p, info)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, fail(p, err)
	}
	return f, info, nil
}

func regular(p string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &env.Error{Code: env.IsDirectory, Path: p, Message: "is a directory"}
	case !info.Mode().IsRegular():
		return &env.Error{Code: env.Invalid, Path: p, Message: "is not a regular file"}
	}
	return nil
}

type reader struct {
	*os.File
	path string
	size int64
}

func (r *reader) Size() int64 { return r.size }

func (r *reader) Read(b []byte) (int, error) {
	n, err := r.File.Read(b)
	return n, r.fail(err)
}

func (r *reader) ReadAt(b []byte, off int64) (int, error) {
	n, err := r.File.ReadAt(b, off)
	return n, r.fail(err)
}

func (r *reader) fail(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return fail(r.path, err)
}

// Mkdir makes a folder and those above it.
func (e *Env) Mkdir(ctx context.Context, p string) error {
	rel, err := e.path(ctx, p)
	if err != nil {
		return err
	}
	return e.mkdir(p, rel)
}

func (e *Env) mkdir(p, rel string) error {
	if err := e.root.MkdirAll(rel, 0o755); err != nil {
		return fail(p, err)
	}
	return nil
}

// Remove deletes a file, a link or, with all below it, a folder.
func (e *Env) Remove(ctx context.Context, p string) error {
	rel, err := e.entry(ctx, p)
	if err != nil {
		return err
	}
	if _, err := e.root.Lstat(rel); err != nil {
		return fail(p, err)
	}
	if err := e.root.RemoveAll(rel); err != nil {
		return fail(p, err)
	}
	return nil
}

// Rename moves a file or folder, replacing a file at the new path. The folder
// of the new path must be there.
func (e *Env) Rename(ctx context.Context, oldPath, newPath string) error {
	oldRel, err := e.entry(ctx, oldPath)
	if err != nil {
		return err
	}
	newRel, err := e.entry(ctx, newPath)
	if err != nil {
		return err
	}
	if _, err := e.root.Lstat(oldRel); err != nil {
		return fail(oldPath, err)
	}
	if err := e.root.Rename(oldRel, newRel); err != nil {
		return fail(newPath, err)
	}
	return nil
}
