package isolation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/tools/isolation/internal/helper"
)

// pool gives user ids to trees. Which tree has which is the owner of its work
// folder, and nothing else: an id is free when no folder has it.
type pool struct {
	ids    uidRange
	log    *slog.Logger
	helper string // program
	lock   *os.File
	aside  bool // the lock is where other servers may not look
	spare  bool // a test wants to see what a helper leaves
	// abandoned tells whether a tree has no work folder and no call uses or
	// makes it.
	abandoned func(tree int64) bool

	mu    sync.Mutex
	trees map[int64]int // guarded by mu
	users map[int]*user // guarded by mu
}

// user is one agent user over all trees.
type user struct {
	mu      sync.Mutex
	running int // guarded by mu
}

// lockName is the file whose bytes stand for user ids: a lock on the bytes of a
// range is refused exactly when another range that is locked overlaps it.
const lockName = "wp-durable-agent-uids"

// newPool takes the lock on the range. dirs are where the lock file may be, in
// order; the first that can be written is taken.
func newPool(ids uidRange, o *Options, dirs ...string) (*pool, error) {
	p := &pool{ids: ids, log: o.Logger, helper: o.helper, trees: map[int64]int{}, users: map[int]*user{}}
	var errs []error
	for i, dir := range dirs {
		f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		l := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(ids.first), Len: int64(ids.last - ids.first + 1)}
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &l); err != nil {
			_ = f.Close()
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
				return nil, fmt.Errorf("%w: %s", ErrRangeInUse, ids)
			}
			return nil, fmt.Errorf("lock user ids %s: %w", ids, err)
		}
		p.lock, p.aside = f, i > 0
		return p, nil
	}
	return nil, fmt.Errorf("lock user ids %s: %w", ids, errors.Join(errs...))
}

func (p *pool) close() error { return p.lock.Close() }

// take notes the owner of a work folder as the tree's user id, if the tree has
// none yet and may have this one: it is of the range and no other tree's.
func (p *pool) take(tree int64, uid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, has := p.trees[tree]
	if has || tree == probeTree || !p.ids.contains(uid) || !p.ids.single() && p.taken(uid, tree) {
		return
	}
	p.trees[tree] = uid
}

func (p *pool) taken(uid int, except int64) bool {
	for t, u := range p.trees {
		if u == uid && t != except {
			return true
		}
	}
	return false
}

// uid returns the tree's user id, giving it a free one when it has none.
func (p *pool) uid(tree int64) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if uid, ok := p.trees[tree]; ok {
		return uid, nil
	}
	if tree == probeTree {
		// Its folder is gone before any other is used.
		return p.ids.first, nil
	}
	if p.ids.single() {
		p.trees[tree] = p.ids.first
		return p.ids.first, nil
	}
	for range 2 {
		for uid := p.ids.first; uid <= p.ids.last; uid++ {
			if !p.taken(uid, tree) {
				p.trees[tree] = uid
				return uid, nil
			}
		}
		// Folders may have been deleted by others than us.
		for t := range p.trees {
			if p.abandoned(t) {
				delete(p.trees, t)
			}
		}
	}
	return 0, fmt.Errorf("%w: all of %s belong to trees; delete a work folder or widen WP_DURABLE_AGENT_UIDS", ErrLimit, p.ids)
}

// free takes the tree's user id back.
func (p *pool) free(tree int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.trees, tree)
}

func (p *pool) user(uid int) *user {
	p.mu.Lock()
	defer p.mu.Unlock()
	u := p.users[uid]
	if u == nil {
		u = &user{}
		p.users[uid] = u
	}
	return u
}

// begin counts a call of the user, and waits while its processes are being
// ended.
func (p *pool) begin(uid int) {
	u := p.user(uid)
	u.mu.Lock()
	u.running++
	u.mu.Unlock()
}

// end counts the end of a call. When it was the user's last, over all trees,
// whatever still runs as that user is killed: helpers end their own calls'
// processes, so this finds something only when one was killed itself.
func (p *pool) end(uid int) error {
	u := p.user(uid)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running--; u.running > 0 || p.spare {
		return nil
	}
	return p.sweep(uidRange{uid, uid})
}

// fresh clears a user before it works for another tree.
func (p *pool) fresh(uid int) error {
	u := p.user(uid)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.running > 0 || p.spare {
		return nil
	}
	return p.sweep(uidRange{uid, uid})
}

// sweep ends every process that runs as a user of ids, and removes what those
// users left in memory.
func (p *pool) sweep(ids uidRange) error {
	users, err := helper.Users(ids.first, ids.last)
	if err != nil {
		return fmt.Errorf("list processes: %w", err)
	}
	objects, err := helper.Objects(ids.first, ids.last)
	if err != nil {
		return fmt.Errorf("list shared memory: %w", err)
	}
	for uid := range objects {
		if _, listed := users[uid]; !listed {
			users[uid] = nil
		}
	}
	for uid, pids := range users {
		p.log.Warn("ending left-overs", "uid", uid, "processes", len(pids), "shared objects", objects[uid])
		cmd := exec.CommandContext(context.Background(), p.helper, helper.RoleKill, strconv.Itoa(uid))
		cmd.Env = []string{}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("kill processes of user %d: %w: %s", uid, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// selfExe is the program of whoever opens it, wherever its file is.
const selfExe = "/proc/self/exe"

// folderExists reports whether there is a folder at path.
func folderExists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
