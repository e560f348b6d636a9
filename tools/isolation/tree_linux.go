package isolation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/wp-durable/wp-durable/durable/env/local"
)

// The names in a work folder that the server uses.
const tempDir = ".tmp"

// Prefixes of folders under work that are being made or deleted. What a crash
// leaves of them is deleted at the next start.
const (
	makingPrefix   = ".new-"
	deletingPrefix = ".gone-"
)

// tree is a tree's work folder.
type tree struct {
	id   int64
	path string
	// use is held for reading by calls, for writing while the folder is
	// deleted.
	//
	// Whoever opens the folder holds it too, so that the tree's user id goes
	// to no other tree meanwhile.
	use sync.RWMutex

	mu    sync.Mutex
	agent agent      // guarded by mu
	files *local.Env // guarded by mu; nil before the first use
	info  fs.FileInfo
}

func (h *host) treePath(id int64) string {
	return filepath.Join(h.work, strconv.FormatInt(id, 10))
}

func (h *host) tree(id int64) *tree {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.trees[id]
	if t == nil {
		t = &tree{id: id, path: h.treePath(id)}
		h.trees[id] = t
	}
	return t
}

// abandoned tells whether a tree has no work folder, and nobody uses or makes
// it: whoever gets a user id for a tree holds the tree until the folder is
// there, and while a command runs.
func (h *host) abandoned(id int64) bool {
	t := h.tree(id)
	if folderExists(t.path) || !t.use.TryLock() {
		return false
	}
	defer t.use.Unlock()
	return !folderExists(t.path)
}

// open returns the tree's files and agent, making the folder when it is not
// there.
func (h *host) open(t *tree) (*local.Env, agent, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	info, err := os.Lstat(t.path)
	if err == nil && t.files != nil && os.SameFile(info, t.info) && ownerIs(info, t.info) {
		return t.files, t.agent, unlock(t.path, t.agent, info)
	}
	if errors.Is(err, fs.ErrNotExist) {
		info, err = h.make(t)
	}
	if err != nil {
		return nil, agent{}, fmt.Errorf("work folder of tree %d: %w", t.id, err)
	}
	if !info.IsDir() {
		return nil, agent{}, fmt.Errorf("work folder of tree %d is no folder", t.id)
	}
	a, err := h.own(t, info)
	if err == nil {
		info, err = os.Lstat(t.path) // it may have a new owner
	}
	if err != nil {
		return nil, agent{}, fmt.Errorf("work folder of tree %d: %w", t.id, err)
	}
	if h.weak("fsuid") {
		a = agent{}
	}
	var files *local.Env
	if err := unlock(t.path, a, info); err != nil {
		return nil, agent{}, fmt.Errorf("work folder of tree %d: %w", t.id, err)
	}
	err = a.do(func() error {
		if err := os.MkdirAll(filepath.Join(t.path, tempDir), 0o700); err != nil {
			return err
		}
		var err error
		files, err = local.New(t.path, &local.Options{ID: "workdir:" + t.path})
		return err
	})
	if err != nil {
		return nil, agent{}, fmt.Errorf("open work folder of tree %d: %w", t.id, err)
	}
	if t.files != nil {
		_ = t.files.Close()
	}
	t.files, t.agent, t.info = files, a, info
	return files, a, nil
}

// ownerIs reports whether two looks at a folder show the same owner.
func ownerIs(a, b fs.FileInfo) bool {
	return a.Sys().(*syscall.Stat_t).Uid == b.Sys().(*syscall.Stat_t).Uid
}

// unlock sets the mode of a work folder that a command has changed: an agent
// that shut its own folder could not run the command to open it again.
func unlock(path string, a agent, info fs.FileInfo) error {
	if info.Mode().Perm() == 0o700 {
		return nil
	}
	return a.do(func() error { return os.Chmod(path, 0o700) })
}

// agentOf is who the tree's folder must belong to.
func (h *host) agentOf(id int64) (agent, error) {
	if h.pool == nil {
		return agent{uid: os.Getuid(), gid: os.Getgid()}, nil
	}
	uid, err := h.pool.uid(id)
	return agent{uid: uid, gid: uid, other: true}, err
}

