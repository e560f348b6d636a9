// Package isolation gives conversations work folders whose commands can reach
// nothing else: environments (package env) at the strongest level that works
// where the server runs (S6).
//
//	root      the server is root in a container or VM. Commands and file
//	          operations have the rights of an agent user without capabilities;
//	          a range of user ids gives each tree its own. Landlock and a
//	          system call filter come on top where the kernel has them.
//	bwrap     an ordinary user, with bubblewrap: namespaces in which only the
//	          system's programs and the work folder exist.
//	landlock  an ordinary user without it: Landlock (ABI 6 or newer) and a
//	          system call filter, which shuts what Landlock leaves open.
//	none      anything else, and other systems: tools are off.
//
// [Open] finds the level, and tries every promise of it for real. A promise
// that does not hold turns the tools off; there is never a silent fallback to
// less. [Manager.Status] says which level it is, how it is weaker than others,
// and what each check did.
//
// A command is started through two helper processes, which are this program
// again (package internal/helper says how). Every program that opens a manager
// calls [Main] first thing in main.
//
// # Errors
//
//	no level here, or a check failed            ErrUnavailable
//	no user id is free for a tree               ErrLimit, in an env.Error
//	another server has some of the user ids     ErrRangeInUse
//	another server uses the data folder         ErrDataInUse
//	a work folder is removed while in use       ErrBusy
//	the manager was closed                      ErrClosed
//	main does not call Main                     ErrNotHooked
//
// The package depends on packages env, env/local and env/process, and on
// nothing else of this module; the server passes it settings and shows its
// status.
package isolation
