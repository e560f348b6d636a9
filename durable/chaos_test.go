package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

// chaos is a store on which everything goes wrong now and then.
type chaos struct {
	durable.Store
	mu  sync.Mutex
	rng *rand.Rand
	odd float64 // how often a commit goes wrong
}

func (s *chaos) Commit(ctx context.Context, b *durable.Batch) (durable.Seq, error) {
	s.mu.Lock()
	wrong := s.rng.Float64() < s.odd
	how := s.rng.IntN(4)
	s.mu.Unlock()
	if !wrong {
		return s.Store.Commit(ctx, b)
	}
	switch how {
	case 0:
		return 0, fmt.Errorf("%w: %w", durable.ErrRejected, storetest.ErrInjected)
	case 1:
		return 0, fmt.Errorf("%w: %w", durable.ErrStoreFull, storetest.ErrInjected)
	case 2:
		return 0, storetest.ErrInjected
	}
	if _, err := s.Store.Commit(ctx, b); err != nil {
		return 0, err
	}
	return 0, storetest.ErrInjected
}

// TestChaos has many users at once do all they can to a few conversations while
// commits fail in every way, the store goes away and comes back, and the engine
// is restarted. In the end everything is settled, memory and store say the
// same, no tool ran twice that must not, and every reader who came to the end
// has the text that is stored. The seed of a failing run is in its name.
func TestChaos(t *testing.T) {
	t.Parallel()
	rounds := 40
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) { (&chaosRun{t: t, seed: seed}).run() })
		})
	}
}

type chaosRun struct {
	t     *testing.T
	seed  uint64
	r     *rig
	store *chaos
	down  *outage

	gate   chan struct{} // empty while there is no engine
	convs  []durable.ConversationID
	starts sync.Map // task id: *int32 of a tool that must not run twice
	twice  sync.Map
	model  struct {
		sync.Mutex
		rng *rand.Rand
	}
}

func (x *chaosRun) rng(n uint64) *rand.Rand { return rand.New(rand.NewPCG(x.seed, n)) }

func (x *chaosRun) run() {
	t := x.t
	x.model.rng = x.rng(1)
	x.gate = make(chan struct{}, 1)
	x.gate <- struct{}{}
	once := tool("once", func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
		if _, again := x.starts.LoadOrStore(call.TaskID(), true); again {
			x.twice.Store(call.TaskID(), true)
		}
		call.Output([]byte("working on " + arg + "\n"))
		select {
		case <-time.After(700 * time.Millisecond):
			return durable.TextResult("did " + arg), nil
		case <-ctx.Done():
			return durable.ToolResult{}, ctx.Err()
		}
	})
	safe := toolOf(durable.ToolSpec{Name: "safe", Replay: durable.ReplaySafe}, func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
		if err := call.Memo(ctx, "m", arg, nil); err != nil {
			return durable.ToolResult{}, err
		}
		return durable.ErrorResult("failed " + arg), nil
	})
	kind := sleeper()
	x.r = newRig(t, durable.Extension{Name: "x", Tools: []*durable.Tool{once, safe, x.subagent()}, Tasks: []durable.TaskDefinition{kind}})
	x.r.opts.Logger = slog.New(slog.DiscardHandler)
	x.r.opts.Retention = 10 * time.Second
	x.store = &chaos{Store: x.r.history, rng: x.rng(2)}
	x.down = &outage{Store: x.store}
	x.r.store = x.down
	x.r.model = faux.New(&faux.Options{Strict: true, Handler: x.answer})
	x.r.provide(x.r.model)
	x.r.open()
	for range 3 {
		x.convs = append(x.convs, x.r.conversation().ID())
	}
	x.store.odd = 0.04
	flaky := x.rng(4)
	x.down.flaky = func() bool { return flaky.IntN(100) == 0 } // called under a lock
	var users sync.WaitGroup
	for u := range 6 {
		users.Go(func() { x.user(u) })
	}
	stop := make(chan struct{})
	var world sync.WaitGroup
	world.Go(func() { x.world(stop) })
	users.Wait()
	close(stop)
	world.Wait()
	x.store.mu.Lock()
	x.store.odd = 0
	x.store.mu.Unlock()
	x.down.mu.Lock()
	x.down.flaky, x.down.from, x.down.to = nil, time.Time{}, time.Time{}
	x.down.mu.Unlock()
	x.end()
}

