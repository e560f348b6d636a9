package sqlite

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable"
)

// lock is the right of one process, and one store in it, to a database.
type lock struct{ file *os.File }

// holder is what the lock file says about who has it.
type holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	Started time.Time `json:"started"`
}

// takeLock locks the file at path, or fails with ErrStoreInUse.
func takeLock(path string) (_ *lock, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	// A flock belongs to the open file: another Open in this process meets it,
	// and the system drops it when the process ends.
	switch err := flock(f, unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, fmt.Errorf("%w: %s is locked by %s", durable.ErrStoreInUse, path, readHolder(f))
	case err != nil:
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	text, err := json.Marshal(holder{PID: os.Getpid(), Host: host, Started: time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if err := errors.Join(f.Chmod(0o600), f.Truncate(0)); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	if _, err := f.WriteAt(append(text, '\n'), 0); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &lock{f}, nil
}

func flock(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// release gives the lock up. The file stays: removing it would let two
// processes lock two files of the same name.
func (l *lock) release() error {
	// Unlocking comes first, because a process that is just being started has
	// the open file, too, until it becomes another program.
	err := flock(l.file, unix.LOCK_UN)
	if err := errors.Join(err, l.file.Close()); err != nil {
		return fmt.Errorf("release lock: %w", err)
	}
	return nil
}

// readHolder says who has the lock, as far as the file tells.
func readHolder(f *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 4096))
	var h holder
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID == 0 {
		return "an unknown process"
	}
	return fmt.Sprintf("process %d on %s, started %s", h.PID, h.Host, h.Started.Format(time.RFC3339))
}
