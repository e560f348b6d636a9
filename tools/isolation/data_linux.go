package isolation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
)

// The folders of a data folder.
const (
	workName  = "work"
	spillName = ".spill"
	probeName = ".isolation-probe"
	ownName   = ".isolation" // what the levels need on disk
)

// notData are folders that are surely not a data folder: their modes must not
// be touched.
var notData = []string{
	"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib64", "/mnt", "/opt",
	"/proc", "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/local", "/var", "/var/lib", "/var/tmp",
}

// dataDir makes the data folder if needed and returns its real path.
func dataDir(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("data folder: %w", err)
	}
	home, _ := os.UserHomeDir()
	if slices.Contains(notData, real) || real == home {
		return "", fmt.Errorf("data folder: %s is no folder for data alone; name one below it", real)
	}
	return real, nil
}

// claim takes the locks on the data folder. One is the server's alone; the other
// is also held by the helper of each call, so it is free only when all that an
// earlier server started is gone. What has just lost its server is waited for.
func (h *host) claim(ctx context.Context) error {
	const patience = 10 * time.Second
	own := filepath.Join(h.data, ownName)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	open := func(name string) (*os.File, error) {
		return os.OpenFile(filepath.Join(own, name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	var err error
	if h.lock, err = open("server.lock"); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := unix.Flock(int(h.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("lock data folder %s: %w: %w", h.data, ErrDataInUse, err)
	}
	if h.calls, err = open("calls.lock"); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	fd := int(h.calls.Fd())
	for deadline := time.Now().Add(patience); ; {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			// Nobody else takes it: the server's lock is held.
			return unix.Flock(fd, unix.LOCK_SH)
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			return fmt.Errorf("lock data folder %s: %w: a command of an earlier server still runs", h.data, ErrDataInUse)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("lock data folder %s: %w", h.data, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// setModes gives everything in the data folder to the server alone, and lets
// agents through to their work folders (S6.2).
func (h *host) setModes() error {
	through, list := fs.FileMode(0o700), fs.FileMode(0o700)
	if h.pool != nil {
		through, list = 0o711, 0o755
	}
	for name, mode := range map[string]fs.FileMode{workName: list, spillName: 0o700, ownName: 0o700} {
		if err := os.Mkdir(filepath.Join(h.data, name), mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("data folder: %w", err)
		}
	}
	if h.weak("modes") {
		return nil
	}
	entries, err := os.ReadDir(h.data)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	set := func(path string, mode fs.FileMode) error {
		if h.pool != nil {
			if err := os.Lchown(path, 0, 0); err != nil {
				return err
			}
		}
		return os.Chmod(path, mode)
	}
	errs := []error{set(h.data, through)}
	for _, e := range entries {
		path := filepath.Join(h.data, e.Name())
		switch {
		case e.Name() == workName:
			errs = append(errs, set(path, list))
		case e.IsDir():
			errs = append(errs, set(path, 0o700))
		case e.Type().IsRegular():
			errs = append(errs, set(path, 0o600))
		}
	}
	for _, path := range h.opts.Private {
		if err := os.Chmod(path, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("data folder: set modes: %w", err)
	}
	return nil
}

// blocked returns the folder above the work folders that the agent cannot
// enter, empty when there is none.
func (h *host) blocked(a agent) string {
	var dirs []string
	for dir := h.work; ; dir = filepath.Dir(dir) {
		dirs = append(dirs, dir)
		if dir == "/" {
			break
		}
	}
	for _, dir := range slices.Backward(dirs) {
		err := a.do(func() error {
			_, err := os.Stat(dir + "/.")
			return err
		})
		if errors.Is(err, fs.ErrPermission) {
			return dir
		}
	}
	return ""
}

// rescueSpills puts what commands printed before a crash where the model looks
// for it.
func (h *host) rescueSpills(ctx context.Context) error {
	dirs, err := os.ReadDir(h.spill)
	if err != nil {
		return fmt.Errorf("spill folder: %w", err)
	}
	for _, d := range dirs {
		dir := filepath.Join(h.spill, d.Name())
		if id, err := strconv.ParseInt(d.Name(), 10, 64); err == nil && id > 0 && folderExists(h.treePath(id)) {
			e := &environment{host: h, tree: h.tree(id), conversation: id}
			files, _ := os.ReadDir(dir)
			for _, f := range files {
				if err := e.rescue(ctx, dir, f.Name()); err != nil {
					h.opts.Logger.Error("output of an interrupted command is lost", "tree", id, "file", f.Name(), "error", err)
				}
			}
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("spill folder: %w", err)
		}
	}
	return nil
}

func (e *environment) rescue(ctx context.Context, dir, name string) error {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = e.publish(ctx, name, f)
	return err
}

// publish puts a finished spill file where the command's conversation can read
// it.
func (e *environment) publish(ctx context.Context, name string, r io.Reader) (string, error) {
	to := path.Join(tempDir, name)
	return to, feed(r, func(r io.Reader) error {
		// Also while the manager closes: the command is part of what it waits for.
		return e.inFolder(func(files *local.Env) error {
			return files.Write(ctx, to, r, env.WriteOptions{Mode: 0o600})
		})
	})
}

// inside reports whether path is dir or in it.
func inside(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}