// answer draws what the model says.
func (x *chaosRun) answer(*model.Request) (faux.Step, bool) {
	x.model.Lock()
	defer x.model.Unlock()
	rng := x.model.rng
	n := rng.IntN(1_000_000)
	s := faux.Step{Text: fmt.Sprintf("answer number %d", n), ChunkSize: 1 + rng.IntN(9), ChunkMS: int64(rng.IntN(200)), Usage: &model.Usage{}}
	switch p := rng.IntN(20); {
	case p < 5:
		for range 1 + rng.IntN(3) {
			name := []string{"once", "once", "safe", "sub", "nobody"}[rng.IntN(5)]
			s.ToolCalls = append(s.ToolCalls, calls(name, fmt.Sprint(n)).ToolCalls...)
		}
	case p < 7:
		s.Error = &faux.Error{Class: model.ClassOverloaded, Message: "scripted"}
	case p < 8:
		s.Error = &faux.Error{Class: model.ClassQuota, Message: "scripted"}
	}
	return s, true
}

// subagent asks another conversation, which its call owns.
func (x *chaosRun) subagent() *durable.Tool {
	return tool("sub", func(ctx context.Context, call *durable.ToolCall, arg string) (durable.ToolResult, error) {
		var sub durable.SubmissionID
		err := call.Commit(ctx, func(_ context.Context, tx *durable.Tx) error {
			conv, err := tx.CreateConversation(call.TaskID())
			if err != nil {
				return err
			}
			sub, _, err = tx.Submit(conv, input("", "question "+arg))
			return err
		})
		if err != nil {
			return durable.ToolResult{}, err
		}
		s, err := call.Conversation().Engine().Submission(ctx, sub)
		if err != nil {
			return durable.ToolResult{}, err
		}
		rec, err := s.Wait(ctx)
		return durable.TextResult(string(rec.Status)), err
	})
}

// world breaks things.
func (x *chaosRun) world(stop chan struct{}) {
	rng := x.rng(3)
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(rng.IntN(6000)) * time.Millisecond):
		}
		<-x.gate
		switch rng.IntN(3) {
		case 0:
			x.r.close()
			for {
				e, err := durable.Open(x.r.ctx, x.r.store, &x.r.opts)
				if err == nil {
					x.r.engine = e
					break
				}
				if !errors.Is(err, storetest.ErrInjected) {
					x.t.Errorf("open: %v", err)
				}
				<-time.After(500 * time.Millisecond)
			}
		case 1:
			now := time.Now()
			x.down.set(now, now.Add(time.Duration(rng.IntN(3000))*time.Millisecond), rng.IntN(2) == 0)
		}
		x.gate <- struct{}{}
	}
}

// engine returns the engine of now.
func (x *chaosRun) engine() *durable.Engine {
	<-x.gate
	defer func() { x.gate <- struct{}{} }()
	return x.r.engine
}

// persist does something until it succeeds, whatever goes wrong meanwhile.
func (x *chaosRun) persist(what string, fn func(e *durable.Engine) error) {
	for range 2000 {
		err := fn(x.engine())
		if err == nil || errors.Is(err, durable.ErrBusy) || errors.Is(err, durable.ErrAlreadyPlaced) || errors.Is(err, durable.ErrSettled) || errors.Is(err, context.DeadlineExceeded) {
			return
		}
		if !errors.Is(err, storetest.ErrInjected) && !errors.Is(err, durable.ErrClosed) {
			x.t.Errorf("%s: %v", what, err)
			return
		}
		<-time.After(100 * time.Millisecond)
	}
	x.t.Errorf("%s never succeeds", what)
}

