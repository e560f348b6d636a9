// Crashtest is a program that its test kills at every commit it makes. It
// opens an engine on an SQLite database and has a scripted conversation, in
// such a way that it may be started again on the same database after it was
// killed at any instant, and then goes on with what is left to do. It ends
// with status 0 when everything is done.
//
// What the world has seen of it is in a log of its own, which it appends to
// and flushes before it goes on, as a real effect cannot be taken back.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

func main() {
	db := flag.String("db", "", "the database")
	world := flag.String("world", "", "the log of effects")
	kill := flag.Int("kill", 0, "the commit at which the program kills itself, 0 for none")
	after := flag.Bool("after", false, "kill when the commit is stored, not before")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, *db, *world, *kill, *after); err != nil {
		fmt.Fprintln(os.Stderr, "crashtest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, db, world string, kill int, after bool) (err error) {
	store, err := sqlite.Open(ctx, db, nil)
	if err != nil {
		return err
	}
	faulty := storetest.Faulty(store)
	die := func(n int) {
		if n == kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {} // the signal ends the process before anything else happens
		}
	}
	if after {
		faulty.After = func(n int, _ *durable.Batch, _ error) { die(n) }
	} else {
		faulty.Before = func(n int, _ *durable.Batch) { die(n) }
	}
	s := &script{world: world, running: make(chan struct{}), let: make(chan struct{})}
	s.group = groupTask()
	models := &model.Set{}
	models.AddProvider("faux", faux.New(&faux.Options{Strict: true, Handler: s.answer}))
	models.AddModel(faux.Model())
	s.engine, err = durable.Open(ctx, faulty, &durable.Options{
		Models: models,
		Registry: durable.NewRegistry(durable.Extension{
			Name: "crash", Tasks: []durable.TaskDefinition{s.group},
			Tools: []*durable.Tool{tool("run", durable.ReplayNever, s.runTool), tool("read", durable.ReplaySafe, s.readTool)},
		}),
		Agent:           durable.Agent{Model: &model.Ref{Provider: faux.ProviderID, ModelID: faux.ModelID}},
		Retry:           durable.RetryPolicy{Base: time.Millisecond, Cap: 10 * time.Millisecond},
		PartialInterval: 10 * time.Millisecond,
		OnSettle:        count,
		Logger:          slog.New(slog.NewTextHandler(os.Stderr, nil)),
	})
	if err != nil {
		return err
	}
	if err := s.play(ctx); err != nil {
		return err
	}
	if err := s.engine.Close(ctx); err != nil {
		return err
	}
	return store.Close()
}

// Callbacks counts, in the commits that settle submissions, how often each was.
type callbacks struct {
	Settled map[durable.SubmissionID]int `json:"settled"`
}

var callbacksDoc = durable.NewDoc(durable.DocSpec[callbacks]{Kind: "crash.callbacks", Scope: durable.ScopeConversation})

func count(_ context.Context, tx *durable.Tx, rec durable.SubmissionRecord) error {
	c, err := callbacksDoc.Edit(tx, int64(rec.ConversationID))
	if err != nil {
		return err
	}
	if c.Settled == nil {
		c.Settled = map[durable.SubmissionID]int{}
	}
	c.Settled[rec.ID]++
	return nil
}

func tool(name string, replay durable.Replay, fn func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error)) *durable.Tool {
	type args struct {
		Arg string `json:"arg"`
	}
	spec := durable.ToolSpec{Name: name, Description: "Has effects.", Replay: replay}
	return durable.NewTool(spec, func(ctx context.Context, call *durable.ToolCall, a args) (durable.ToolResult, error) {
		return fn(ctx, call, a.Arg)
	})
}

// script is the conversation.
type script struct {
	engine *durable.Engine
	group  *durable.Task[int, groupState, string]
	world  string

	mu      sync.Mutex
	began   bool
	running chan struct{} // closed when the run tool has begun
	let     chan struct{} // closed when it may return
}

// effect appends a line to the log of effects, for good.
func (s *script) effect(format string, args ...any) error {
	f, err := os.OpenFile(s.world, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, format+"\n", args...)
	return errors.Join(err, f.Sync(), f.Close())
}

// happened reports whether an effect is in the log.
func (s *script) happened(line string) bool {
	data, err := os.ReadFile(s.world)
	return err == nil && strings.Contains("\n"+string(data), "\n"+line+"\n")
}

