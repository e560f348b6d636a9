package process

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// waitExit returns when the child has ended, without taking its exit status.
// waitid would also return when the child is stopped, so a kernel queue waits.
func waitExit(pid int) {
	queue, err := unix.Kqueue()
	if err != nil { // out of descriptors
		for !isZombie(pid) {
			<-time.After(10 * time.Millisecond)
		}
		return
	}
	defer unix.Close(queue)
	change := []unix.Kevent_t{{
		Ident: uint64(pid), Filter: unix.EVFILT_PROC, Flags: unix.EV_ADD | unix.EV_ONESHOT, Fflags: unix.NOTE_EXIT,
	}}
	events := make([]unix.Kevent_t, 1)
	for {
		n, err := unix.Kevent(queue, change, events, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n > 0 { // ESRCH: it has ended already
			return
		}
	}
}

// processes lists the ids of all processes.
func processes() []int {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	pids := make([]int, 0, len(list))
	for i := range list {
		pids = append(pids, int(list[i].Proc.P_pid))
	}
	return pids
}

// isZombie reports whether the process has ended and is only waited for.
func isZombie(pid int) bool {
	const zombie = 5 // SZOMB of sys/proc.h
	info, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	return err != nil || info.Proc.P_stat == zombie
}
