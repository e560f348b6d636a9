package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// TaskSpec declares a kind of task for [NewTask]: a durable state machine with
// an input, a checkpoint that says where it stands, and a result. All three
// are stored as JSON.
//
// A phase's handler does the same three things: commit what it is about to do,
// do it, commit what came of it. It may be run again after a crash, from its
// phase's beginning; [TaskRun.Recovered] says so. A handler that returns
// without having committed another checkpoint, a wait or an end has made no
// progress, and the task ends faulted; so does one whose handler fails or
// panics.
type TaskSpec[In, Ckpt, Res any] struct {
	Name string
	// Version of the stored input and checkpoint; 0 means 1.
	Version int
	// Start is the phase a new task begins in.
	Start string
	// Initial makes the first checkpoint; nil means the zero value.
	Initial func(In) Ckpt
	// Phases holds a handler for every phase.
	Phases map[string]func(ctx context.Context, run *TaskRun[In, Ckpt, Res]) error
	// Abort is called when the task is to end, after the work below it has
	// ended, with a context that the abort does not cancel. It may commit an
	// end; when it does not, the outcome is aborted. nil means only that.
	Abort func(ctx context.Context, run *TaskRun[In, Ckpt, Res]) error
	// Migrate reads what an older version stored.
	Migrate func(version int, input, checkpoint json.RawMessage) (In, Ckpt, error)
}

// Task is a declared kind of task. It is immutable.
type Task[In, Ckpt, Res any] struct{ def *taskDef }

// TaskDefinition is a [Task] of any type, for [Extension].Tasks.
type TaskDefinition interface{ taskDef() *taskDef }

func (t *Task[In, Ckpt, Res]) taskDef() *taskDef { return t.def }

// Name returns the kind's name.
func (t *Task[In, Ckpt, Res]) Name() string { return t.def.name }

// taskDef is a task kind without its types.
type taskDef struct {
	name    string
	version int
	start   string
	initial func(input json.RawMessage) (json.RawMessage, error)
	phases  map[string]func(ctx context.Context, r *taskRun) error
	abort   func(ctx context.Context, r *taskRun) error
	migrate func(version int, input, checkpoint json.RawMessage) (in, ckpt json.RawMessage, err error)
}

// checkpoint is the stored form of where a task stands.
type checkpoint struct {
	Phase string          `json:"phase"`
	Data  json.RawMessage `json:"data,omitempty"`
}

// NewTask makes a kind of task. It panics when the declaration is wrong.
func NewTask[In, Ckpt, Res any](spec TaskSpec[In, Ckpt, Res]) *Task[In, Ckpt, Res] {
	if spec.Version == 0 {
		spec.Version = 1
	}
	switch {
	case spec.Name == "":
		panic("durable.NewTask: no name")
	case spec.Version < 0:
		panic("durable.NewTask " + spec.Name + ": negative version")
	case spec.Phases[spec.Start] == nil:
		panic(fmt.Sprintf("durable.NewTask %s: no handler for the start phase %q", spec.Name, spec.Start))
	}
	def := &taskDef{name: spec.Name, version: spec.Version, start: spec.Start, phases: map[string]func(context.Context, *taskRun) error{}}
	def.initial = func(input json.RawMessage) (json.RawMessage, error) {
		var ckpt Ckpt
		if spec.Initial != nil {
			var in In
			if err := json.Unmarshal(input, &in); err != nil {
				return nil, fmt.Errorf("input: %w", err)
			}
			ckpt = spec.Initial(in)
		}
		return encode(ckpt)
	}
	for name, handler := range spec.Phases {
		if name == "" || handler == nil {
			panic(fmt.Sprintf("durable.NewTask %s: phase %q has no name or no handler", spec.Name, name))
		}
		def.phases[name] = func(ctx context.Context, r *taskRun) error {
			run, err := newTaskRun[In, Ckpt, Res](r)
			if err != nil {
				return err
			}
			return handler(ctx, run)
		}
	}
	if spec.Abort != nil {
		def.abort = func(ctx context.Context, r *taskRun) error {
			run, err := newTaskRun[In, Ckpt, Res](r)
			if err != nil {
				return err
			}
			return spec.Abort(ctx, run)
		}
	}
	if spec.Migrate != nil {
		def.migrate = func(version int, input, ckpt json.RawMessage) (json.RawMessage, json.RawMessage, error) {
			in, c, err := spec.Migrate(version, input, ckpt)
			if err != nil {
				return nil, nil, err
			}
			rawIn, err := encode(in)
			if err != nil {
				return nil, nil, err
			}
			rawCkpt, err := encode(c)
			return rawIn, rawCkpt, err
		}
	}
	return &Task[In, Ckpt, Res]{def}
}

