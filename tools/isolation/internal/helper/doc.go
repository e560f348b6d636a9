// Package helper is the part of the isolation that runs in other processes:
// the program starts its own binary again, and [Main], called first thing in
// main, turns that process into one of these roles.
//
//	server ── starts ──> supervisor (__run)    reads a Plan, is child subreaper,
//	                        │                  holds no right a command could
//	                        │                  take, kills what is left at the end
//	                        └─ starts ──> descent (__exec)  gives up every right,
//	                                         reads back what it still has, and
//	                                         becomes the command by exec
//
// At the level root the supervisor stays root, so a command can neither signal
// nor trace it. At the level landlock it stays outside the commands' Landlock
// domain, which has the same effect. At the level bwrap it is process 1 of the
// namespace, and its end is the end of everything in it.
//
// Two more roles exist: __probe tells what a command can do (the self-test
// starts it exactly as it starts a command), __kill ends all processes of one
// user id.
//
// The package depends on nothing of this module and on no part of the server:
// its processes must start fast and do one thing.
package helper
