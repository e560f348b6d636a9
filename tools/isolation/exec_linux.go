package isolation

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
	"github.com/wp-durable/wp-durable/durable/env/process"
	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// killPatience is how long a supervisor may take to end a call before it is
// killed itself. It only has to signal and wait; a process that hangs in the
// kernel is all that can hold it up.
const killPatience = 30 * time.Second

// Exec runs a command as the agent. It waits while ConcurrentCommands run.
func (e *environment) Exec(ctx context.Context, req env.ExecRequest) (env.ExecResult, error) {
	res := env.ExecResult{ExitCode: -1}
	if (req.Command == "") == (len(req.Argv) == 0) {
		return res, &env.Error{Code: env.Invalid, Message: "exactly one of Command and Argv must be set"}
	}
	done, err := e.host.begin()
	if err != nil {
		return res, stopping(err)
	}
	defer done()
	select {
	case e.host.slots <- struct{}{}:
		defer func() { <-e.host.slots }()
	case <-ctx.Done():
		return res, &env.Error{Code: env.Aborted, Message: "the command was aborted", Err: context.Cause(ctx)}
	case <-e.host.closing.Done():
		return res, stopping(ErrClosed)
	}
	e.tree.use.RLock()
	defer e.tree.use.RUnlock()
	dir, err := e.startDir(ctx, req.Dir)
	if err != nil {
		return res, noStart(err, req.Dir)
	}
	argv := req.Argv
	if req.Command != "" {
		argv = []string{e.host.shell, "-c", req.Command}
	}
	plan, err := e.plan(argv, dir)
	if err != nil {
		return res, unusable(err)
	}
	return e.run(ctx, req, plan)
}

// startDir checks the folder to start in and returns its path. The command
// enters it with its own rights.
func (e *environment) startDir(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		// The folder is made and opened all the same.
		dir = "."
	}
	err := e.inFolder(func(files *local.Env) error {
		_ = files.Mkdir(ctx, tempDir) // a command may have deleted it
		info, err := files.Stat(ctx, dir)
		if err == nil && !info.Mode.IsDir() {
			err = &env.Error{Code: env.NotDirectory, Path: dir, Message: "is not a directory"}
		}
		return err
	})
	if path.IsAbs(dir) {
		return filepath.Clean(dir), err
	}
	return filepath.Join(e.tree.path, dir), err
}

// noStart makes an error of a folder that a command cannot start in.
func noStart(err error, dir string) error {
	var e *env.Error
	if !errors.As(err, &e) || e.Code == env.NotSupported || e.Code == env.Aborted || dir == "" {
		return err
	}
	return &env.Error{Code: env.SpawnFailed, Path: dir, Message: e.Message, Err: err}
}

// run runs a plan: through a supervisor that ends with the call, and takes all
// the call started with it.
func (e *environment) run(ctx context.Context, req env.ExecRequest, plan *helper.Plan) (env.ExecResult, error) {
	h := e.host
	res := env.ExecResult{ExitCode: -1}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.closing, func() { cancel(ErrClosed) })()
	if plan.Switch {
		h.pool.begin(plan.UID)
		defer func() {
			if err := h.pool.end(plan.UID); err != nil {
				h.opts.Logger.Error("left-over processes", "uid", plan.UID, "error", err)
			}
		}()
	}
	spill := filepath.Join(h.spill, strconv.FormatInt(e.tree.id, 10))
	if req.Spill != nil {
		if err := os.MkdirAll(spill, 0o700); err != nil {
			return res, &env.Error{Code: env.Unknown, Message: "no place for the output", Err: err}
		}
	}
	s, err := newSupervisor(ctx, h, plan)
	if err != nil {
		return res, spawnFailed(err)
	}
	defer s.close()
	// The kernel ends bubblewrap with the thread that started it, so that
	// thread stays until the end.
	runtime.LockOSThread()
	res, err = process.Run(ctx, &process.Command{Cmd: s.cmd, End: s.end, SpillDir: spill, Publish: e.publish}, req)
	runtime.UnlockOSThread()
	if s.cmd.Process == nil {
		return res, err
	}
	report, reported := s.report()
	switch {
	case err != nil:
		return res, err
	case !reported:
		h.opts.Logger.Error("supervisor ended without a report", "tree", e.tree.id, "exit", s.cmd.ProcessState.String())
		return env.ExecResult{ExitCode: -1, SpillPath: res.SpillPath, SpillBytes: res.SpillBytes, SpillError: res.SpillError},
			&env.Error{Code: env.Unknown, Message: "how the command ended is not known"}
	case report.Error != "":
		if report.Stage == helper.StageDescent {
			h.opts.Logger.Error("command was not started", "tree", e.tree.id, "stage", report.Stage, "error", report.Error)
		}
		res.ExitCode = -1
		return res, h.refused(report, plan)
	}
	res.ExitCode, res.Signal = report.ExitCode, ""
	if report.Signal != 0 {
		res.ExitCode, res.Signal = -1, unix.SignalName(syscall.Signal(report.Signal))
	}
	return res, nil
}

