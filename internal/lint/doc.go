// Package lint holds the house rules that no linter knows, as tests: who may
// import whom, how large a file may get, that no test sleeps or is skipped in
// silence, that what a comment cites exists, and that nothing here names the
// machine it was written on.
//
// It reads sources; it may import nothing of this module.
package lint
