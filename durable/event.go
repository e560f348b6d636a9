package durable

import (
	"encoding/json"

	"github.com/wp-durable/wp-durable/durable/model"
)

// EventType names a kind of [Event].
type EventType string

// The events of a conversation. Each type's payload is the Go type named.
const (
	EventSnapshot       EventType = "snapshot"              // Snapshot
	EventRunStart       EventType = "run_start"             // RunEvent
	EventRunEnd         EventType = "run_end"               // RunEvent
	EventTurnStart      EventType = "turn_start"            // TurnEvent
	EventTurnEnd        EventType = "turn_end"              // TurnEvent
	EventMessageStart   EventType = "message_start"         // MessageEvent
	EventMessageUpdate  EventType = "message_update"        // MessageEvent with the delta
	EventMessageEnd     EventType = "message_end"           // MessageEvent with entry and stop reason
	EventMessageVoid    EventType = "message_void"          // MessageEvent with the reason: forget what was shown
	EventToolStart      EventType = "tool_execution_start"  // ToolEvent with the arguments
	EventToolUpdate     EventType = "tool_execution_update" // ToolEvent with the delta
	EventToolEnd        EventType = "tool_execution_end"    // ToolEvent with the result
	EventEntryAppended  EventType = "entry_appended"        // EntryEvent
	EventSubmission     EventType = "submission"            // SubmissionEvent
	EventInboxUpdate    EventType = "inbox_update"          // InboxEvent
	EventAgentChanged   EventType = "agent_changed"         // DocEvent
	EventUsageChanged   EventType = "usage_changed"         // DocEvent
	EventAutoRetryStart EventType = "auto_retry_start"      // RetryEvent
	EventAutoRetryEnd   EventType = "auto_retry_end"        // RetryEvent
	EventTaskFailed     EventType = "task_failed"           // TaskFailedEvent
)

// Event is something that a commit made true. Events are published after their
// commit is stored, in commit order.
type Event struct {
	// ID is opaque. [Conversation.Events] resumes behind it.
	ID   string    `json:"id"`
	Type EventType `json:"type"`
	// Data is the payload, a value of the type that the EventType names.
	Data any `json:"data"`

	n    uint64
	size int
}

// RunEvent is the start or end of a run.
type RunEvent struct {
	ConversationID ConversationID `json:"conversationId"`
	TaskID         TaskID         `json:"taskId"`
	SubmissionID   SubmissionID   `json:"submissionId,omitempty"`
	SubmissionIDs  []SubmissionID `json:"submissionIds,omitempty"`
	Outcome        OutcomeStatus  `json:"outcome,omitempty"`
}

// TurnEvent is the start or end of a model answer with its tool calls.
type TurnEvent struct {
	ConversationID ConversationID `json:"conversationId"`
	TaskID         TaskID         `json:"taskId"`
	SubmissionID   SubmissionID   `json:"submissionId,omitempty"`
	Turn           int            `json:"turn"` // from 1 within the run
}

// MessageEvent is about the message that a run's model writes.
type MessageEvent struct {
	ConversationID ConversationID `json:"conversationId"`
	TaskID         TaskID         `json:"taskId"`
	SubmissionID   SubmissionID   `json:"submissionId,omitempty"`

	*model.Delta // message_update

	EntryID    EntryID          `json:"entryId,omitempty"`    // message_end
	StopReason model.StopReason `json:"stopReason,omitempty"` // message_end
	Reason     string           `json:"reason,omitempty"`     // message_void
}

// ToolEvent is about a tool call.
type ToolEvent struct {
	ConversationID ConversationID  `json:"conversationId"`
	TaskID         TaskID          `json:"taskId"`
	SubmissionID   SubmissionID    `json:"submissionId,omitempty"`
	ToolCallID     string          `json:"toolCallId"`
	ToolName       string          `json:"toolName"`
	Arguments      json.RawMessage `json:"arguments,omitempty"` // start
	Delta          string          `json:"delta,omitempty"`     // update: text that follows what was shown
	Reset          bool            `json:"reset,omitempty"`     // update: delta replaces what was shown
	EntryID        EntryID         `json:"entryId,omitempty"`   // end
	Result         *model.Message  `json:"result,omitempty"`    // end
}

// EntryEvent is a new entry.
type EntryEvent struct {
	ConversationID ConversationID `json:"conversationId"`
	Entry          *Entry         `json:"entry"`
}

// SubmissionEvent is a new or changed submission.
type SubmissionEvent struct {
	ConversationID ConversationID    `json:"conversationId"`
	SubmissionID   SubmissionID      `json:"submissionId"`
	Submission     *SubmissionRecord `json:"submission"`
}

// InboxEvent is the inbox after a change.
type InboxEvent struct {
	ConversationID ConversationID `json:"conversationId"`
	Queued         []SubmissionID `json:"queued"`
}

// DocEvent is the new value of one of the engine's documents.
type DocEvent struct {
	ConversationID ConversationID  `json:"conversationId"`
	Value          json.RawMessage `json:"value"`
}

// RetryEvent is a failed model request that is to be repeated, or the end of
// the repetitions.
type RetryEvent struct {
	ConversationID ConversationID `json:"conversationId"`
	TaskID         TaskID         `json:"taskId"`
	SubmissionID   SubmissionID   `json:"submissionId,omitempty"`
	Attempt        int            `json:"attempt"` // from 1
	MaxAttempts    int            `json:"maxAttempts"`
	DelayMS        int64          `json:"delayMs,omitempty"` // start
	Class          model.Class    `json:"class,omitempty"`   // start; end: of the last failure
	Message        string         `json:"message,omitempty"`
	Success        bool           `json:"success,omitempty"` // end
}

// TaskFailedEvent is a task that faulted or was orphaned.
type TaskFailedEvent struct {
	ConversationID ConversationID `json:"conversationId"`
	TaskID         TaskID         `json:"taskId"`
	Kind           string         `json:"kind"`
	Outcome        Outcome        `json:"outcome"`
}

// Snapshot is a conversation at a moment: what somebody needs who has missed
// the events before it.
type Snapshot struct {
	View View `json:"view"`
	// Partial is the message that is being written, nil for none.
	Partial      *PartialMessage `json:"partial,omitempty"`
	RunningTools []RunningTool   `json:"runningTools"`
}

// View is the committed state of a conversation.
type View struct {
	Conversation ConversationRecord         `json:"conversation"`
	Busy         bool                       `json:"busy"`
	Entries      []Entry                    `json:"entries"` // the active range
	Submissions  []SubmissionRecord         `json:"submissions"`
	Docs         map[string]json.RawMessage `json:"docs"` // the engine's, by kind
}

// PartialMessage is the message that a run's model is writing.
type PartialMessage struct {
	TaskID       TaskID            `json:"taskId"`
	SubmissionID SubmissionID      `json:"submissionId,omitempty"`
	Text         string            `json:"text,omitempty"`
	Thinking     string            `json:"thinking,omitempty"`
	ToolCalls    []PartialToolCall `json:"toolCalls,omitempty"`
	// Deltas are the same in the order in which they came, merged.
	Deltas []model.Delta `json:"deltas"`
}

// PartialToolCall is a tool call that is being written.
type PartialToolCall struct {
	Index     int    `json:"index"`
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// RunningTool is a tool call that runs, with its output so far.
type RunningTool struct {
	TaskID     TaskID          `json:"taskId"`
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Arguments  json.RawMessage `json:"arguments,omitempty"`
	Output     string          `json:"output"`
}
