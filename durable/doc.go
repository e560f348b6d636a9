// Package durable is an engine for agents whose work survives anything: every
// input, model turn, tool call and state change is committed before it is
// shown, a killed process goes on where it stopped, and nothing runs twice that
// must not.
//
// # The nouns
//
// An [Engine] is one open [Store] plus the machinery that runs agents on it. A
// [Conversation] is a transcript of immutable entries. A [Submission] is
// something handed to a conversation: an input for the model, or a write. A
// [Task] is a durable state machine that belongs to a conversation; a run of
// the model and each of its tool calls are tasks too. A [Doc] is typed, mutable
// state that changes only in commits. An [Extension] brings tools, prompt
// sections, hooks and tasks; a [Registry] holds the extensions.
//
//	store, err := sqlite.Open(ctx, "agents.db", nil)
//	engine, err := durable.Open(ctx, store, &durable.Options{Models: models, Agent: agent})
//	conv, err := engine.NewConversation(ctx, nil)
//	sub, err := conv.Send(ctx, "hello")
//	rec, err := sub.Wait(ctx)
//
// # The data's way
//
// Submit runs under the line of the conversation's tree and commits the input's
// entry together with the task that answers it. Once the store has made the
// commit durable, the engine adopts it in memory, hands it to observers and
// starts the tasks that became runnable. A task's phase does its effect outside
// any commit, commits what came of it, and so on, until the commit that settles
// the submission. A process that dies at any point finds the tasks in the store
// when it opens it again.
//
// # Trees and lines
//
// A conversation that nothing owns, with everything owned below it, is a tree.
// Commits of one tree are in one order, on its line; different trees never wait
// for each other. A commit changes records of one tree only.
//
// # Task states
//
//	          ┌───────────────┐
//	          ▼               │
//	pending ─► running ─► waiting
//	   │         │            │
//	   │         ▼            │
//	   ├────► completing ◄────┤      work below it lives
//	   │         │            │
//	   └────► terminal ◄──────┘
//
// # Errors
//
//	situation                                                errors.Is
//	no such conversation, submission, task, entry            ErrNotFound
//	an argument is wrong; the message names it               ErrInvalid
//	busy conversation, and WhenBusy is Reject                ErrBusy
//	a request id used again for other content                ErrRequestIDConflict
//	withdraw of a placed, or a settled, submission           ErrAlreadyPlaced, ErrSettled
//	new work for an owner that is ending                     ErrOwnerEnded
//	signal for a task that does not wait for it              ErrAlreadySignalled
//	a Tx after its callback, an Update within one            ErrTxDone, ErrNestedUpdate
//	a document of a newer version than the code's            ErrVersionNewer
//	the engine is closed or closing                          ErrClosed
//	the store did not apply a commit; its disk is full       ErrRejected, ErrStoreFull
//	a key or global document was taken by another commit     *ConflictError
//	the store lost its footing; open it anew                 ErrStoreFailed
//	another process has the store; it is newer; it is broken ErrStoreInUse, ErrStoreNewer, ErrStoreCorrupt
//	the cause of a task's context                            ErrAborted, ErrClosed
//
// Errors of models are [model.Error], of environments [env.Error].
//
// # What this package may not depend on
//
// HTTP, databases, vendors' SDKs, tools. It links the standard library and a
// handful of small modules; stores and model adapters are imported by its users.
package durable