// refused is why a command did not start, in words for the model.
func (h *host) refused(r helper.Report, plan *helper.Plan) error {
	err := &env.Error{Code: env.SpawnFailed, Err: fmt.Errorf("%s: %s", r.Stage, r.Error)}
	errno := syscall.Errno(r.Errno)
	switch {
	case errno == syscall.EAGAIN:
		err.Message = h.tooMany()
	case r.Stage == helper.StageDir:
		err.Message = "the folder to start in cannot be entered: " + errno.Error()
	case r.Stage == helper.StageDescent:
		err.Message = "the command could not be isolated, so it was not started"
	case errno == syscall.ENOENT:
		err.Message = plan.Argv[0] + ": program not found"
	case errno == syscall.E2BIG:
		err.Code, err.Message = env.TooLarge, "the command is too long"
	case errno == 0:
		err.Message = "the command could not be started"
	default:
		err.Message = "the command could not be started: " + errno.Error()
	}
	return err
}

// tooMany names the likely cause of a refused fork.
func (h *host) tooMany() string {
	if h.level == Root {
		return fmt.Sprintf("too many processes: the agent user runs %d already. Process limits count per user id over the whole machine, "+
			"so another container or server with the same WP_DURABLE_AGENT_UIDS (%s) is the likely cause", h.opts.NPROC, h.opts.AgentUIDs)
	}
	return "too many processes: the limit of the user is reached"
}

func spawnFailed(err error) error {
	return &env.Error{Code: env.SpawnFailed, Message: "the command could not be started", Err: err}
}

// supervisor is the helper process of one call, as its caller sees it.
type supervisor struct {
	cmd  *exec.Cmd
	plan *os.File // its end ends the call
	back *os.File // brings the report
	ours []*os.File

	wg   sync.WaitGroup
	once sync.Once
	late *time.Timer // set when the call is being ended
}

func newSupervisor(ctx context.Context, h *host, plan *helper.Plan) (*supervisor, error) {
	s := &supervisor{}
	planEnd, planFile, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	back, backEnd, err := os.Pipe()
	if err != nil {
		_ = planEnd.Close()
		_ = planFile.Close()
		return nil, err
	}
	s.plan, s.back, s.ours = planFile, back, []*os.File{planEnd, backEnd}
	s.cmd = h.command(ctx, plan)
	s.cmd.ExtraFiles = append([]*os.File{planEnd, backEnd, h.calls}, s.cmd.ExtraFiles...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.wg.Go(func() {
		// A plan may be larger than a pipe. The other end stays open here too,
		// so this ends when the supervisor has read or s is closed.
		_ = helper.WriteFrame(planFile, plan)
	})
	return s, nil
}

// end ends the call: the supervisor sees its plan end, kills everything and
// ends itself.
func (s *supervisor) end(p *os.Process, exited bool) {
	if exited {
		return
	}
	s.once.Do(func() {
		_ = s.plan.Close()
		s.late = time.AfterFunc(killPatience, func() { _ = p.Kill() })
	})
}

// report returns what the supervisor said, once it has ended.
func (s *supervisor) report() (helper.Report, bool) {
	for _, f := range s.ours {
		_ = f.Close()
	}
	var r helper.Report
	return r, helper.ReadFrame(s.back, &r) == nil
}

func (s *supervisor) close() {
	if s.late != nil {
		s.late.Stop()
	}
	for _, f := range append(s.ours, s.plan) {
		_ = f.Close()
	}
	s.wg.Wait()
	_ = s.back.Close()
}
