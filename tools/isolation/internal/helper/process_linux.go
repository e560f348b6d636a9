package helper

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// closeOnExec marks every descriptor from first on, so that none which the
// program that started us left open reaches a command.
func closeOnExec(first uint) error {
	err := unix.CloseRange(first, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if err == nil {
		return nil
	}
	// Kernels before 5.11 and some container profiles do not have it.
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list descriptors: %w", err)
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err == nil && uint(fd) >= first {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}

// process is one line of the process list.
type process struct {
	pid, parent int
	dead        bool
}

// pids lists the processes that this process may see.
func pids() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var list []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			list = append(list, pid)
		}
	}
	return list, nil
}

// processes lists what runs now and who started it.
func processes() ([]process, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	var list []process
	for _, pid := range all {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue // it has ended
		}
		// The name in parentheses may hold anything; the fields follow it.
		end := bytes.LastIndexByte(b, ')')
		if end < 0 {
			continue
		}
		fields := strings.Fields(string(b[end+1:]))
		if len(fields) < 18 {
			continue
		}
		parent, _ := strconv.Atoi(fields[1])
		threads, _ := strconv.Atoi(fields[17])
		list = append(list, process{pid: pid, parent: parent, dead: isDead(fields[0], threads)})
	}
	return list, nil
}

// isDead tells whether no thread of a process runs any more. One whose first
// thread has ended is shown as a zombie while others run.
func isDead(state string, threads int) bool {
	return state == "X" || state == "Z" && threads <= 1
}

// descendants lists the children of pid, theirs, and so on.
func descendants(pid int) []process {
	all, err := processes()
	if err != nil {
		return nil
	}
	children := make(map[int][]process)
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []process
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		found = append(found, children[queue[0]]...)
		for _, p := range children[queue[0]] {
			queue = append(queue, p.pid)
		}
	}
	return found
}

// Users lists the processes, by user id, that run as one of the real,
// effective or saved ids between first and last. Dead ones do not count.
func Users(first, last int) (map[int][]int, error) {
	all, err := pids()
	if err != nil {
		return nil, err
	}
	users := make(map[int][]int)
	for _, pid := range all {
		s, err := readStatus("/proc/" + strconv.Itoa(pid) + "/status")
		if err != nil || s.Dead {
			continue
		}
		seen := make(map[int]bool)
		for _, uid := range s.UIDs[:3] {
			if uid >= first && uid <= last && !seen[uid] {
				seen[uid] = true
				users[uid] = append(users[uid], pid)
			}
		}
	}
	return users, nil
}

// countTasks counts the threads of a user, which is what the kernel counts
// against the process limit.
func countTasks(uid int) (int, error) {
	all, err := pids()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, pid := range all {
		s, err := readStatus("/proc/" + strconv.Itoa(pid) + "/status")
		if err == nil && s.UIDs[0] == uid {
			n += max(s.Threads, 1)
		}
	}
	return n, nil
}

// ProcHides tells whether /proc may keep a process of another kind from this
// one, such as one of its own user that does not let itself be looked into: what
// cannot be seen cannot be ended.
func ProcHides() (bool, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false, err
	}
	s, err := readStatus("/proc/self/status")
	if err != nil {
		return false, err
	}
	return procHides(string(mounts), s), nil
}

func procHides(mounts string, s Status) bool {
	mode, group := "", 0
	for line := range strings.Lines(mounts) {
		where, what, _ := strings.Cut(line, " - ")
		fields, source := strings.Fields(where), strings.Fields(what)
		if len(fields) < 5 || fields[4] != "/proc" || len(source) < 3 {
			continue
		}
		mode, group = "", 0 // the last mount lies on top
		for option := range strings.SplitSeq(source[2], ",") {
			switch name, value, _ := strings.Cut(option, "="); name {
			case "hidepid":
				mode = value
			case "gid":
				group, _ = strconv.Atoi(value)
			}
		}
	}
	const effective = 2
	switch mode {
	case "", "0", "off":
		return false
	case "1", "noaccess", "2", "invisible":
		if s.GIDs[3] == group || slices.Contains(s.Groups, group) {
			return false
		}
	}
	return s.Caps[effective]&(1<<unix.CAP_SYS_PTRACE) == 0
}
