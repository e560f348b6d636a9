package durable

import "strconv"

// Ids come from one namespace per store, are never 0 and never used twice. In
// a tree they increase in the order of commits; across trees they are unique
// but say nothing about time.
type (
	// ConversationID names a conversation. A tree has the id of its root.
	ConversationID int64
	// EntryID names an entry.
	EntryID int64
	// TaskID names a task.
	TaskID int64
	// SubmissionID names a submission.
	SubmissionID int64
)

// Seq numbers the commits of an open store, from 1, in the order in which they
// became durable. It starts again when the store is opened again.
type Seq uint64

func (id ConversationID) String() string { return strconv.FormatInt(int64(id), 10) }
func (id EntryID) String() string        { return strconv.FormatInt(int64(id), 10) }
func (id TaskID) String() string         { return strconv.FormatInt(int64(id), 10) }
func (id SubmissionID) String() string   { return strconv.FormatInt(int64(id), 10) }
