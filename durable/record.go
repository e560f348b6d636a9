package durable

import (
	"encoding/json"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
)

// ConversationRecord is a stored conversation. It never changes.
type ConversationRecord struct {
	ID ConversationID `json:"id"`
	// TreeID is the root of the tree: the conversation itself when nothing
	// owns it.
	TreeID ConversationID `json:"treeId"`
	// ForkOf is where its history comes from, nil for an own beginning.
	ForkOf *ForkPoint `json:"forkOf,omitempty"`
	// Owner is the task it belongs to, nil for the root of a tree. The edge
	// stays when the task ends.
	Owner     *Owner    `json:"owner,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
}

// ForkPoint is an entry of another conversation, up to and including which a
// fork shares its history.
type ForkPoint struct {
	ConversationID ConversationID `json:"conversationId"`
	At             EntryID        `json:"at"`
}

// Owner is the task that owns a conversation, and that task's conversation.
type Owner struct {
	ConversationID ConversationID `json:"conversationId"`
	TaskID         TaskID         `json:"taskId"`
}

// The kinds of entries that the engine writes. Kinds that start with "pi." are
// refused to hosts.
const (
	KindUser       = "pi.user"
	KindAssistant  = "pi.assistant"
	KindToolResult = "pi.tool-result"
	KindSystem     = "pi.system"
	KindReset      = "pi.reset"
	KindCompaction = "pi.compaction"
)

// Entry is one immutable record of a transcript.
type Entry struct {
	ID             EntryID        `json:"id"`
	ConversationID ConversationID `json:"conversationId"`
	Kind           string         `json:"kind"`
	// Model holds what the model sees of this entry, in order; empty for an
	// entry that it does not see.
	Model []model.Message `json:"model,omitempty"`
	// Data is the host's, or the engine's for kinds that start with "pi.".
	Data json.RawMessage `json:"data,omitempty"`
	// Head, when not 0, makes this entry the beginning of the context: the
	// model sees this entry, then the entries from Head on.
	Head EntryID `json:"head,omitempty"`
	// Edits change what the model sees of earlier entries.
	Edits []Edit `json:"edits,omitempty"`
	// ByTaskID is the task that wrote it, 0 for none.
	ByTaskID TaskID `json:"byTaskId,omitempty"`
}

// EditAction says what an [Edit] does to its target.
type EditAction string

// The edit actions.
const (
	EditOmit    EditAction = "omit"
	EditReplace EditAction = "replace"
)

// Edit changes what the model sees of one earlier entry, from the request
// after it on. The newest edit of a target wins. The stored target stays.
type Edit struct {
	Target   EntryID         `json:"target"`
	Action   EditAction      `json:"action"`
	Messages []model.Message `json:"messages,omitempty"`
}

// TaskStatus is the state a task is in.
type TaskStatus string

// The task states. Legal moves are in the table of taskMoves.
const (
	TaskPending    TaskStatus = "pending"    // not begun
	TaskRunning    TaskStatus = "running"    // a phase runs, or is to run
	TaskWaiting    TaskStatus = "waiting"    // for tasks, a signal or a time
	TaskCompleting TaskStatus = "completing" // ended, work below it has not
	TaskTerminal   TaskStatus = "terminal"   // ended
)

// TaskRecord is a stored task.
type TaskRecord struct {
	ID             TaskID          `json:"id"`
	ConversationID ConversationID  `json:"conversationId"`
	TreeID         ConversationID  `json:"treeId"`
	Kind           string          `json:"kind"`
	Version        int             `json:"version"`
	Input          json.RawMessage `json:"input"`
	// Owner is the task of the same conversation that owns it, 0 when the
	// conversation does.
	Owner TaskID `json:"owner,omitempty"`
	// Background makes the task a boundary: an abort from above stops at it,
	// and it does not make its conversation busy.
	Background     bool                       `json:"background,omitempty"`
	AbortRequested bool                       `json:"abortRequested,omitempty"`
	AbortReason    string                     `json:"abortReason,omitempty"`
	CreatedAt      time.Time                  `json:"createdAt"`
	StartedAt      *time.Time                 `json:"startedAt,omitempty"`
	EndedAt        *time.Time                 `json:"endedAt,omitempty"`
	State          TaskState                  `json:"state"`
	Memos          map[string]json.RawMessage `json:"memos,omitempty"`
}

// TaskState is where a task stands. Status decides which fields count.
type TaskState struct {
	Status     TaskStatus      `json:"status"`
	Checkpoint json.RawMessage `json:"checkpoint,omitempty"` // pending, running, waiting
	Wait       *Wait           `json:"wait,omitempty"`       // waiting
	// Signal is the payload that ended a wait for a signal, kept until the
	// next checkpoint.
	Signal  json.RawMessage `json:"signal,omitempty"`  // running
	Outcome *Outcome        `json:"outcome,omitempty"` // completing, terminal
}

// WaitPolicy says when a wait for own children fails early.
type WaitPolicy string

// The wait policies.
const (
	// AllSettled waits for every task, however it ends. It is the default.
	AllSettled WaitPolicy = "allSettled"
	// FailFast abort-marks the other tasks at the first that did not complete.
	FailFast WaitPolicy = "failFast"
)

// Wait is what a waiting task waits for: that all of On are terminal, or a
// named signal, or that Deadline has passed; with both, the first.
type Wait struct {
	On       []TaskID   `json:"on,omitempty"`
	Policy   WaitPolicy `json:"policy,omitempty"`
	Signal   string     `json:"signal,omitempty"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Since    time.Time  `json:"since"`
}

