// Package env is the contract by which tools and hosts reach files and
// processes: a work folder and the commands that run in it, wherever they are.
// It depends on nothing of this module.
//
// The package local implements it on the machine the program runs on, without
// any isolation; process runs commands for it and for others; envtest is its
// meaning as tests. An [Output] is the window on what a command prints.
package env

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// Environment is a work folder and a way to run commands in it. Paths are
// slash-separated; a relative one starts at the work folder. An environment
// may refuse paths outside the work folder with [PermissionDenied]. Errors are
// [*Error]; what an environment cannot do is [NotSupported]. All methods may
// be called concurrently.
type Environment interface {
	// ID is equal for environments that show the same file system.
	ID() string
	// WorkDir is the absolute path of the work folder as commands see it.
	WorkDir() string

	// Stat describes a file, following links that stay inside.
	Stat(ctx context.Context, path string) (FileInfo, error)
	// List returns a page of a folder's entries by name, and the cursor of the
	// next page, empty at the end.
	List(ctx context.Context, dir, cursor string) ([]FileInfo, string, error)
	// Open reads a regular file.
	Open(ctx context.Context, path string) (Reader, error)
	// Write creates or replaces a file whole: a reader sees the old content
	// or the new, never a part. Missing folders are made.
	Write(ctx context.Context, path string, r io.Reader, opts WriteOptions) error
	// Append adds to the end of a file, making it when absent.
	Append(ctx context.Context, path string, r io.Reader) error
	// Mkdir makes a folder and those above it; one that is there is no error.
	Mkdir(ctx context.Context, path string) error
	// Remove deletes a file, a link or, with all below it, a folder. What is
	// not there is NotFound; the work folder itself is Invalid.
	Remove(ctx context.Context, path string) error
	// Rename moves a file or folder, replacing a file at the new path.
	Rename(ctx context.Context, oldPath, newPath string) error

	// Exec runs a command and returns when it has ended. A command that ran
	// and failed is no error: its exit code says so. On a timeout (code
	// Timeout) or a cancelled ctx (code Aborted) everything that this call
	// started is dead when Exec returns, and the result holds what is known.
	// What a command left running when it ended is killed too; Exec does not
	// wait for it. A command that cannot be started, in that folder or at all,
	// is SpawnFailed.
	Exec(ctx context.Context, req ExecRequest) (ExecResult, error)
}

// FileInfo describes a file.
type FileInfo struct {
	Name    string // base name
	Size    int64
	Mode    fs.FileMode // type and permission bits
	ModTime time.Time
}

// Reader reads an open file, also at positions. Size is its size when opened.
type Reader interface {
	io.Reader
	io.ReaderAt
	io.Closer
	Size() int64
}

// WriteOptions say how a file is written.
type WriteOptions struct {
	// Mode is the permission bits of a new file; 0 means 0644, and that a
	// replaced file keeps its own.
	Mode fs.FileMode
	// Exclusive makes a file that is there already an error of code Exists.
	Exclusive bool
}

// ExecRequest is a command to run. Exactly one of Command and Argv is set.
type ExecRequest struct {
	Command string        // run by a shell
	Argv    []string      // run as it is
	Dir     string        // folder to start in, empty for the work folder
	Timeout time.Duration // 0 for none
	// Merge sends standard error where standard output goes, so that the two
	// come in the order they were written, all as Stdout. An environment that
	// cannot sends them as they come.
	Merge bool
	// Window tells how many bytes at the end of the output matter, so that an
	// environment on a slow link may skip the rest; 0 means all of it.
	Window int
	// Spill, when not nil, keeps the whole output in a file once it grows
	// past either bound.
	Spill *Spill
	// Output receives what the command prints as it comes, from one goroutine
	// at a time, never after Exec has returned. skippedBytes and skippedLines
	// count what was left out immediately before text, within the Window.
	// Text is passed on as raw bytes in a string: it may end inside a UTF-8
	// sequence.
	Output func(stream Stream, text string, skippedBytes, skippedLines int64)
}

// Spill says when output goes to a file, and how large that file may get.
type Spill struct {
	// AfterBytes and AfterLines are how much may be printed without a file. 0
	// is no such bound; with neither, all output goes to a file.
	AfterBytes int64
	AfterLines int64
	// MaxBytes bounds the file; what comes after is dropped. 0 is no bound.
	MaxBytes int64
	// Name is the base name for the file, chosen by the caller so that it can
	// be found again after a crash.
	Name string
}

// Stream names where output came from.
type Stream string

// The output streams.
const (
	Stdout Stream = "stdout"
	Stderr Stream = "stderr"
)

// ExecResult is how a command ended.
type ExecResult struct {
	ExitCode int // -1 when it was killed or never ran
	// Signal names the signal that ended it, empty when it exited.
	Signal string
	// SpillPath is the file with the whole output, relative to the work
	// folder, empty when there is none. SpillBytes is its size.
	SpillPath  string
	SpillBytes int64
	// SpillError says why there is no such file although there should be; the
	// command was not disturbed by it.
	SpillError string
}

// Code says what kind of failure an [Error] is.
type Code string

// The error codes.
const (
	NotFound         Code = "not_found"
	Exists           Code = "exists"
	NotDirectory     Code = "not_directory"
	IsDirectory      Code = "is_directory"
	PermissionDenied Code = "permission_denied"
	Invalid          Code = "invalid"
	TooLarge         Code = "too_large"
	NotSupported     Code = "not_supported"
	Aborted          Code = "aborted"
	Timeout          Code = "timeout"
	SpawnFailed      Code = "spawn_failed"
	Unknown          Code = "unknown"
)

// Error is a failed environment call. Message is for the model and people; it
// holds no path outside the work folder.
type Error struct {
	Code    Code
	Path    string
	Message string
	Err     error // the cause, may be nil
}

// Error returns the path and the message.
func (e *Error) Error() string {
	if e.Path == "" {
		return e.Message
	}
	return fmt.Sprintf("%s: %s", e.Path, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
