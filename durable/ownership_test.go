package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
)

// nodeInput says how a task of the ownership tests behaves.
type nodeInput struct {
	OnAbort  string `json:"onAbort,omitempty"`  // what its abort handler ends it as: "", completed, failed, panic
	Stubborn bool   `json:"stubborn,omitempty"` // its code does not heed the abort
}

type (
	nodeRun  = durable.TaskRun[nodeInput, int, string]
	nodeStep = durable.Step[int, string]
)

// order is what the test makes the code of a node do; stay says that it then
// waits for the next one.
type order func(ctx context.Context, run *nodeRun) (stay bool, err error)

// director hands orders to the running nodes.
type director struct {
	mu    sync.Mutex
	nodes map[durable.TaskID]chan order
}

func (d *director) kind() *durable.Task[nodeInput, int, string] {
	return durable.NewTask(durable.TaskSpec[nodeInput, int, string]{
		Name: "test.node", Start: "run",
		Phases: map[string]func(context.Context, *nodeRun) error{"run": d.run},
		Abort: func(ctx context.Context, run *nodeRun) error {
			switch run.Input().OnAbort {
			case "completed":
				return run.Commit(ctx, func(context.Context, *durable.Tx) (nodeStep, error) { return run.Complete("late"), nil })
			case "failed":
				return run.Commit(ctx, func(context.Context, *durable.Tx) (nodeStep, error) {
					return run.Fail(errors.New("in the abort"), nil), nil
				})
			case "panic":
				panic("in the abort")
			}
			return nil
		},
	})
}

func (d *director) run(ctx context.Context, run *nodeRun) error {
	ch := make(chan order)
	d.mu.Lock()
	d.nodes[run.ID()] = ch
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.nodes, run.ID())
	}()
	done := ctx.Done()
	if run.Input().Stubborn {
		done = nil
	}
	for {
		select {
		case o := <-ch:
			if stay, err := o(ctx, run); !stay {
				return err
			}
		case <-done:
			return context.Cause(ctx)
		case <-run.Engine().Closing():
			return context.Cause(ctx)
		}
	}
}

// tell gives an order to the code of a node.
func (d *director) tell(id durable.TaskID, o order) {
	d.mu.Lock()
	ch := d.nodes[id]
	d.mu.Unlock()
	ch <- o
	synctest.Wait()
}

