package helper

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// killPatience bounds how long killUser goes on: a process in the middle of a
// stuck disk operation cannot die, and the caller must hear of it.
const killPatience = 20 * time.Second

// killUser is the role that ends every process of one user and removes what
// they left in memory. It becomes that user and signals all it may, which the
// kernel does in one step that no fork can outrun.
func killUser() error {
	if len(os.Args) < 3 {
		return errors.New("no user given")
	}
	uid, err := strconv.Atoi(os.Args[2])
	if err != nil || uid <= 0 {
		return fmt.Errorf("refuse to kill user %q", os.Args[2])
	}
	if err := setThreadUser(uid, uid, false); err != nil {
		return err
	}
	// To signal everything as another user would be a catastrophe.
	r, e, s := unix.Getresuid()
	if r != uid || e != uid || s != uid {
		return fmt.Errorf("still user %d/%d/%d", r, e, s)
	}
	status, err := readStatus("/proc/thread-self/status")
	if err != nil {
		return err
	}
	for i, set := range status.Caps[1:3] {
		if set != 0 {
			return fmt.Errorf("%s is still %x", capSets[i+1], set)
		}
	}
	for deadline := time.Now().Add(killPatience); ; time.Sleep(2 * time.Millisecond) {
		users, err := Users(uid, uid)
		if err != nil {
			return err
		}
		others := 0
		for _, pid := range users[uid] {
			if pid != os.Getpid() {
				others++
			}
		}
		if others == 0 {
			return removeObjects(uid)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of user %d do not die", others, uid)
		}
		_ = unix.Kill(-1, unix.SIGKILL)
	}
}