func (s *script) runTool(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
	if err := s.effect("start run %s", arg); err != nil {
		return durable.ToolResult{}, err
	}
	s.mu.Lock()
	if !s.began {
		s.began = true
		close(s.running)
	}
	s.mu.Unlock()
	call.Output([]byte("running\n"))
	select {
	case <-s.let:
	case <-ctx.Done():
		return durable.ToolResult{}, context.Cause(ctx)
	}
	return durable.TextResult("ran " + arg), s.effect("end run %s", arg)
}

func (s *script) readTool(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
	var drawn string
	if err := call.Memo(ctx, "drawn", fmt.Sprintf("%s by %d", arg, os.Getpid()), &drawn); err != nil {
		return durable.ToolResult{}, err
	}
	return durable.TextResult("read " + arg), s.effect("read %s: %s", arg, drawn)
}

// answer is the model: what it says depends on what it is asked and on what
// has happened in the world, never on this process.
func (s *script) answer(req *model.Request) (faux.Step, bool) {
	var last *model.Message
	for i := range req.Messages {
		if req.Messages[i].Role != model.RoleSystem {
			last = &req.Messages[i]
		}
	}
	said := last.Text()
	usage := &model.Usage{Input: 100, Output: 10, Total: 110}
	slow := func(text string) faux.Step { return faux.Step{Text: text, ChunkSize: 6, ChunkMS: 8, Usage: usage} }
	switch {
	case last.Role == model.RoleToolResult:
		return slow("the tools have run"), true
	case strings.Contains(said, "use tools"):
		st := slow("I will use them")
		st.ToolCalls = []faux.ToolCall{{Name: "run", Arguments: []byte(`{"arg":"a"}`)}, {Name: "read", Arguments: []byte(`{"arg":"b"}`)}}
		return st, true
	case strings.Contains(said, "change of plan") && !s.happened("model failed"):
		st := slow("this will not stand")
		st.Usage = &model.Usage{}
		st.Error = &faux.Error{Class: model.ClassOverloaded, Message: "scripted"}
		if err := s.effect("model failed"); err != nil {
			st.Error = &faux.Error{Class: model.ClassInvalidRequest, Message: err.Error()}
		}
		return st, true
	case strings.Contains(said, "without end"):
		return faux.Step{Text: "it goes on and on", ChunkSize: 6, ChunkMS: 100_000, Usage: &model.Usage{}}, true
	}
	return slow("answer to " + said), true
}

// submit hands something over, as often as the program is started.
func (s *script) submit(ctx context.Context, c *durable.Conversation, id string, p durable.SubmitParams) (*durable.Submission, error) {
	p.RequestID = id
	if p.Entry == nil {
		p.Content = []model.Block{model.Text(id)}
	} else {
		p.Type = durable.SubmissionWrite
	}
	sub, _, err := c.Submit(ctx, &p)
	if err != nil {
		return nil, err
	}
	return sub, s.effect("submission %d is %s", sub.ID(), id)
}

func (s *script) play(ctx context.Context) error {
	c, err := s.engine.NewConversation(ctx, &durable.ConversationParams{Claim: &durable.Claim{Scope: "crash", Key: "root"}})
	if taken, ok := errors.AsType[*durable.ConflictError](err); ok {
		c, err = s.engine.Conversation(ctx, durable.ConversationID(taken.Claim.Value))
	}
	if err != nil {
		return err
	}
	first, err := s.submit(ctx, c, "use tools", durable.SubmitParams{})
	if err != nil {
		return err
	}
	if err := s.untilRunning(ctx, first); err != nil {
		return err
	}
	waits := []*durable.Submission{first}
	for _, p := range []struct {
		id string
		p  durable.SubmitParams
	}{
		{"change of plan", durable.SubmitParams{WhenBusy: durable.Steer}},
		{"and then", durable.SubmitParams{}},
		{"a note", durable.SubmitParams{Entry: &durable.EntrySpec{Kind: "crash.note", Data: []byte(`{"a":1}`)}}},
	} {
		sub, err := s.submit(ctx, c, p.id, p.p)
		if err != nil {
			return err
		}
		waits = append(waits, sub)
	}
	close(s.let)
	for _, sub := range waits {
		if _, err := sub.Wait(ctx); err != nil {
			return err
		}
	}
	if err := s.playGroup(ctx, c); err != nil {
		return err
	}
	if err := s.playAbort(ctx, c); err != nil {
		return err
	}
	last, err := s.submit(ctx, c, "the last word", durable.SubmitParams{})
	if err != nil {
		return err
	}
	_, err = last.Wait(ctx)
	return err
}

