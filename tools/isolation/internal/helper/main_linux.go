package helper

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync/atomic"
)

var hooked atomic.Bool

// Main turns the process into a helper when it was started as one, and never
// returns then. Otherwise it returns at once. It must be the first call of
// main, before anything is read, opened or started.
func Main() {
	hooked.Store(true)
	if len(os.Args) < 2 {
		return
	}
	var role func() error
	switch os.Args[1] {
	case RoleRun:
		role = supervise
	case RoleExec:
		role = descend
	case RoleProbe:
		role = probe
	case RoleKill:
		role = killUser
	default:
		return
	}
	// Rights are those of a thread. Each role works on one and never leaves it.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	if err := role(); err != nil {
		fmt.Fprintf(os.Stderr, "wp-durable %s: %v\n", os.Args[1], err)
		os.Exit(126)
	}
	os.Exit(0)
}

// Hooked tells whether Main was called in this process: without it a helper
// would be a second copy of the program.
func Hooked() bool { return hooked.Load() }