// OutcomeStatus says how a task ended.
type OutcomeStatus string

// The outcomes.
const (
	OutcomeCompleted OutcomeStatus = "completed"
	OutcomeFailed    OutcomeStatus = "failed"
	OutcomeAborted   OutcomeStatus = "aborted"
	OutcomeOrphaned  OutcomeStatus = "orphaned" // aborted while its definition was missing
	OutcomeFaulted   OutcomeStatus = "faulted"  // its code panicked, failed or made no progress
)

// Outcome is how a task ended.
type Outcome struct {
	Status OutcomeStatus   `json:"status"`
	Result json.RawMessage `json:"result,omitempty"` // completed, failed, aborted
	Error  *TaskError      `json:"error,omitempty"`  // failed, faulted
	Reason string          `json:"reason,omitempty"` // aborted, orphaned
}

// TaskError is the error of a failed or faulted task.
type TaskError struct {
	Message string          `json:"message"`
	Detail  json.RawMessage `json:"detail,omitempty"`
}

// SubmissionType says what a submission hands over.
type SubmissionType string

// The submission types.
const (
	SubmissionInput SubmissionType = "input" // for the model
	SubmissionWrite SubmissionType = "write" // an entry, no model
)

// SubmissionStatus is where a submission stands.
type SubmissionStatus string

// The submission states. Done and unanswered are final.
const (
	SubmissionQueued     SubmissionStatus = "queued"     // in the inbox
	SubmissionPlaced     SubmissionStatus = "placed"     // its entry is in the transcript, its run goes on
	SubmissionDone       SubmissionStatus = "done"       // answered, or written
	SubmissionUnanswered SubmissionStatus = "unanswered" // ended without an answer, Reason says why
)

// The reasons of an unanswered submission.
const (
	ReasonNoModel    = "no_model"
	ReasonModelError = "model_error"
	ReasonAborted    = "aborted"
	ReasonReset      = "reset"
	ReasonStale      = "stale"
	ReasonStuck      = "stuck"
	ReasonFaulted    = "faulted"
)

// WhenBusy says what happens to an input that comes while a run goes on.
type WhenBusy string

// The ways to meet a busy conversation.
const (
	FollowUp WhenBusy = "followUp" // waits for the run's end; the default
	Steer    WhenBusy = "steer"    // joins the run after the next tool round
	Reject   WhenBusy = "reject"   // ErrBusy, nothing is written
)

// SubmissionRecord is a stored submission.
type SubmissionRecord struct {
	ID             SubmissionID     `json:"id"`
	ConversationID ConversationID   `json:"conversationId"`
	RequestID      string           `json:"requestId,omitempty"`
	Type           SubmissionType   `json:"type"`
	Status         SubmissionStatus `json:"status"`
	// EntryID is the entry it was placed as, 0 before.
	EntryID EntryID `json:"entryId,omitempty"`
	// AnswerEntryID is the pi.assistant entry that answered it, 0 before.
	AnswerEntryID EntryID `json:"answerEntryId,omitempty"`
	// TaskID is the pi.generation that runs it, 0 before.
	TaskID     TaskID           `json:"taskId,omitempty"`
	StopReason model.StopReason `json:"stopReason,omitempty"` // done inputs
	Reason     string           `json:"reason,omitempty"`     // unanswered
	Detail     json.RawMessage  `json:"detail,omitempty"`     // unanswered: what the reason adds
	// OutputTokens is the submission's own output limit, 0 for the agent's.
	OutputTokens int `json:"outputTokens,omitempty"`
	// ContentHash is a SHA-256 over type and normalised content.
	ContentHash []byte `json:"contentHash"`
	// Queued is what is handed over, kept until it is placed.
	Queued *QueuedItem `json:"queued,omitempty"`
	// HostData is the host's own JSON.
	HostData  json.RawMessage `json:"hostData,omitempty"`
	CreatedAt time.Time       `json:"createdAt"`
	SettledAt *time.Time      `json:"settledAt,omitempty"`
}

// QueuedItem is a submission's content while it waits in the inbox.
type QueuedItem struct {
	WhenBusy WhenBusy      `json:"whenBusy,omitempty"` // input
	Content  []model.Block `json:"content,omitempty"`  // input
	Entry    *EntrySpec    `json:"entry,omitempty"`    // write
}

// EntrySpec is an entry to be written.
type EntrySpec struct {
	Kind  string          `json:"kind"`
	Model []model.Message `json:"model,omitempty"`
	Data  json.RawMessage `json:"data,omitempty"`
	Head  EntryID         `json:"head,omitempty"`
	Edits []Edit          `json:"edits,omitempty"`
}

// Scope says what a document belongs to.
type Scope string

// The document scopes.
const (
	ScopeGlobal       Scope = "global"
	ScopeConversation Scope = "conversation"
	ScopeTask         Scope = "task" // ends with its task
)

// DocKey names a document. Owner is the id of its conversation or task, 0 for
// a global one; Key tells members of a family apart, empty for a single one.
type DocKey struct {
	Scope Scope  `json:"scope"`
	Owner int64  `json:"owner,omitempty"`
	Kind  string `json:"kind"`
	Key   string `json:"key,omitempty"`
}

// DocRecord is a stored document.
type DocRecord struct {
	DocKey
	// Version is the version of the value's type, as its DocSpec said.
	Version int `json:"version"`
	// Revision counts the writes of the document, from 1.
	Revision int64           `json:"revision"`
	Value    json.RawMessage `json:"value"`
}
