package durable

import "fmt"

// taskMoves lists, for each state, the states a task may be in after a commit;
// the empty state is that of a task which does not exist yet. A commit may lead
// through several states, so that a move of the table can be two of the
// diagram in the package documentation: a task that ends while nothing lives
// below it is never seen completing.
var taskMoves = map[TaskStatus]map[TaskStatus]bool{
	"":             {TaskPending: true, TaskWaiting: true},
	TaskPending:    {TaskPending: true, TaskRunning: true, TaskWaiting: true, TaskCompleting: true, TaskTerminal: true},
	TaskRunning:    {TaskRunning: true, TaskWaiting: true, TaskCompleting: true, TaskTerminal: true},
	TaskWaiting:    {TaskWaiting: true, TaskRunning: true, TaskCompleting: true, TaskTerminal: true},
	TaskCompleting: {TaskCompleting: true, TaskTerminal: true},
	TaskTerminal:   {},
}

// checkMove refuses to store a task that moved in a way the table does not
// know. Before is nil for a new task. It is a mistake of this package when it
// does, and stops the commit that would make it durable.
func checkMove(before, after *TaskRecord) error {
	var from TaskStatus
	if before != nil {
		from = before.State.Status
	}
	if !taskMoves[from][after.State.Status] {
		return fmt.Errorf("task %d: illegal move from %q to %q", after.ID, from, after.State.Status)
	}
	return nil
}