// running returns the nodes whose code runs.
func (d *director) running() []durable.TaskID {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []durable.TaskID
	for id := range d.nodes {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// treeModel says what becomes of tasks that own each other: the reading of
// E6.5 and E7.1 to E7.4 that TestOwnership_Random holds the engine to.
type treeModel struct {
	nodes []*modelNode
	convs []modelConv
}

type modelConv struct {
	id    durable.ConversationID
	owner *modelNode // nil for the root
}

type modelNode struct {
	nodeInput
	id         durable.TaskID
	owner      *modelNode // nil: the conversation
	conv       int
	background bool

	marked  bool
	state   string // running, waiting, completing, terminal
	outcome durable.OutcomeStatus
	on      []*modelNode
	policy  durable.WaitPolicy
	signal  bool
}

// returned notes that a phase of the node came to its end: if the node is to
// end, its abort comes next, however stubborn its code was.
func (n *modelNode) returned() {
	if n.marked {
		n.Stubborn = false
	}
}

func (n *modelNode) live() bool { return n.state != "terminal" }

// hasCode reports whether the code of a node runs; that of one which is to end
// has returned, and its abort handler waits for the work below.
func (n *modelNode) hasCode() bool { return n.state == "running" && (!n.marked || n.Stubborn) }

// within reports whether a node belongs to a conversation or to one below it.
func (m *treeModel) within(n *modelNode, conv int) bool {
	for ; n != nil; n = m.ownerOf(n) {
		if n.conv == conv {
			return true
		}
	}
	return false
}

func (m *treeModel) ownerOf(n *modelNode) *modelNode {
	if n.owner != nil {
		return n.owner
	}
	return m.convs[n.conv].owner
}

// below returns the live ordinary work that a node owns.
func (m *treeModel) below(n *modelNode) (out []*modelNode) {
	for _, o := range m.nodes {
		if o.live() && !o.background && m.ownerOf(o) == n {
			out = append(out, o)
		}
	}
	return out
}

func (m *treeModel) busy(conv int) bool {
	for _, n := range m.nodes {
		if n.conv != conv || !n.live() {
			continue
		}
		fore := true
		for o := n; o != nil; o = o.owner {
			fore = fore && !o.background
		}
		if fore {
			return true
		}
	}
	return false
}

func (m *treeModel) end(n *modelNode, o durable.OutcomeStatus) {
	n.on, n.signal, n.outcome, n.state = nil, false, o, "completing"
	if len(m.below(n)) == 0 {
		n.state = "terminal"
	}
	m.settle()
}

// settle follows up on everything until nothing follows any more.
func (m *treeModel) settle() {
	for changed := true; changed; {
		changed = false
		mark := func(n *modelNode) {
			if n.live() && !n.marked {
				n.marked, changed = true, true
			}
		}
		for _, n := range m.nodes {
			if !n.live() {
				continue
			}
			if n.state == "waiting" {
				n.returned()
			}
			below := m.below(n)
			if n.marked || n.state == "completing" && n.outcome != durable.OutcomeCompleted {
				for _, b := range below {
					mark(b)
				}
			}
			if n.state == "waiting" && len(n.on) > 0 {
				done := true
				for _, o := range n.on {
					done = done && !o.live()
					if o.outcome != "" && o.outcome != durable.OutcomeCompleted && n.policy == durable.FailFast {
						for _, other := range n.on {
							mark(other)
						}
					}
				}
				if done {
					n.on, n.state, changed = nil, "running", true
				}
			}
			if len(below) > 0 {
				continue
			}
			switch {
			case n.state == "completing":
				n.state, changed = "terminal", true
			case n.marked && !n.hasCode():
				m.handleAbort(n)
				changed = true
			}
		}
	}
}

// handleAbort is what a node's abort handler does.
func (m *treeModel) handleAbort(n *modelNode) {
	n.on, n.signal, n.state, n.outcome = nil, false, "terminal", durable.OutcomeAborted
	switch n.OnAbort {
	case "completed":
		n.outcome = durable.OutcomeCompleted
	case "failed":
		n.outcome = durable.OutcomeFailed
	case "panic":
		n.outcome = durable.OutcomeFaulted
	}
}

// TestOwnership_Random runs random scripts of tasks that start, wait, end and
// abort each other, with restarts, and compares every task with a small model
// after each step (E2.10, E6.3, E6.5, E6.7, E7.1 to E7.4).
func TestOwnership_Random(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		bubble(t, func(t *testing.T) {
			s := &ownershipScript{rt: rt, d: &director{nodes: map[durable.TaskID]chan order{}}}
			s.kind = s.d.kind()
			s.r = makeRig(rt, t.Context(), durable.Extension{Name: "x", Tasks: []durable.TaskDefinition{s.kind}}).open()
			// Aborts that wait for stubborn code end with the script.
			ctx, cancel := context.WithCancel(s.r.ctx)
			s.ctx = ctx
			defer s.r.finish()
			defer s.aborts.Wait()
			defer cancel()
			s.m.convs = []modelConv{{id: s.r.conversation().ID()}}
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				s.step()
				synctest.Wait()
				s.compare()
			}
		})
	})
}

type ownershipScript struct {
	rt     *rapid.T
	r      *rig
	d      *director
	kind   *durable.Task[nodeInput, int, string]
	m      treeModel
	ctx    context.Context
	aborts sync.WaitGroup
}

func (s *ownershipScript) pick(what string, from []*modelNode) *modelNode {
	names := make([]int, len(from))
	for i := range names {
		names[i] = i
	}
	return from[rapid.SampledFrom(names).Draw(s.rt, what)]
}

func (s *ownershipScript) input() nodeInput {
	return nodeInput{
		OnAbort:  rapid.SampledFrom([]string{"", "", "completed", "failed", "panic"}).Draw(s.rt, "on abort"),
		Stubborn: rapid.IntRange(0, 4).Draw(s.rt, "stubborn") == 4,
	}
}

// add records a node that the engine made.
func (s *ownershipScript) add(id durable.TaskID, in nodeInput, owner *modelNode, conv int, background bool) {
	s.m.nodes = append(s.m.nodes, &modelNode{nodeInput: in, id: id, owner: owner, conv: conv, background: background, state: "running"})
}

