package durable_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// inboxModel says what a conversation looks like after each step of a random
// script: the statuses of its submissions, its inbox, its transcript. It is
// the reading of E7.4, E8.1, E8.2, E8.3 and E12.3 that TestInbox_Random holds
// the engine to.
type inboxModel struct {
	all      bool // Options.AllFollowUps
	subs     []modelSub
	queue    []int
	kinds    []string
	baseline bool
	run      []int // inputs of the run that goes on
	phase    string
	attempt  int  // failed ones of the request that is due
	said     bool // a part of the answer
	open     int  // tool calls that run
	// atRound: the request that is due was sent right behind a tool round, with
	// nothing to store in between. A restart finds the round, with its boundary.
	atRound bool
}

type modelSub struct {
	kind   string // followUp, steer, write, reset
	status durable.SubmissionStatus
	reason string
}

func (m *inboxModel) settle(i int, reason string) {
	m.subs[i].status, m.subs[i].reason = durable.SubmissionDone, reason
	if reason != "" {
		m.subs[i].status = durable.SubmissionUnanswered
	}
}

func (m *inboxModel) submit(kind string) {
	m.subs = append(m.subs, modelSub{kind: kind, status: durable.SubmissionQueued})
	i := len(m.subs) - 1
	m.queue = append(m.queue, i)
	if m.run == nil {
		m.final()
	}
}

func (m *inboxModel) take(which func(kind string) bool) []int {
	var out, left []int
	for _, i := range m.queue {
		if which(m.subs[i].kind) {
			out = append(out, i)
		} else {
			left = append(left, i)
		}
	}
	m.queue = left
	return out
}

func isWrite(kind string) bool { return kind == "write" || kind == "reset" }
func isSteer(kind string) bool { return kind == "steer" }

func (m *inboxModel) placeWrites() (reset bool) {
	for _, i := range m.take(isWrite) {
		m.settle(i, "")
		if m.subs[i].kind == "reset" {
			m.kinds, m.baseline, reset = append(m.kinds, "pi.reset"), false, true
		} else {
			m.kinds = append(m.kinds, "test.note")
		}
	}
	return reset
}

func (m *inboxModel) place(inputs []int) {
	for _, i := range inputs {
		m.subs[i].status = durable.SubmissionPlaced
		m.kinds = append(m.kinds, "pi.user")
		m.run = append(m.run, i)
	}
}

// final is the boundary at the end of a run.
func (m *inboxModel) final() {
	m.run, m.phase = nil, ""
	m.placeWrites()
	next := m.take(isSteer)
	if len(next) == 0 && len(m.queue) > 0 {
		n := 1
		if m.all {
			n = len(m.queue)
		}
		next, m.queue = m.queue[:n:n], m.queue[n:]
	}
	if len(next) > 0 {
		m.place(next)
		m.attempt = 0
		m.request()
	}
}

func (m *inboxModel) request() {
	if !m.baseline {
		m.kinds, m.baseline = append(m.kinds, "pi.system"), true
	}
	m.phase, m.said, m.atRound = "request", false, false
}

func (m *inboxModel) end(reason string) {
	for _, i := range m.run {
		m.settle(i, reason)
	}
	m.final()
}

func (m *inboxModel) results(n int) {
	for range n {
		m.kinds = append(m.kinds, "pi.tool-result")
	}
	if m.open -= n; m.open == 0 {
		m.afterRound()
	}
}

// afterRound is the boundary after a tool round.
func (m *inboxModel) afterRound() {
	before := len(m.kinds)
	if m.placeWrites() {
		m.end("reset")
		return
	}
	m.place(m.take(isSteer))
	placed := len(m.kinds) > before
	m.request()
	m.atRound = !placed
}

func (m *inboxModel) abort() {
	if m.run == nil {
		return
	}
	for _, i := range m.take(func(kind string) bool { return !isWrite(kind) }) {
		m.settle(i, "aborted")
	}
	switch m.phase {
	case "request":
		if m.said {
			m.kinds = append(m.kinds, "pi.assistant")
		}
	case "tools":
		for range m.open {
			m.kinds = append(m.kinds, "pi.tool-result")
		}
	}
	m.open = 0
	m.end("aborted")
}

func (m *inboxModel) restart(safe bool) {
	switch m.phase {
	case "request":
		if m.said {
			m.kinds = append(m.kinds, "pi.assistant")
		}
		m.said = false
		if m.atRound {
			m.afterRound()
		}
	case "tools":
		if !safe {
			m.results(m.open)
		}
	}
}

// TestInbox_Random runs random scripts of submissions, answers, tool rounds,
// failures, aborts and restarts against the engine and against a small model,
// and compares them after every step (E2.6, E2.7, E2.8, E2.9, E7.4, E8.1 to
// E8.3).
func TestInbox_Random(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		bubble(t, func(t *testing.T) { inboxScript(rt, t) })
	})
}

