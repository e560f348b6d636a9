package host

import (
	"os"
	"syscall"
)

// killSelf ends the process as a crash would, without a chance to tidy up.
func killSelf() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal comes
}
