//go:build unix

// Package process runs one command for an environment: its output in order and
// bounded in memory, the timeout, the end of everything it started, and the
// file with its whole output. How a command is started is the caller's: the
// package local gives it a shell, an isolating environment its helper.
//
// It is for Linux and macOS. It depends on package env and nothing else of
// this module.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
)

// publishTimeout is how long putting the spill file in its place may take: it
// happens after the command, also after one that was cancelled, and a few
// hundred megabytes on a slow disk must not hold the call for ever.
const publishTimeout = time.Minute

// Command is a command to run by [Run].
type Command struct {
	// Cmd is the command, not started. Run sets its standard output and
	// error; standard input is the null device unless the caller set it. When
	// SysProcAttr is nil, the command gets a session of its own.
	Cmd *exec.Cmd

	// End makes what the command started end, and returns when it has. It is
	// called with exited false when ctx or the timeout ended the call, after
	// which the command itself must end soon; and always once with exited
	// true, when the command has ended but its process id is not given free
	// yet. Default: [EndSession], which needs a session of its own.
	End func(p *os.Process, exited bool)

	// SpillDir is where the file with the whole output is while the command
	// runs, under the name of the request, mode 0600; it should be a folder
	// that the command cannot reach, and what a crash leaves there is the
	// output up to then. Default: a file without a name.
	SpillDir string
	// Publish puts the finished spill file in its place and returns its path
	// relative to the work folder. Required when requests ask for a spill. Its
	// ctx is not cancelled with the command's.
	Publish func(ctx context.Context, name string, r io.Reader) (path string, err error)
}

// Run starts the command and returns when it has ended and, with it, what it
// started, as far as End reaches. It does not wait for others that hold the
// command's output: what was printed before the command ended is delivered,
// then the output is closed. Of req it uses Timeout, Merge, Spill and Output;
// the caller has made Command, Argv and Dir into c.Cmd.
//
// A command that ran is no error. Errors are of code SpawnFailed, Timeout,
// Aborted (ctx), Invalid, and Unknown when the system does not tell how the
// command ended.
func Run(ctx context.Context, c *Command, req env.ExecRequest) (env.ExecResult, error) {
	res := env.ExecResult{ExitCode: -1}
	if ctx.Err() != nil {
		return res, aborted(ctx)
	}
	out, err := newSink(c, req)
	if err != nil {
		return res, err
	}
	defer out.spill.close()
	if req.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, req.Timeout, errTimeout)
		defer cancel()
	}
	readers, err := start(c.Cmd, out, req.Merge)
	if err != nil {
		return res, &env.Error{Code: env.SpawnFailed, Message: "the command could not be started: " + cause(err), Err: err}
	}
	exited := make(chan struct{})
	go func() {
		waitExit(c.Cmd.Process.Pid)
		close(exited)
	}()
	end := c.End
	if end == nil {
		end = EndSession
	}
	var stopped error
	select {
	case <-exited:
	case <-ctx.Done():
		stopped = context.Cause(ctx)
		end(c.Cmd.Process, false)
		<-exited
	}
	end(c.Cmd.Process, true)
	waited := c.Cmd.Wait() // an exit code is an error too
	readers.finish()

	state := c.Cmd.ProcessState
	if state == nil {
		return res, &env.Error{Code: env.Unknown, Message: "how the command ended is not known: " + cause(waited), Err: waited}
	}
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		res.Signal = unix.SignalName(ws.Signal())
	} else {
		res.ExitCode = state.ExitCode()
	}
	publish, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	res.SpillPath, res.SpillBytes, res.SpillError = out.spill.publish(publish, c.Publish)
	switch {
	case stopped == nil:
		return res, nil
	case errors.Is(stopped, errTimeout):
		res.ExitCode = -1
		return res, &env.Error{Code: env.Timeout, Message: fmt.Sprintf("the command was stopped after %v", req.Timeout), Err: stopped}
	default:
		res.ExitCode = -1
		return res, aborted(ctx)
	}
}

var errTimeout = errors.New("timeout of the command")

func aborted(ctx context.Context) error {
	return &env.Error{Code: env.Aborted, Message: "the command was aborted", Err: context.Cause(ctx)}
}

// cause returns the message of a failure without the server's paths.
func cause(err error) string {
	var known *env.Error
	if errors.As(err, &known) {
		return known.Error()
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	var e *exec.Error
	if errors.As(err, &e) {
		return e.Err.Error()
	}
	return err.Error()
}

// readers are the goroutines that read a command's output.
type readers struct {
	wg    sync.WaitGroup
	files []*os.File
}

// start starts the command with its output going to out.
func start(cmd *exec.Cmd, out *sink, merge bool) (*readers, error) {
	rs := &readers{}
	var writers []*os.File
	ok := false
	defer func() {
		for _, w := range writers {
			_ = w.Close() // the command has its own
		}
		if !ok {
			rs.close()
		}
	}()
	streams := []env.Stream{env.Stdout, env.Stderr}
	if merge {
		streams = streams[:1]
	}
	for range streams {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		rs.files, writers = append(rs.files, r), append(writers, w)
	}
	cmd.Stdout, cmd.Stderr = writers[0], writers[len(writers)-1]
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ok = true
	for i, r := range rs.files {
		rs.wg.Go(func() { read(r, streams[i], out) })
	}
	return rs, nil
}

// finish ends the readers once they have what was printed up to now.
func (rs *readers) finish() {
	for _, r := range rs.files {
		_ = r.SetReadDeadline(time.Unix(1, 0))
	}
	rs.wg.Wait()
	rs.close()
}

func (rs *readers) close() {
	for _, r := range rs.files {
		_ = r.Close()
	}
}
