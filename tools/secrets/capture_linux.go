package secrets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE

// leave executes the program again without the secrets. It returns only when
// that was not possible.
func (e *Environment) leave() error {
	data, err := json.Marshal(sealed{Env: e.secret, Flags: e.flags, Dropped: e.Dropped, Copied: e.Copied})
	if err != nil {
		return fmt.Errorf("capture secrets: %w", err)
	}
	fd, err := memoryFile(data, unix.MemfdCreate)
	if err != nil {
		return fmt.Errorf("capture secrets: %w", err)
	}
	environ := []string{marker + "=" + strconv.Itoa(fd)}
	for name, value := range e.public {
		environ = append(environ, name+"="+value)
	}
	slices.Sort(environ)
	argv := append([]string{os.Args[0]}, e.Args...)
	err = unix.Exec(program(), argv, environ)
	_ = unix.Close(fd)
	return fmt.Errorf("capture secrets: execute the program again: %w", err)
}

// program returns the path of the running program: by name, which ps shows,
// unless that names another file by now.
func program() string {
	const self = "/proc/self/exe"
	path, err := os.Readlink(self)
	if err != nil {
		return self
	}
	a, errA := os.Stat(path)
	b, errB := os.Stat(self)
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		return self
	}
	return path
}

// memoryFile returns an open file in memory that holds data, can no longer be
// changed, and stays open over an exec. It cannot be executed, where the kernel
// knows such files; some are set to refuse others.
func memoryFile(data []byte, create func(name string, flags int) (int, error)) (int, error) {
	fd, err := create("secrets", unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // a kernel before 6.3
		fd, err = create("secrets", unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return 0, fmt.Errorf("make a file in memory: %w", err)
	}
	if _, err := unix.Write(fd, data); err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("write the file in memory: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("seal the file in memory: %w", err)
	}
	return fd, nil
}

// receive reads what leave handed over and closes it.
func receive(handover string) (*sealed, error) {
	fd, err := strconv.Atoi(handover)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%q is no file descriptor", marker, handover)
	}
	// Only a sealed memory file is ours: anything else was put there by
	// whoever set the variable. The kernel may have added seals.
	if got, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err != nil || got&seals != seals {
		return nil, fmt.Errorf("%s=%d: not a file of this program", marker, fd)
	}
	f := os.NewFile(uintptr(fd), "secrets")
	data, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<24))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("read the secrets: %w", err)
	}
	var s sealed
	if err := json.Unmarshal(data, &s); err != nil {
		return nil, fmt.Errorf("read the secrets: %w", err)
	}
	return &s, nil
}

// protect forbids other processes of the user to read this one's memory,
// environment and open files; it also means no core dumps.
func protect() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("capture secrets: forbid others to look: %w", err)
	}
	return nil
}