// TaskOptions say where a new task belongs.
type TaskOptions struct {
	// Conversation is the conversation it belongs to; required.
	Conversation ConversationID
	// Owner is a task of that conversation, 0 for the conversation itself.
	Owner TaskID
	// Background makes it a boundary: an abort from above stops at it, and it
	// does not make its conversation busy.
	Background bool
}

// StartTask creates a task in a commit; it begins once the commit is stored.
func StartTask[In, Ckpt, Res any](tx *Tx, kind *Task[In, Ckpt, Res], in In, opts TaskOptions) (TaskID, error) {
	raw, err := encode(in)
	if err != nil {
		return 0, fmt.Errorf("start task %s: input: %w", kind.def.name, err)
	}
	return tx.startTask(kind.def, raw, opts)
}

func (tx *Tx) startTask(def *taskDef, input json.RawMessage, opts TaskOptions) (TaskID, error) {
	if err := tx.check(); err != nil {
		return 0, err
	}
	if err := tx.checkOwner(opts); err != nil {
		return 0, fmt.Errorf("start task %s: %w", def.name, err)
	}
	data, err := def.initial(input)
	if err != nil {
		return 0, fmt.Errorf("start task %s: %w", def.name, err)
	}
	id, err := tx.id()
	if err != nil {
		return 0, err
	}
	tx.putTask(&TaskRecord{
		ID: TaskID(id), ConversationID: opts.Conversation, TreeID: tx.t.id, Kind: def.name, Version: def.version,
		Input: input, Owner: opts.Owner, Background: opts.Background, CreatedAt: tx.at,
		State: TaskState{Status: TaskPending, Checkpoint: marshalRaw(checkpoint{def.start, data})},
	})
	return TaskID(id), nil
}

// checkOwner applies E7.1: an owner is of the same conversation, or is the
// conversation, and is not ending.
func (tx *Tx) checkOwner(opts TaskOptions) error {
	conv := tx.conversation(opts.Conversation)
	if conv == nil {
		return fmt.Errorf("conversation %d: %w", opts.Conversation, ErrNotFound)
	}
	owner := opts.Owner
	if owner == 0 && conv.Owner != nil {
		rec := tx.task(conv.Owner.TaskID)
		if rec == nil {
			return nil // the owner ended long ago: its conversation goes on by itself
		}
		if ending(rec) {
			return fmt.Errorf("task %d: %w", rec.ID, ErrOwnerEnded)
		}
		return nil
	}
	if owner == 0 {
		return nil
	}
	rec := tx.task(owner)
	if rec == nil {
		return fmt.Errorf("owner task %d: %w", owner, ErrOwnerEnded)
	}
	if rec.ConversationID != opts.Conversation {
		return fmt.Errorf("owner task %d belongs to conversation %d: %w", owner, rec.ConversationID, ErrInvalid)
	}
	return ownable(rec)
}

// ending reports whether a task is on its way to its end. One that has ended
// is not: what it owned goes on by itself.
func ending(rec *TaskRecord) bool {
	return rec.State.Status != TaskTerminal && (rec.AbortRequested || rec.State.Status == TaskCompleting)
}

// Abort marks a task to be ended, with the ordinary work below it. A task that
// has ended is left alone.
func (tx *Tx) Abort(id TaskID, reason string) error {
	if err := tx.check(); err != nil {
		return err
	}
	rec := tx.task(id)
	if rec == nil || rec.State.Status == TaskTerminal || rec.AbortRequested {
		return nil
	}
	tx.markAbort(id, reason)
	return nil
}

// WaitOptions say what a task waits for: that all of On have ended, or a
// signal, or that a time has come; the first of those given ends the wait.
type WaitOptions struct {
	On       []TaskID
	Policy   WaitPolicy // of On; default AllSettled
	Signal   string
	Deadline time.Time
}
