//go:build unix

package process

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// endTimeout is how long EndSession waits for killed processes to be gone; one
// that hangs in the kernel can outlast any patience.
const endTimeout = 5 * time.Second

// EndSession kills the processes of the session that p leads, with SIGKILL.
// With exited false it kills p and its process group. With exited true, when p
// has ended but was not waited for, so that its id is still its own, it kills
// whatever is left in the session, also in process groups of a shell's jobs,
// and returns when nothing is. A process that made a session of its own is not
// found.
func EndSession(p *os.Process, exited bool) {
	_ = unix.Kill(-p.Pid, unix.SIGKILL)
	if !exited {
		return
	}
	deadline := time.NewTimer(endTimeout)
	defer deadline.Stop()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		left := false
		for _, pid := range processes() {
			if pid == p.Pid {
				continue
			}
			if sid, err := unix.Getsid(pid); err != nil || sid != p.Pid || isZombie(pid) {
				continue
			}
			// one that may not be killed will not go away by waiting
			if err := unix.Kill(pid, unix.SIGKILL); err == nil || errors.Is(err, unix.EINTR) {
				left = true
			}
		}
		if !left {
			return
		}
		wait := time.NewTimer(pause)
		select {
		case <-wait.C:
		case <-deadline.C:
			wait.Stop()
			return
		}
	}
}
