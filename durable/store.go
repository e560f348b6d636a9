package durable

import (
	"context"
	"strconv"
	"time"
)

// Store keeps an engine's records. It knows nothing of what they mean: it
// stores batches atomically and answers keyed and paged reads. The packages
// sqlstore/sqlite and memstore implement it; storetest is its meaning as
// tests, and whoever writes a store runs them.
//
// Reads see every batch whose Commit has returned nil, and never a part of
// one. A record that does not exist is [ErrNotFound]. Values given to a store
// are its own afterwards, values read are the caller's: the two never share
// memory. All methods may be called concurrently.
type Store interface {
	Committer
	ConversationReader
	EntryReader
	TaskReader
	SubmissionReader
	DocumentReader

	// Info describes the store for people.
	Info(ctx context.Context) (StoreInfo, error)
	// Close waits for the batches under way and releases everything. Calls
	// after it fail with ErrStoreClosed.
	Close() error
}

// StoreInfo describes a store.
type StoreInfo struct {
	Kind  string `json:"kind"`  // "sqlite", "memory"
	Bytes int64  `json:"bytes"` // what it takes on disk or in memory, about
}

// Committer writes.
type Committer interface {
	// Commit stores the whole batch or nothing. When it returns nil the batch
	// is durable as the store promises (for SQLite by default: survives loss
	// of power). An error that wraps ErrRejected (ErrStoreFull, a
	// *ConflictError and a fence that was lost wrap it too) means that
	// nothing was stored. ErrStoreFailed and ErrStoreClosed mean that the
	// store takes no more batches. Any other error leaves the outcome
	// uncertain: the caller must read to learn it. Cancelling ctx gives up
	// waiting for a place in the queue, with ErrRejected; once a batch is
	// being written it is no longer looked at.
	Commit(ctx context.Context, batch *Batch) (Seq, error)
	// AllocateIDs durably reserves n ids and returns the first; n ≥ 1.
	AllocateIDs(ctx context.Context, n int) (int64, error)
}

// Batch is what one commit writes: records of one tree, and beside them global
// documents and claims. A batch that stores a task as terminal also ends what
// was the task's alone: its documents of ScopeTask, with their history, and its
// partial, those of the same batch included.
type Batch struct {
	Fence Fence

	Conversations []ConversationRecord // new
	Entries       []Entry              // new, ids ascending within a conversation
	Tasks         []TaskRecord         // new or replaced, by id
	Submissions   []SubmissionRecord   // new or replaced, by id
	Documents     []DocumentWrite
	Partials      []PartialWrite
	Claims        []Claim
}

// Fence is the right to write a tree. A store whose trees change hands between
// nodes rejects a batch whose epoch is not the tree's newest.
type Fence struct {
	Tree  ConversationID
	Epoch int64
}

// DocumentWrite creates, replaces or deletes one document; a batch has at most
// one for each.
type DocumentWrite struct {
	// Record is the document. The store counts its Revision: what is given is
	// ignored.
	Record DocRecord
	// At is, for a rewindable document, the place of this version among the
	// entries of its conversation: GetAsOf an entry e sees the version with
	// the greatest At ≤ e. 0 keeps no history.
	At EntryID
	// Expect, for a global document, is the revision that was read, 0 for
	// none, or a negative number to not compare. When another is stored the
	// batch is rejected with a *ConflictError that holds the stored record.
	// It is ignored for other scopes.
	Expect int64
	// Delete removes the document and its history.
	Delete bool
}

// PartialWrite appends to the running output of a task: the deltas of a model
// answer, or what a tool printed.
type PartialWrite struct {
	TaskID TaskID
	// Reset drops what was appended before. With no Data nothing stays.
	Reset bool
	Data  []byte
}

// Claim takes a key that must be unique over the whole store. When it is taken
// the batch is rejected with a *ConflictError that holds the winner's value.
type Claim struct {
	Scope string `json:"scope"`
	Key   string `json:"key"`
	Value int64  `json:"value"`
}

// ConversationReader reads conversations.
type ConversationReader interface {
	Conversation(ctx context.Context, id ConversationID) (ConversationRecord, error)
	// TreeConversations returns every conversation of a tree, by id.
	TreeConversations(ctx context.Context, tree ConversationID) ([]ConversationRecord, error)
	// Conversations returns a page of all conversations, ordered by creation
	// time and id.
	Conversations(ctx context.Context, q ConversationQuery) ([]ConversationRecord, error)
	// Claimed returns the value of a claim, or ErrNotFound.
	Claimed(ctx context.Context, scope, key string) (int64, error)
}