// make makes a work folder under another name and gives it its own when it is
// complete, so that a crash leaves none that belongs to root.
func (h *host) make(t *tree) (fs.FileInfo, error) {
	a, err := h.agentOf(t.id)
	if err != nil {
		return nil, err
	}
	if h.pool != nil && !h.shared() {
		if err := h.pool.fresh(a.uid); err != nil {
			return nil, err
		}
	}
	temp := filepath.Join(h.work, makingPrefix+strconv.FormatInt(t.id, 10))
	if err := os.RemoveAll(temp); err != nil {
		return nil, err
	}
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	if a.other {
		if err := os.Lchown(temp, a.uid, a.gid); err != nil {
			return nil, err
		}
	}
	if err := os.Rename(temp, t.path); err != nil {
		return nil, err
	}
	return os.Lstat(t.path)
}

// own returns the agent of a folder that is there, handing the folder to it
// when it belongs to another.
func (h *host) own(t *tree, info fs.FileInfo) (agent, error) {
	if h.pool == nil {
		return h.agentOf(t.id)
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if owner == 0 {
		return agent{}, errors.New("belongs to root")
	}
	h.pool.take(t.id, owner)
	a, err := h.agentOf(t.id)
	if err != nil || a.uid == owner {
		return a, err
	}
	h.opts.Logger.Info("handing a work folder over", "tree", t.id, "from", owner, "to", a.uid)
	return a, handOver(t.path, agent{uid: owner, gid: owner, other: true}, a)
}

// adopt looks at the work folders that are there: it sets their modes, notes
// whose they are, and hands those of other users over. It returns what is
// wrong with entries that are no work folders.
func (h *host) adopt() (problems []string, err error) {
	entries, err := os.ReadDir(h.work)
	if err != nil {
		return nil, err
	}
	type found struct {
		t    *tree
		info fs.FileInfo
	}
	var folders []found
	for _, e := range entries {
		path := filepath.Join(h.work, e.Name())
		if strings.HasPrefix(e.Name(), makingPrefix) || strings.HasPrefix(e.Name(), deletingPrefix) || e.Name() == "0" {
			if err := h.discard(path); err != nil {
				return nil, err
			}
			continue
		}
		id, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || id < 0 || strconv.FormatInt(id, 10) != e.Name() || !e.IsDir() {
			problems = append(problems, fmt.Sprintf("%s is not a work folder: move it away", path))
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		if h.pool != nil && info.Sys().(*syscall.Stat_t).Uid == 0 {
			problems = append(problems, fmt.Sprintf("%s belongs to root: give it to user %d with chown -R, or delete it", path, h.pool.ids.first))
			continue
		}
		folders = append(folders, found{h.tree(id), info})
		// Those that keep their user id come before any that needs a new one.
		if h.pool != nil {
			h.pool.take(id, int(info.Sys().(*syscall.Stat_t).Uid))
		}
	}
	for _, f := range folders {
		a, err := h.own(f.t, f.info)
		if err != nil {
			// This tree's calls will say so.
			h.opts.Logger.Error("work folder cannot be used", "tree", f.t.id, "error", err)
			continue
		}
		if err := a.do(func() error { return os.Chmod(f.t.path, 0o700) }); err != nil {
			return nil, err
		}
	}
	return problems, nil
}

func (h *host) remove(_ context.Context, id int64) error {
	done, err := h.begin()
	if err != nil {
		return fmt.Errorf("remove work folder of tree %d: %w", id, err)
	}
	defer done()
	t := h.tree(id)
	if !t.use.TryLock() {
		return fmt.Errorf("remove work folder of tree %d: %w", id, ErrBusy)
	}
	defer t.use.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.files != nil {
		_ = t.files.Close()
		t.files, t.info = nil, nil
	}
	gone := filepath.Join(h.work, deletingPrefix+strconv.FormatInt(id, 10))
	err = os.Rename(t.path, gone)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	} else if err == nil {
		err = h.discard(gone)
	}
	if err != nil {
		return fmt.Errorf("remove work folder of tree %d: %w", id, err)
	}
	if h.pool != nil {
		h.pool.free(id)
	}
	return nil
}

func (h *host) size(ctx context.Context, id int64) (bytes, entries int64, err error) {
	done, err := h.begin()
	if err != nil {
		return 0, 0, fmt.Errorf("size of tree %d: %w", id, err)
	}
	defer done()
	t := h.tree(id)
	t.use.RLock()
	defer t.use.RUnlock()
	if !folderExists(t.path) {
		return 0, 0, nil
	}
	_, a, err := h.open(t)
	if err != nil {
		return 0, 0, err
	}
	err = a.do(func() error {
		root, err := os.OpenRoot(t.path)
		if err != nil {
			return err
		}
		defer root.Close()
		return fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil || d == nil {
				return nil // gone since, or shut by its owner
			}
			entries++
			if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
				bytes += info.Size()
			}
			return nil
		})
	})
	return bytes, entries, err
}
