package isolation

import "errors"

// The errors callers can tell apart with errors.Is. Those of an environment's
// methods are [*env.Error] that wrap them.
var (
	// ErrUnavailable: there is no isolation here, or its self-test failed;
	// commands and files are off. The message holds the reason.
	ErrUnavailable = errors.New("isolation is not available")
	// ErrLimit: every user id of the range belongs to a tree.
	ErrLimit = errors.New("limit reached: no agent user id is free")
	// ErrRangeInUse: another server has some of the user ids.
	ErrRangeInUse = errors.New("agent user ids are in use by another server")
	// ErrDataInUse: another server, or a command that one left, uses the data
	// folder.
	ErrDataInUse = errors.New("data folder is in use")
	// ErrBusy: commands run in the work folder.
	ErrBusy = errors.New("work folder is in use")
	// ErrClosed: the manager was closed.
	ErrClosed = errors.New("isolation is closed")
	// ErrNotHooked: the program does not call [Main] first thing in main.
	ErrNotHooked = errors.New("isolation.Main was not called")
)