func inboxScript(rt *rapid.T, t *testing.T) {
	m := &inboxModel{all: rapid.Bool().Draw(rt, "all follow-ups")}
	safe := rapid.Bool().Draw(rt, "tool is replay-safe")
	spec := durable.ToolSpec{Name: "gate"}
	if safe {
		spec.Replay = durable.ReplaySafe
	}
	g, p := newGate(), &puppet{}
	r := makeRig(rt, t.Context(), tools(g.tool(spec))).provide(p)
	r.opts.AllFollowUps, r.history.allFollowUps = m.all, m.all
	r.opts.Retry = durable.RetryPolicy{Base: time.Hour, Cap: 24 * time.Hour}
	r.open()
	defer r.finish()
	c := r.conversation()
	var subs []*durable.Submission
	unique := 0
	name := func() string { unique++; return fmt.Sprint(unique) }

	step := func() {
		ops := []string{"followUp", "steer", "reject", "write", "reset", "withdraw", "abort", "restart"}
		switch m.phase {
		case "request":
			ops = append(ops, "say", "answer", "answer", "calls", "calls", "fail", "fail for now")
		case "tools":
			ops = append(ops, "return", "return", "return")
		case "retry":
			ops = append(ops, "pass time", "pass time")
		}
		op := rapid.SampledFrom(ops).Draw(rt, "op")
		switch op {
		case "followUp", "steer":
			subs = append(subs, r.submit(c, op+" "+name(), durable.WhenBusy(op)))
			m.submit(op)
		case "reject":
			s, _, err := c.Submit(r.ctx, &durable.SubmitParams{Content: []model.Block{model.Text("reject " + name())}, WhenBusy: durable.Reject})
			if m.run != nil {
				require.ErrorIs(rt, err, durable.ErrBusy)
				break
			}
			require.NoError(rt, err)
			subs = append(subs, s)
			m.submit("followUp")
		case "write":
			subs = append(subs, r.write(c, name()))
			m.submit("write")
		case "reset":
			s, err := c.Reset(r.ctx, "")
			require.NoError(rt, err)
			subs = append(subs, s)
			m.submit("reset")
		case "withdraw":
			if len(subs) == 0 {
				return
			}
			i := rapid.IntRange(0, len(subs)-1).Draw(rt, "which")
			s, err := r.engine.Submission(r.ctx, subs[i].ID())
			require.NoError(rt, err)
			_, err = s.Withdraw(r.ctx)
			switch m.subs[i].status {
			case durable.SubmissionQueued:
				require.NoError(rt, err)
				m.queue = slices.DeleteFunc(m.queue, func(q int) bool { return q == i })
				m.settle(i, "aborted")
			case durable.SubmissionPlaced:
				require.ErrorIs(rt, err, durable.ErrAlreadyPlaced)
			default:
				require.ErrorIs(rt, err, durable.ErrSettled)
			}
		case "abort":
			_, err := c.Abort(r.ctx, nil)
			require.NoError(rt, err)
			m.abort()
		case "restart":
			r.restart()
			c = r.again(c)
			m.restart(safe)
		case "say":
			p.only(rt).say("word " + name() + " ")
			m.said, m.atRound = true, false
		case "answer":
			p.only(rt).end(text("answer " + name()))
			m.kinds = append(m.kinds, "pi.assistant")
			m.end("")
		case "calls":
			m.open = rapid.IntRange(1, 3).Draw(rt, "calls")
			var args []string
			for range m.open {
				args = append(args, name())
			}
			p.only(rt).end(calls("gate", args...))
			m.kinds, m.phase, m.attempt = append(m.kinds, "pi.assistant"), "tools", 0
		case "fail":
			p.only(rt).end(failure(model.ClassInvalidRequest))
			m.kinds = append(m.kinds, "pi.assistant")
			m.end("model_error")
		case "fail for now":
			p.only(rt).end(failure(model.ClassOverloaded))
			if m.attempt == 3 {
				m.kinds = append(m.kinds, "pi.assistant")
				m.end("model_error")
				break
			}
			m.attempt++
			m.phase = "retry"
		case "return":
			running := g.calls()
			require.Len(rt, running, m.open)
			i := rapid.IntRange(0, len(running)-1).Draw(rt, "call")
			res := durable.TextResult("result " + name())
			res.IsError = rapid.Bool().Draw(rt, "is error")
			running[i].end <- res
			m.results(1)
		case "pass time":
			after(25 * time.Hour)
			m.request()
		}
	}
	for range rapid.IntRange(1, 25).Draw(rt, "steps") {
		step()
		after(200 * time.Millisecond)
		inboxCompare(rt, r, c, m, subs)
		require.NoError(rt, p.fault())
		if m.phase == "tools" {
			require.Len(rt, g.calls(), m.open)
		}
		if !safe {
			require.LessOrEqual(rt, g.most(), 1, "a tool that must not run twice did (E2.6)")
		}
	}
	// Whatever waits is answered in the end.
	for range 1000 {
		if m.phase == "" {
			break
		}
		switch m.phase {
		case "request":
			p.only(rt).end(faux.Step{Text: "the end"})
			m.kinds = append(m.kinds, "pi.assistant")
			m.end("")
		case "tools":
			g.calls()[0].end <- durable.TextResult("the end")
			m.results(1)
		case "retry":
			after(25 * time.Hour)
			m.request()
		}
		after(200 * time.Millisecond)
	}
	inboxCompare(rt, r, c, m, subs)
	r.sameAsFresh(c)
}

func inboxCompare(rt *rapid.T, r *rig, c *durable.Conversation, m *inboxModel, subs []*durable.Submission) {
	require.NoError(rt, r.history.check())
	for i, s := range subs {
		rec := r.record(s)
		require.Equal(rt, m.subs[i].status, rec.Status, "submission %d, a %s", i, m.subs[i].kind)
		require.Equal(rt, m.subs[i].reason, rec.Reason, "submission %d, a %s", i, m.subs[i].kind)
	}
	require.Equal(rt, m.kinds, r.kinds(c))
	inbox, err := c.Inbox(r.ctx)
	require.NoError(rt, err)
	var queued []durable.SubmissionID
	for _, i := range m.queue {
		queued = append(queued, subs[i].ID())
	}
	var got []durable.SubmissionID
	for _, s := range inbox {
		got = append(got, s.ID)
	}
	require.Equal(rt, queued, got, "inbox")
	busy, err := c.Busy(r.ctx)
	require.NoError(rt, err)
	require.Equal(rt, m.run != nil, busy, "busy")
}
