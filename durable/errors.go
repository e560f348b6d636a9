package durable

import "errors"

// The errors callers can tell apart with errors.Is. The table in the package
// documentation says when each occurs.
var (
	// ErrNotFound: there is no such record.
	ErrNotFound = errors.New("not found")
	// ErrRejected: the store surely did not apply the batch.
	ErrRejected = errors.New("commit rejected")
	// ErrStoreFull: no room on the disk. It wraps ErrRejected; reads go on,
	// and commits succeed again when there is room.
	ErrStoreFull error = &rejection{"store is full"}
	// ErrFenced: another node owns the tree. It wraps ErrRejected.
	ErrFenced error = &rejection{"tree is owned by another node"}
	// ErrStoreFailed: an I/O error left it unknown what is on disk. The store
	// takes no more calls; the process must open it anew.
	ErrStoreFailed = errors.New("store failed")
	// ErrStoreClosed: the store was closed.
	ErrStoreClosed = errors.New("store is closed")
	// ErrStoreInUse: another process has the database open.
	ErrStoreInUse = errors.New("store is in use by another process")
	// ErrStoreNewer: the database was written by a newer version.
	ErrStoreNewer = errors.New("store was written by a newer version")
	// ErrStoreCorrupt: the file is damaged, or no database of this engine.
	ErrStoreCorrupt = errors.New("store is corrupt")

	// ErrClosed: the engine was closed, or is closing.
	ErrClosed = errors.New("engine is closed")
	// ErrTxDone: a Tx was used after its callback returned.
	ErrTxDone = errors.New("transaction is done")
	// ErrNestedUpdate: an Update was called from within an Update's callback.
	ErrNestedUpdate = errors.New("update within an update")
	// ErrBusy: the conversation is busy, and the call asked not to wait.
	ErrBusy = errors.New("conversation is busy")
	// ErrRequestIDConflict: the request id was used for other content.
	ErrRequestIDConflict = errors.New("request id was used for a different submission")
	// ErrAlreadyPlaced: the submission is in the transcript already.
	ErrAlreadyPlaced = errors.New("submission is already placed")
	// ErrSettled: the submission has ended.
	ErrSettled = errors.New("submission is settled")
	// ErrAlreadySignalled: the task was signalled before, or does not wait for
	// that signal.
	ErrAlreadySignalled = errors.New("task is not waiting for that signal")
	// ErrInvalid: an argument is wrong; the message names it.
	ErrInvalid = errors.New("invalid")
	// ErrOwnerEnded: new work was given to an owner that is ending or ended.
	ErrOwnerEnded = errors.New("owner is ending")
	// ErrAborted is the cause of a task's context once its abort was asked for.
	ErrAborted = errors.New("aborted")
	// ErrTaskEnded: a task's code went on after the task had ended.
	ErrTaskEnded = errors.New("task has ended")
	// ErrNoEnvironment: the conversation has no environment.
	ErrNoEnvironment = errors.New("conversation has no environment")
	// ErrVersionNewer: a stored value is of a newer version than the code.
	ErrVersionNewer = errors.New("stored version is newer than the code")
)

// rejection is a kind of ErrRejected.
type rejection struct{ text string }

func (r *rejection) Error() string { return r.text }
func (r *rejection) Unwrap() error { return ErrRejected }