// ConversationQuery asks for a page of conversations.
type ConversationQuery struct {
	// Parent, when not 0, wants only conversations owned by tasks of it.
	Parent ConversationID
	// After, when its ID is not 0, continues behind that place in the order
	// asked for.
	After      Cursor
	Limit      int // at least 1
	Descending bool
}

// Cursor is a place in a list ordered by creation time and id.
type Cursor struct {
	CreatedAt time.Time
	ID        int64
}

// EntryReader reads entries of single conversations; a fork's inherited
// history is its parent's.
type EntryReader interface {
	Entry(ctx context.Context, id EntryID) (Entry, error)
	// Entries returns a page of a conversation's own entries, by id.
	Entries(ctx context.Context, q EntryQuery) ([]Entry, error)
	// NewestHead returns the entry with the highest id ≤ upTo that has a
	// head, or ErrNotFound. upTo 0 means no bound.
	NewestHead(ctx context.Context, id ConversationID, upTo EntryID) (Entry, error)
}

// EntryQuery asks for entries with From ≤ id ≤ To; 0 leaves a side open.
type EntryQuery struct {
	ConversationID ConversationID
	From, To       EntryID
	Limit          int // 0 for no limit
	Descending     bool
}

// TaskReader reads tasks.
type TaskReader interface {
	Task(ctx context.Context, id TaskID) (TaskRecord, error)
	// Tasks returns a page of tasks, by id.
	Tasks(ctx context.Context, q TaskQuery) ([]TaskRecord, error)
	// LiveTrees returns, ascending, the ids above after of trees that have a
	// task that is not terminal.
	LiveTrees(ctx context.Context, after ConversationID, limit int) ([]ConversationID, error)
	// Partial returns what was appended for a task, in order, nil for none.
	Partial(ctx context.Context, id TaskID) ([][]byte, error)
}

// TaskQuery asks for tasks. Zero fields do not filter. A store need not have an
// index of tasks that ended: without Live a query may read through all tasks.
type TaskQuery struct {
	TreeID         ConversationID
	ConversationID ConversationID
	Live           bool // only those that are not terminal
	After          TaskID
	Limit          int // 0 for no limit
	Descending     bool
}

// SubmissionReader reads submissions.
type SubmissionReader interface {
	Submission(ctx context.Context, id SubmissionID) (SubmissionRecord, error)
	// SubmissionByRequest finds a conversation's submission by request id.
	SubmissionByRequest(ctx context.Context, conversation ConversationID, requestID string) (SubmissionRecord, error)
	// OpenSubmissions returns those of a tree that are queued or placed, by id.
	OpenSubmissions(ctx context.Context, tree ConversationID) ([]SubmissionRecord, error)
}

// DocumentReader reads documents.
type DocumentReader interface {
	Document(ctx context.Context, key DocKey) (DocRecord, error)
	// Documents returns all documents of one owner, by kind and key.
	Documents(ctx context.Context, scope Scope, owner int64) ([]DocRecord, error)
	// DocumentAsOf returns the version of a rewindable document that held at
	// an entry, or ErrNotFound.
	DocumentAsOf(ctx context.Context, key DocKey, at EntryID) (DocRecord, error)
	// VisitDocuments calls visit with every document of that scope and kind, in
	// no special order, until visit returns an error, which it returns.
	VisitDocuments(ctx context.Context, scope Scope, kind string, visit func(DocRecord) error) error
}

// ConflictError is a batch that lost against one stored before it: a claim
// that is taken, or a global document that was changed. It wraps ErrRejected.
type ConflictError struct {
	Claim    *Claim     // the claim as it is stored, or nil
	Document *DocRecord // the document as it is stored (Revision 0: there is none), or nil
}

// Error says what was taken.
func (e *ConflictError) Error() string {
	switch {
	case e.Claim != nil:
		return "claim " + e.Claim.Scope + " " + strconv.Quote(e.Claim.Key) + " is taken"
	case e.Document != nil:
		return "document " + e.Document.Kind + " was changed by another commit"
	}
	return "conflict with another commit"
}

// Unwrap returns ErrRejected.
func (e *ConflictError) Unwrap() error { return ErrRejected }