func (x *chaosRun) user(u int) {
	rng := x.rng(uint64(100 + u))
	var mine []durable.SubmissionID
	var readers sync.WaitGroup
	defer readers.Wait()
	for i := range 12 {
		<-time.After(time.Duration(rng.IntN(2500)) * time.Millisecond)
		conv := x.convs[rng.IntN(len(x.convs))]
		at := func(fn func(c *durable.Conversation, ctx context.Context) error) {
			x.persist("call", func(e *durable.Engine) error {
				c, err := e.Conversation(x.r.ctx, conv)
				if err != nil {
					return err
				}
				ctx, cancel := context.WithTimeout(x.r.ctx, 5*time.Second)
				defer cancel()
				return fn(c, ctx)
			})
		}
		submit := func(p durable.SubmitParams) {
			p.RequestID = fmt.Sprintf("%d-%d", u, i)
			if p.Type == "" {
				p.Content = []model.Block{model.Text("input " + p.RequestID)}
			}
			at(func(c *durable.Conversation, ctx context.Context) error {
				s, _, err := c.Submit(ctx, &p)
				if err == nil {
					mine = append(mine, s.ID())
					if rng.IntN(3) == 0 {
						readers.Go(func() { x.read(s) })
					}
				}
				return err
			})
		}
		switch rng.IntN(12) {
		case 0, 1, 2, 3:
			submit(durable.SubmitParams{})
		case 4, 5:
			submit(durable.SubmitParams{WhenBusy: durable.Steer})
		case 6:
			submit(durable.SubmitParams{WhenBusy: durable.Reject})
		case 7:
			submit(durable.SubmitParams{Type: durable.SubmissionWrite, Entry: note("n")})
		case 8:
			at(func(c *durable.Conversation, ctx context.Context) error { _, err := c.Abort(ctx, nil); return err })
		case 9:
			if len(mine) > 0 {
				id := mine[rng.IntN(len(mine))]
				x.persist("withdraw", func(e *durable.Engine) error {
					s, err := e.Submission(x.r.ctx, id)
					if err == nil {
						_, err = s.Withdraw(x.r.ctx)
					}
					return err
				})
			}
		case 10:
			said := fmt.Sprint("be number ", rng.IntN(5))
			at(func(c *durable.Conversation, ctx context.Context) error {
				return c.ChangeAgent(ctx, &durable.AgentChange{Instructions: &said})
			})
		case 11:
			at(func(c *durable.Conversation, ctx context.Context) error {
				_, err := c.Reset(ctx, "handed over")
				return err
			})
		}
	}
}

// read reads a stream, to its end if the engine lives that long.
func (x *chaosRun) read(s *durable.Submission) {
	l := listen(x.r, s)
	<-l.done
	l.mu.Lock()
	err := l.err
	l.mu.Unlock()
	if err != nil {
		return
	}
	shown := l.text()
	var last string
	x.persist("read", func(*durable.Engine) error {
		rec, err := x.r.history.Submission(x.r.ctx, s.ID())
		if err != nil || rec.AnswerEntryID == 0 {
			last = shown
			return err
		}
		e, err := x.r.history.Entry(x.r.ctx, rec.AnswerEntryID)
		if err == nil {
			last = e.Model[0].Text()
		}
		return err
	})
	if last != shown {
		x.t.Errorf("submission %d: a reader has %q, stored is %q", s.ID(), shown, last)
	}
}

// end waits for everything to come to rest and looks at it.
func (x *chaosRun) end() {
	t := x.t
	settled := func() bool {
		for _, s := range x.r.history.submissions() {
			if s.SettledAt == nil {
				return false
			}
		}
		for _, task := range x.r.history.tasks() {
			if task.State.Status != durable.TaskTerminal {
				return false
			}
		}
		return true
	}
	for i := 0; i < 200 && !settled(); i++ {
		after(time.Minute)
	}
	for _, s := range x.r.history.submissions() {
		require.NotNil(t, s.SettledAt, "submission %d is %s", s.ID, s.Status)
	}
	for _, task := range x.r.history.tasks() {
		require.Equal(t, durable.TaskTerminal, task.State.Status, "task %d, a %s", task.ID, task.Kind)
		require.NotEqual(t, durable.OutcomeFaulted, task.State.Outcome.Status, "task %d, a %s: %v", task.ID, task.Kind, task.State.Outcome.Error)
	}
	x.twice.Range(func(id, _ any) bool {
		t.Errorf("task %d ran twice (E2.6)", id)
		return true
	})
	require.NoError(t, x.r.history.check())
	for _, id := range x.r.history.conversations() {
		c, err := x.r.engine.Conversation(x.r.ctx, id)
		require.NoError(t, err)
		x.r.sameAsFresh(c)
		x.r.wellFormed(c)
	}
}