// untilRunning waits until the run tool has begun, now or before the crash.
func (s *script) untilRunning(ctx context.Context, sub *durable.Submission) error {
	if s.happened("start run a") {
		return nil
	}
	settled := make(chan error, 1)
	go func() {
		_, err := sub.Wait(ctx)
		settled <- err
	}()
	select {
	case <-s.running:
		return nil
	case err := <-settled:
		return err
	}
}

// playAbort aborts an answer when some of it is shown.
func (s *script) playAbort(ctx context.Context, c *durable.Conversation) error {
	sub, err := s.submit(ctx, c, "without end", durable.SubmitParams{})
	if err != nil {
		return err
	}
	for ev, err := range sub.Stream(ctx) {
		if err != nil {
			return err
		}
		if ev.Type == durable.StreamText {
			break
		}
	}
	if rec, err := sub.Record(ctx); err != nil || rec.SettledAt != nil {
		return err // aborted before the crash
	}
	if _, err := c.Abort(ctx, nil); err != nil {
		return err
	}
	_, err = sub.Wait(ctx)
	return err
}

// groupState is the checkpoint of a task that owns others.
type groupState struct{ Tasks []durable.TaskID }

// playGroup runs a task that owns tasks and a conversation.
func (s *script) playGroup(ctx context.Context, c *durable.Conversation) error {
	var id durable.TaskID
	err := c.Update(ctx, func(_ context.Context, tx *durable.Tx) error {
		g, err := groupDoc.Edit(tx, int64(c.ID()))
		if err != nil || *g != 0 {
			id = *g
			return err
		}
		id, err = durable.StartTask(tx, s.group, 1, durable.TaskOptions{Conversation: c.ID()})
		*g = id
		return err
	})
	if err != nil {
		return err
	}
	for {
		err := s.engine.Signal(ctx, id, "go", "signalled")
		if err == nil {
			return c.WaitIdle(ctx)
		}
		if !errors.Is(err, durable.ErrAlreadySignalled) {
			return err
		}
		rec, err := s.engine.Task(ctx, id)
		if err != nil {
			return err
		}
		switch rec.State.Status {
		case durable.TaskTerminal:
			return nil
		case durable.TaskWaiting, durable.TaskCompleting:
			if w := rec.State.Wait; w == nil || w.Signal == "" {
				return c.WaitIdle(ctx) // signalled by an earlier process
			}
		}
		// It may not wait for the signal yet.
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

var groupDoc = durable.NewDoc(durable.DocSpec[durable.TaskID]{Kind: "crash.group", Scope: durable.ScopeConversation})

func groupTask() *durable.Task[int, groupState, string] {
	type run = durable.TaskRun[int, groupState, string]
	type step = durable.Step[groupState, string]
	var kind *durable.Task[int, groupState, string]
	kind = durable.NewTask(durable.TaskSpec[int, groupState, string]{
		Name: "crash.group", Start: "begin",
		Phases: map[string]func(context.Context, *run) error{
			"begin": func(ctx context.Context, r *run) error {
				return r.Commit(ctx, func(_ context.Context, tx *durable.Tx) (step, error) {
					if r.Input() == 0 { // a child
						return r.Wait("end", groupState{}, durable.WaitOptions{Deadline: time.Now().Add(5 * time.Millisecond)}), nil
					}
					return r.Wait("split", groupState{}, durable.WaitOptions{Signal: "go"}), nil
				})
			},
			"split": func(ctx context.Context, r *run) error {
				return r.Commit(ctx, func(_ context.Context, tx *durable.Tx) (step, error) {
					var st groupState
					for range 2 {
						id, err := durable.StartTask(tx, kind, 0, durable.TaskOptions{Conversation: r.Conversation().ID(), Owner: r.ID()})
						if err != nil {
							return step{}, err
						}
						st.Tasks = append(st.Tasks, id)
					}
					conv, err := tx.CreateConversation(r.ID())
					if err != nil {
						return step{}, err
					}
					_, _, err = tx.Submit(conv, &durable.SubmitParams{RequestID: "below", Content: []model.Block{model.Text("below")}})
					return r.Wait("end", st, durable.WaitOptions{On: st.Tasks}), err
				})
			},
			"end": func(ctx context.Context, r *run) error {
				return r.Commit(ctx, func(context.Context, *durable.Tx) (step, error) { return r.Complete("ended"), nil })
			},
		},
	})
	return kind
}