func (s *ownershipScript) step() {
	rt, r := s.rt, s.r
	var running, waiting, any []*modelNode
	for _, n := range s.m.nodes {
		any = append(any, n)
		switch {
		case n.hasCode():
			running = append(running, n)
		case n.state == "waiting" && n.signal:
			waiting = append(waiting, n)
		}
	}
	ops := []string{"root", "root", "restart", "abort conversation"}
	if len(running) > 0 {
		ops = append(ops, "spawn", "spawn", "spawn", "spawn conversation", "complete", "fail", "panic", "stop", "wait", "wait for a signal", "wait wrongly")
	}
	if len(waiting) > 0 {
		ops = append(ops, "signal")
	}
	if len(any) > 0 {
		ops = append(ops, "adopt", "abort task")
	}
	switch rapid.SampledFrom(ops).Draw(rt, "op") {
	case "root":
		conv := rapid.IntRange(0, len(s.m.convs)-1).Draw(rt, "conversation")
		in, bg := s.input(), rapid.Bool().Draw(rt, "background")
		var id durable.TaskID
		err := r.engine.Update(r.ctx, s.m.convs[conv].id, func(_ context.Context, tx *durable.Tx) (err error) {
			id, err = durable.StartTask(tx, s.kind, in, durable.TaskOptions{Conversation: s.m.convs[conv].id, Background: bg})
			return err
		})
		if o := s.m.convs[conv].owner; o != nil && o.live() && (o.marked || o.state == "completing") {
			require.ErrorIs(rt, err, durable.ErrOwnerEnded)
			return
		}
		require.NoError(rt, err)
		s.add(id, in, nil, conv, bg)
	case "adopt": // from outside, below any task
		n := s.pick("owner", any)
		in := s.input()
		var id durable.TaskID
		err := r.engine.Update(r.ctx, s.m.convs[0].id, func(_ context.Context, tx *durable.Tx) (err error) {
			id, err = durable.StartTask(tx, s.kind, in, durable.TaskOptions{Conversation: s.m.convs[n.conv].id, Owner: n.id})
			return err
		})
		if !n.live() || n.marked || n.state == "completing" {
			require.ErrorIs(rt, err, durable.ErrOwnerEnded)
			return
		}
		require.NoError(rt, err)
		s.add(id, in, n, n.conv, false)
	case "spawn":
		n := s.pick("node", running)
		in, bg := s.input(), rapid.IntRange(0, 3).Draw(rt, "background") == 3
		var id durable.TaskID
		err := s.commit(n, true, func(run *nodeRun, tx *durable.Tx) (st nodeStep, err error) {
			id, err = durable.StartTask(tx, s.kind, in, durable.TaskOptions{Conversation: s.m.convs[n.conv].id, Owner: n.id, Background: bg})
			return st, err
		})
		if n.marked {
			require.ErrorIs(rt, err, durable.ErrOwnerEnded)
			return
		}
		require.NoError(rt, err)
		s.add(id, in, n, n.conv, bg)
	case "spawn conversation":
		n := s.pick("node", running)
		in, bg := s.input(), rapid.IntRange(0, 3).Draw(rt, "background") == 3
		var conv durable.ConversationID
		var id durable.TaskID
		err := s.commit(n, true, func(run *nodeRun, tx *durable.Tx) (st nodeStep, err error) {
			if conv, err = tx.CreateConversation(n.id); err != nil {
				return st, err
			}
			id, err = durable.StartTask(tx, s.kind, in, durable.TaskOptions{Conversation: conv, Background: bg})
			return st, err
		})
		if n.marked {
			require.ErrorIs(rt, err, durable.ErrOwnerEnded)
			return
		}
		require.NoError(rt, err)
		s.m.convs = append(s.m.convs, modelConv{id: conv, owner: n})
		s.add(id, in, nil, len(s.m.convs)-1, bg)
	case "complete":
		n := s.pick("node", running)
		require.NoError(rt, s.commit(n, false, func(run *nodeRun, _ *durable.Tx) (nodeStep, error) { return run.Complete("well"), nil }))
		s.m.end(n, durable.OutcomeCompleted)
	case "fail":
		n := s.pick("node", running)
		require.NoError(rt, s.commit(n, false, func(run *nodeRun, _ *durable.Tx) (nodeStep, error) {
			return run.Fail(errors.New("badly"), map[string]int{"code": 1}), nil
		}))
		s.m.end(n, durable.OutcomeFailed)
	case "panic", "stop": // both end it as faulted, unless an abort is under way
		n := s.pick("node", running)
		throw := rapid.Bool().Draw(rt, "panics")
		s.d.tell(n.id, func(context.Context, *nodeRun) (bool, error) {
			if throw {
				panic("on order")
			}
			return false, nil // without progress
		})
		if !n.marked {
			s.m.end(n, durable.OutcomeFaulted)
			return
		}
		n.returned()
		s.m.settle()
	case "wait":
		n := s.pick("node", running)
		var on []*modelNode
		for _, o := range s.m.nodes {
			if o.owner == n && rapid.Bool().Draw(rt, "wait for it") {
				on = append(on, o)
			}
		}
		if len(on) == 0 {
			return
		}
		policy := rapid.SampledFrom([]durable.WaitPolicy{durable.AllSettled, durable.FailFast}).Draw(rt, "policy")
		var ids []durable.TaskID
		for _, o := range on {
			ids = append(ids, o.id)
		}
		require.NoError(rt, s.commit(n, false, func(run *nodeRun, _ *durable.Tx) (nodeStep, error) {
			return run.Wait("run", run.Checkpoint()+1, durable.WaitOptions{On: ids, Policy: policy}), nil
		}))
		n.state, n.on, n.policy = "waiting", on, policy
		n.returned()
		s.m.settle()
	case "wait wrongly":
		n := s.pick("node", running)
		o := durable.WaitOptions{}
		want := durable.ErrInvalid
		switch rapid.IntRange(0, 3).Draw(rt, "mistake") {
		case 1:
			o.On = []durable.TaskID{n.id}
		case 2:
			o.On, want = []durable.TaskID{1 << 60}, durable.ErrNotFound
		case 3:
			if up := s.m.ownerOf(n); up != nil && up.live() {
				o.On = []durable.TaskID{up.id}
			}
		}
		require.ErrorIs(rt, s.commit(n, true, func(run *nodeRun, _ *durable.Tx) (nodeStep, error) {
			return run.Wait("run", run.Checkpoint()+1, o), nil
		}), want)
	case "wait for a signal":
		n := s.pick("node", running)
		require.NoError(rt, s.commit(n, false, func(run *nodeRun, _ *durable.Tx) (nodeStep, error) {
			return run.Wait("run", run.Checkpoint()+1, durable.WaitOptions{Signal: "go"}), nil
		}))
		n.state, n.signal = "waiting", true
		n.returned()
		s.m.settle()
	case "signal":
		n := s.pick("node", waiting)
		require.ErrorIs(rt, r.engine.Signal(r.ctx, n.id, "other", nil), durable.ErrAlreadySignalled)
		if n.marked {
			require.ErrorIs(rt, r.engine.Signal(r.ctx, n.id, "go", 1), durable.ErrAlreadySignalled)
			return
		}
		require.NoError(rt, r.engine.Signal(r.ctx, n.id, "go", 1))
		require.ErrorIs(rt, r.engine.Signal(r.ctx, n.id, "go", 2), durable.ErrAlreadySignalled)
		n.state, n.signal = "running", false
	case "abort task":
		n := s.pick("node", any)
		s.aborts.Go(func() { _ = r.engine.AbortTask(s.ctx, n.id, "asked for") })
		if n.live() {
			n.marked = true
			s.m.settle()
		}
	case "abort conversation":
		conv := rapid.IntRange(0, len(s.m.convs)-1).Draw(rt, "conversation")
		bg := rapid.Bool().Draw(rt, "background")
		c, err := r.engine.Conversation(r.ctx, s.m.convs[conv].id)
		require.NoError(rt, err)
		s.aborts.Go(func() { _, _ = c.Abort(s.ctx, &durable.AbortParams{Background: bg}) })
		for _, n := range s.m.nodes {
			if n.live() && (n.background && bg && s.m.within(n, conv) || n.conv == conv && !n.background && n.owner == nil) {
				n.marked = true
			}
		}
		s.m.settle()
	case "restart":
		r.restart()
		for _, n := range s.m.nodes {
			n.returned()
		}
		s.m.settle()
	}
}

