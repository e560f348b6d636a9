//go:build unix

// Package local is the plain implementation of an environment: a folder of the
// machine the program runs on, and commands that run there as the program's
// own user. File access stays in the folder whatever links are in it. Commands
// are not isolated at all: they can do what the user can.
//
// It is for Linux and macOS. It depends on packages env and env/process and
// nothing else of this module.
package local

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/wp-durable/wp-durable/durable/env"
)

// tempDir is the folder in the work folder for temporary files of commands and
// for the whole output of long ones.
const tempDir = ".tmp"

// Options configure an environment. Every zero field has the default it names.
type Options struct {
	// ID is the environment's ID. Default: made from the folder's real path.
	ID string
	// Env is the environment of commands, KEY=value each. Default: HOME is
	// the work folder, TMPDIR its .tmp, PATH /usr/local/bin:/usr/bin:/bin,
	// LANG C.UTF-8; nothing of the program's own.
	Env []string
	// Shell runs commands, given -c and the command. Default: bash where there
	// is one, else /bin/sh.
	Shell string
	// SpillDir is where the whole output of a running command is kept, a
	// folder outside the work folder. Default: a file without a name in the
	// system's folder for temporary files, which a crash leaves nothing of.
	SpillDir string
}

// Env is an environment on the local machine. Its methods may be called
// concurrently.
type Env struct {
	opts Options
	dir  string   // real path
	dirs []string // names of the folder that absolute paths may begin with
	root *os.Root
}

var _ env.Environment = (*Env)(nil)

// New opens dir as an environment, making the folder when it is absent. opts
// may be nil. Close it after use.
func New(dir string, opts *Options) (*Env, error) {
	e := &Env{}
	if opts != nil {
		e.opts = *opts
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open environment %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o755); err != nil {
		return nil, fmt.Errorf("open environment: %w", err)
	}
	if e.dir, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, fmt.Errorf("open environment: %w", err)
	}
	if e.root, err = os.OpenRoot(e.dir); err != nil {
		return nil, fmt.Errorf("open environment: %w", err)
	}
	e.dirs = []string{e.dir, abs}
	if e.opts.ID == "" {
		e.opts.ID = "local:" + e.dir
	}
	if e.opts.Env == nil {
		e.opts.Env = []string{
			"HOME=" + e.dir, "TMPDIR=" + filepath.Join(e.dir, tempDir),
			"PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8",
		}
	}
	if e.opts.Shell == "" {
		e.opts.Shell = findShell()
	}
	return e, nil
}

// Close gives the folder up. Calls that are under way may fail.
func (e *Env) Close() error { return e.root.Close() }

// ID is equal for environments of the same folder.
func (e *Env) ID() string { return e.opts.ID }

// WorkDir is the real path of the folder.
func (e *Env) WorkDir() string { return e.dir }

func findShell() string {
	for _, name := range []string{"/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"} {
		if isProgram(name) {
			return name
		}
	}
	return "/bin/sh"
}

func isProgram(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// rel makes a path relative to the work folder, without "..". Links are not
// looked at: e.root keeps them inside.
func (e *Env) rel(p string) (string, error) {
	switch {
	case p == "":
		return "", &env.Error{Code: env.Invalid, Message: "the path is empty"}
	case strings.IndexByte(p, 0) >= 0:
		return "", &env.Error{Code: env.Invalid, Path: strings.ReplaceAll(p, "\x00", ""), Message: "the path has a NUL byte"}
	}
	abs := p
	if !path.IsAbs(p) {
		abs = path.Join(e.dir, p)
	}
	abs = path.Clean(abs)
	for _, dir := range e.dirs {
		if abs == dir {
			return ".", nil
		}
		if inside, ok := strings.CutPrefix(abs, strings.TrimSuffix(dir, "/")+"/"); ok {
			return inside, nil
		}
	}
	return "", &env.Error{Code: env.PermissionDenied, Path: p, Message: "is outside the work folder " + e.dir}
}

// path is rel, unless ctx has ended.
func (e *Env) path(ctx context.Context, p string) (string, error) {
	if err := check(ctx, p); err != nil {
		return "", err
	}
	return e.rel(p)
}

// entry is path for operations on a folder's entry, which the work folder
// itself is not.
func (e *Env) entry(ctx context.Context, p string) (string, error) {
	rel, err := e.path(ctx, p)
	if err == nil && rel == "." {
		err = &env.Error{Code: env.Invalid, Path: p, Message: "is the work folder itself"}
	}
	return rel, err
}

func check(ctx context.Context, p string) error {
	if ctx.Err() != nil {
		return &env.Error{Code: env.Aborted, Path: p, Message: "aborted", Err: context.Cause(ctx)}
	}
	return nil
}

// program finds a command's program as a shell would, by the PATH that the
// command gets.
func (e *Env) program(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, kv := range e.opts.Env {
		dirs, ok := strings.CutPrefix(kv, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(dirs) {
			if full := filepath.Join(dir, name); filepath.IsAbs(dir) && isProgram(full) {
				return full, nil
			}
		}
	}
	return "", &exec.Error{Name: name, Err: fs.ErrNotExist}
}
