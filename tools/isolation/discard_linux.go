package isolation

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// discard deletes a folder under work and all in it. What is in it goes with
// the rights of its owner, which is all that is needed, and all that a link in
// it could misuse.
func (h *host) discard(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if owner := int(info.Sys().(*syscall.Stat_t).Uid); h.pool != nil && owner != 0 && info.IsDir() {
		a := agent{uid: owner, gid: owner, other: true}
		err := a.do(func() error {
			entries, err := os.ReadDir(path)
			for _, e := range entries {
				err = errors.Join(err, removeAll(filepath.Join(path, e.Name())))
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrPermission) {
			return err
		}
	}
	return removeAll(path)
}

// removeAll deletes a folder and all in it, also folders that were shut by
// their owner. It follows no link.
func removeAll(path string) error {
	err := os.RemoveAll(path)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer root.Close()
	base := filepath.Base(path)
	// A folder is opened up before what is in it is looked at.
	_ = fs.WalkDir(root.FS(), base, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			_ = root.Chmod(p, 0o700)
		}
		return nil
	})
	return os.RemoveAll(path)
}