// commit makes the code of a node commit a step.
func (s *ownershipScript) commit(n *modelNode, stay bool, fn func(run *nodeRun, tx *durable.Tx) (nodeStep, error)) (err error) {
	s.d.tell(n.id, func(ctx context.Context, run *nodeRun) (bool, error) {
		err = run.Commit(ctx, func(_ context.Context, tx *durable.Tx) (nodeStep, error) { return fn(run, tx) })
		return stay || err != nil, err
	})
	return err
}

func (s *ownershipScript) compare() {
	require.NoError(s.rt, s.r.history.check())
	var code []durable.TaskID
	for i, n := range s.m.nodes {
		rec := s.r.task(n.id)
		status := string(rec.State.Status)
		if status == "pending" {
			status = "running" // its code runs and has not committed yet
		}
		what := fmt.Sprintf("node %d", i)
		require.Equal(s.rt, n.state, status, what)
		require.Equal(s.rt, n.marked, rec.AbortRequested, what)
		var outcome durable.OutcomeStatus
		if rec.State.Outcome != nil {
			outcome = rec.State.Outcome.Status
		}
		require.Equal(s.rt, n.outcome, outcome, what)
		if n.hasCode() {
			code = append(code, n.id)
		}
	}
	slices.Sort(code)
	require.Equal(s.rt, code, s.d.running(), "tasks whose code runs")
	for i, c := range s.m.convs {
		conv, err := s.r.engine.Conversation(s.r.ctx, c.id)
		require.NoError(s.rt, err)
		busy, err := conv.Busy(s.r.ctx)
		require.NoError(s.rt, err)
		require.Equal(s.rt, s.m.busy(i), busy, "busy, conversation %d", i)
	}
}
