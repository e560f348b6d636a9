package durable

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// everyStatus is each state a task may be in, and none.
var everyStatus = []TaskStatus{"", TaskPending, TaskRunning, TaskWaiting, TaskCompleting, TaskTerminal}

// TestTaskMoves decides every pair of states (E3, E6.3). The rules are said
// again here, in other words than those of the table.
func TestTaskMoves(t *testing.T) {
	t.Parallel()
	legal := func(from, to TaskStatus) bool {
		ended := func(s TaskStatus) bool { return s == TaskCompleting || s == TaskTerminal }
		switch {
		case from == TaskTerminal:
			return false // what is terminal is never written again
		case from == "":
			return to == TaskPending || to == TaskWaiting // new work waits for its turn
		case to == "":
			return false // no task disappears
		case ended(from):
			return ended(to) // an end is never taken back
		case to == TaskPending:
			return from == TaskPending // what began has begun
		}
		return true
	}
	for _, from := range everyStatus {
		for _, to := range everyStatus {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				t.Parallel()
				var before *TaskRecord
				if from != "" {
					before = &TaskRecord{ID: 1, State: TaskState{Status: from}}
				}
				err := checkMove(before, &TaskRecord{ID: 1, State: TaskState{Status: to}})
				require.Equal(t, legal(from, to), err == nil, "%v", err)
			})
		}
	}
	require.Len(t, taskMoves, len(everyStatus))
}

// TestTaskMoves_Enforced shows that a commit with an illegal move is not made.
func TestTaskMoves_Enforced(t *testing.T) {
	t.Parallel()
	at := time.Now()
	tr := &tree{id: 1, tasks: map[TaskID]*TaskRecord{
		2: {ID: 2, State: TaskState{Status: TaskTerminal, Outcome: &Outcome{Status: OutcomeCompleted}}, EndedAt: &at},
	}}
	tx := &Tx{t: tr, e: &Engine{log: slog.New(slog.DiscardHandler)}}
	tx.editTask(2).State = TaskState{Status: TaskRunning, Checkpoint: json.RawMessage(`{}`)}
	b, err := tx.batch()
	require.ErrorContains(t, err, `task 2: illegal move from "terminal" to "running"`)
	require.Nil(t, b)
}
