//go:build unix

package local

import (
	"cmp"
	"context"
	"io"
	"io/fs"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/process"
)

// Exec runs a command in a session of its own, with the null device as
// standard input. When it has ended, whatever it left in that session is
// killed; only a process that made a session of its own goes on. The whole
// output of a long command is put at .tmp/<Spill.Name>.
func (e *Env) Exec(ctx context.Context, req env.ExecRequest) (env.ExecResult, error) {
	res := env.ExecResult{ExitCode: -1}
	if (req.Command == "") == (len(req.Argv) == 0) {
		return res, &env.Error{Code: env.Invalid, Message: "exactly one of Command and Argv must be set"}
	}
	dir, err := e.startDir(req.Dir)
	if err != nil {
		return res, err
	}
	// a command may have put something else there; others must still run
	_ = e.root.MkdirAll(tempDir, 0o755)
	argv := req.Argv
	if req.Command != "" {
		argv = []string{e.opts.Shell, "-c", req.Command}
	}
	program, err := e.program(argv[0])
	if err != nil {
		return res, &env.Error{Code: env.SpawnFailed, Message: argv[0] + ": program not found", Err: err}
	}
	// not bound to ctx: process.Run ends the command and all it started
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program)
	cmd.Args = slices.Clone(argv)
	cmd.Dir = dir
	cmd.Env = slices.Clone(e.opts.Env)
	return process.Run(ctx, &process.Command{Cmd: cmd, SpillDir: e.opts.SpillDir, Publish: e.publish}, req)
}

// startDir returns the absolute path of the folder a command starts in.
func (e *Env) startDir(p string) (string, error) {
	rel, err := e.rel(cmp.Or(p, "."))
	if err == nil {
		var info fs.FileInfo
		if info, err = e.root.Stat(rel); err == nil && !info.IsDir() {
			err = syscall.ENOTDIR
		}
	}
	if err != nil {
		cause := fail(p, err)
		return "", &env.Error{Code: env.SpawnFailed, Path: cause.Path, Message: cause.Message, Err: cause}
	}
	return filepath.Join(e.dir, rel), nil
}

func (e *Env) publish(ctx context.Context, name string, r io.Reader) (string, error) {
	to := path.Join(tempDir, name)
	return to, e.Write(ctx, to, r, env.WriteOptions{Mode: 0o600})
}
