package durable_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func input(id, said string) *durable.SubmitParams {
	return &durable.SubmitParams{RequestID: id, Content: []model.Block{model.Text(said)}}
}

// The same request id is the same submission for ever: while it waits, while it
// runs, when it is settled, after a restart, and when the conversation was out
// of memory in between (E2.5, E8.5).
func TestSubmit_RequestID(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := &puppet{}
		r := newRig(t).provide(p).open()
		c := r.conversation()
		again := func(params *durable.SubmitParams, want durable.SubmissionID) {
			t.Helper()
			synctest.Wait() // the run has written what it has to write
			before, _ := r.history.counts()
			s, known, err := c.Submit(r.ctx, params)
			require.NoError(t, err)
			require.True(t, known)
			require.Equal(t, want, s.ID())
			now, _ := r.history.counts()
			require.Equal(t, before, now, "nothing is written")
		}
		first, known, err := c.Submit(r.ctx, input("a", "one"))
		require.NoError(t, err)
		require.False(t, known)
		again(input("a", "one"), first.ID())
		queued, known, err := c.Submit(r.ctx, input("b", "two"))
		require.NoError(t, err)
		require.False(t, known)
		again(input("b", "two"), queued.ID())

		// What is not compared.
		other := input("b", "two")
		other.WhenBusy, other.OutputTokens, other.HostData = durable.Reject, 5, json.RawMessage(`1`)
		again(other, queued.ID())

		for _, wrong := range []*durable.SubmitParams{
			input("a", "another"),
			input("b", "two "),
			{RequestID: "a", Type: durable.SubmissionWrite, Entry: note("one")},
		} {
			_, _, err := c.Submit(r.ctx, wrong)
			require.ErrorIs(t, err, durable.ErrRequestIDConflict)
		}

		r.restart()
		c = r.again(c)
		again(input("a", "one"), first.ID())
		after(time.Second)
		p.only(t).end(text("answer"))
		after(time.Second)
		p.only(t).end(text("answer"))
		after(time.Second)
		require.Equal(t, durable.SubmissionDone, r.record(queued).Status)
		again(input("a", "one"), first.ID())
		again(input("b", "two"), queued.ID())
		after(24 * time.Hour) // out of memory
		again(input("b", "two"), queued.ID())
		_, _, err = c.Submit(r.ctx, input("b", "other"))
		require.ErrorIs(t, err, durable.ErrRequestIDConflict)

		// Another conversation has ids of its own.
		d := r.conversation()
		_, known, err = d.Submit(r.ctx, input("a", "something else"))
		require.NoError(t, err)
		require.False(t, known)
	})
}

// The order of keys in an entry's data makes no other content (E8.5).
func TestSubmit_SameContent(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	write := func(data string) (bool, error) {
		_, known, err := c.Submit(r.ctx, &durable.SubmitParams{
			RequestID: "w", Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "test.note", Data: json.RawMessage(data)},
		})
		return known, err
	}
	known, err := write(`{"a":1,"b":{"c":[1,2],"d":null}}`)
	require.NoError(t, err)
	require.False(t, known)
	known, err = write(` {"b":{"d":null,"c":[1,2]},"a":1}`)
	require.NoError(t, err)
	require.True(t, known)
	for _, other := range []string{`{"a":1.0,"b":{"c":[1,2],"d":null}}`, `{"a":1,"b":{"c":[2,1],"d":null}}`, `{"a":1}`} {
		_, err = write(other)
		require.ErrorIs(t, err, durable.ErrRequestIDConflict, other)
	}
}

// Many at once with one request id: one is admitted (E2.5).
func TestSubmit_RequestIDRace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.model.AddRules([]faux.Rule{{Step: text("answer")}}, 0)
	r.open()
	c := r.conversation()
	const n = 40
	var wg sync.WaitGroup
	ids := make([]durable.SubmissionID, n)
	fresh := make([]bool, n)
	for i := range n {
		wg.Go(func() {
			s, known, err := c.Submit(r.ctx, input("same", "go"))
			if err == nil {
				ids[i], fresh[i] = s.ID(), !known
			}
		})
	}
	wg.Wait()
	admitted := 0
	for i := range n {
		require.Equal(t, ids[0], ids[i])
		if fresh[i] {
			admitted++
		}
	}
	require.Equal(t, 1, admitted)
	require.NotZero(t, ids[0])
	s, err := r.engine.Submission(r.ctx, ids[0])
	require.NoError(t, err)
	require.Equal(t, "answer", r.answer(s))
	require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
}

// What cannot be admitted is refused before anything is written.
func TestSubmit_Invalid(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	for name, p := range map[string]*durable.SubmitParams{
		"no content":           {},
		"blank content":        {Content: []model.Block{model.Text(" \n")}},
		"thinking":             {Content: []model.Block{{Type: model.BlockThinking, Thinking: "x"}}},
		"a tool call":          {Content: []model.Block{{Type: model.BlockToolCall, ID: "a", Name: "b"}}},
		"not UTF-8":            {Content: []model.Block{model.Text("a\xff")}},
		"unknown image":        {Content: []model.Block{model.Text("a"), {Type: model.BlockImage, MimeType: "image/tiff", Data: []byte("a")}}},
		"image of no data":     {Content: []model.Block{{Type: model.BlockImage, MimeType: "image/png"}}},
		"entry of an input":    {Content: []model.Block{model.Text("a")}, Entry: note("a")},
		"write without entry":  {Type: durable.SubmissionWrite},
		"write with content":   {Type: durable.SubmissionWrite, Entry: note("a"), Content: []model.Block{model.Text("a")}},
		"write of ours":        {Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "pi.user"}},
		"write of no kind":     {Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{}},
		"write of bad data":    {Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "a", Data: json.RawMessage(`{`)}},
		"write of bad edit":    {Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "a", Edits: []durable.Edit{{Target: 1, Action: "shred"}}}},
		"edit of nothing":      {Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "a", Edits: []durable.Edit{{Action: durable.EditOmit}}}},
		"unknown role":         {Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "a", Model: []model.Message{{Role: "bystander"}}}},
		"unknown type":         {Type: "wish", Content: []model.Block{model.Text("a")}},
		"unknown whenBusy":     {WhenBusy: "push in", Content: []model.Block{model.Text("a")}},
		"long request id":      {RequestID: strings.Repeat("a", 257), Content: []model.Block{model.Text("a")}},
		"negative limit":       {OutputTokens: -1, Content: []model.Block{model.Text("a")}},
		"host data of no JSON": {HostData: json.RawMessage(`{`), Content: []model.Block{model.Text("a")}},
	} {
		_, _, err := c.Submit(r.ctx, p)
		require.ErrorIs(t, err, durable.ErrInvalid, name)
	}
	commits, _ := r.history.counts()
	require.Equal(t, 1, commits, "only the conversation's own")
}

// Reject in a busy conversation writes nothing; in an idle one it is an input
// like another (E8.1).
func TestSubmit_Reject(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := &puppet{}
		r := newRig(t).provide(p).open()
		c := r.conversation()
		s := r.submit(c, "first", durable.Reject)
		after(time.Second)
		before, _ := r.history.counts()
		_, _, err := c.Submit(r.ctx, &durable.SubmitParams{RequestID: "x", WhenBusy: durable.Reject, Content: []model.Block{model.Text("second")}})
		require.ErrorIs(t, err, durable.ErrBusy)
		now, _ := r.history.counts()
		require.Equal(t, before, now)
		p.only(t).end(text("done"))
		require.Equal(t, "done", r.answer(s))
		_, known, err := c.Submit(r.ctx, input("x", "now"))
		require.NoError(t, err)
		require.False(t, known, "what was refused took no request id")
		after(time.Second)
		p.only(t).end(text("done"))
	})
}

// Withdraw takes back what waits, and only that (E8.6).
func TestSubmit_Withdraw(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := &puppet{}
		r := newRig(t).provide(p).open()
		c := r.conversation()
		running, waiting := r.send(c, "first"), r.send(c, "second")
		rec, err := waiting.Withdraw(r.ctx)
		require.NoError(t, err)
		require.Equal(t, durable.SubmissionUnanswered, rec.Status)
		require.Equal(t, durable.ReasonAborted, rec.Reason)
		rec, err = waiting.Withdraw(r.ctx)
		require.ErrorIs(t, err, durable.ErrSettled)
		require.Equal(t, durable.SubmissionUnanswered, rec.Status)
		rec, err = running.Withdraw(r.ctx)
		require.ErrorIs(t, err, durable.ErrAlreadyPlaced)
		require.Equal(t, durable.SubmissionPlaced, rec.Status)
		after(time.Second)
		p.only(t).end(text("done"))
		require.Equal(t, "done", r.answer(running))
		_, err = running.Withdraw(r.ctx)
		require.ErrorIs(t, err, durable.ErrSettled)
		after(time.Second)
		require.Empty(t, p.asked(), "the withdrawn one is not answered")
		require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c))
	})
}

// A run that cannot have a model ends without an answer, which says why (E8.4).
func TestSubmit_Reasons(t *testing.T) {
	t.Parallel()
	t.Run("no model is set", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.opts.Agent.Model = nil
		r.open()
		rec := r.unanswered(r.send(r.conversation(), "go"), durable.ReasonNoModel)
		require.Contains(t, string(rec.Detail), "no model")
	})
	t.Run("unknown model", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.opts.Agent.Model = &model.Ref{Provider: "nobody", ModelID: "another"}
		r.open()
		c := r.conversation()
		r.unanswered(r.send(c, "go"), durable.ReasonNoModel)
		ref := &model.Ref{Provider: "faux", ModelID: "faux-1"}
		require.NoError(t, c.ChangeAgent(r.ctx, &durable.AgentChange{Model: &ref}))
		r.model.Push(text("here"))
		require.Equal(t, "here", r.answer(r.send(c, "go again")), "the conversation stays usable")
	})
	t.Run("model error", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).open()
		r.model.Push(failure(model.ClassAuth))
		rec := r.unanswered(r.send(r.conversation(), "go"), durable.ReasonModelError)
		require.JSONEq(t, `{"class":"auth","message":"scripted"}`, string(rec.Detail))
	})
	t.Run("a provider that panics", func(t *testing.T) {
		t.Parallel()
		r := newRig(t).provide(broken{}).open()
		c := r.conversation()
		rec := r.unanswered(r.send(c, "go"), durable.ReasonModelError)
		require.Contains(t, string(rec.Detail), "out of order")
		require.NoError(t, c.WaitIdle(r.ctx))
	})
}

type broken struct{}

func (broken) Stream(context.Context, *model.Request, func(model.Delta)) (*model.Response, error) {
	panic("out of order")
}

// A host's hook writes in the very commit that settles a submission, once for
// each, whatever it is and however it ends (E3).
func TestSubmit_OnSettle(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		type settled struct {
			Reasons map[durable.SubmissionID]string
		}
		doc := durable.NewDoc(durable.DocSpec[settled]{Kind: "test.settled", Scope: durable.ScopeConversation})
		p := &puppet{}
		r := newRig(t).provide(p)
		r.opts.OnSettle = func(_ context.Context, tx *durable.Tx, s durable.SubmissionRecord) error {
			d, err := doc.Edit(tx, int64(s.ConversationID))
			if err != nil {
				return err
			}
			if d.Reasons == nil {
				d.Reasons = map[durable.SubmissionID]string{}
			}
			if _, ok := d.Reasons[s.ID]; ok {
				return errors.New("settled before")
			}
			d.Reasons[s.ID] = string(s.Status) + " " + s.Reason + string(s.HostData)
			return nil
		}
		r.open()
		c := r.conversation()
		idle := r.write(c, "idle")
		answered, _, err := c.Submit(r.ctx, &durable.SubmitParams{Content: []model.Block{model.Text("a")}, HostData: json.RawMessage(`{"to":"me"}`)})
		require.NoError(t, err)
		busy := r.write(c, "busy")
		taken := r.send(c, "b")
		failed := r.send(c, "c")
		aborted := r.send(c, "d")
		_, err = taken.Withdraw(r.ctx)
		require.NoError(t, err)
		after(time.Second)
		p.only(t).end(text("answer"))
		after(time.Second)
		p.only(t).end(failure(model.ClassQuota))
		after(time.Second)
		_, err = c.Abort(r.ctx, nil)
		require.NoError(t, err)
		got, err := doc.Get(r.ctx, r.engine, int64(c.ID()))
		require.NoError(t, err)
		require.Equal(t, map[durable.SubmissionID]string{
			idle.ID(): "done ", answered.ID(): `done {"to":"me"}`, busy.ID(): "done ", taken.ID(): "unanswered aborted",
			failed.ID(): "unanswered model_error", aborted.ID(): "unanswered aborted",
		}, got.Reasons)
		// In the same commit: none settles a submission without the document.
		for _, b := range r.history.batches {
			for _, s := range b.Submissions {
				if s.SettledAt == nil {
					continue
				}
				found := false
				for _, d := range b.Documents {
					found = found || d.Record.Kind == doc.Kind()
				}
				require.True(t, found, "submission %d", s.ID)
			}
		}
	})
}

// A reset begins a new context: what was said before stays in the history and
// is not sent any more, the prompt is shown anew; a handoff is the first message of
// the new context. A head that lies before it is stale (E3, E8.3, E11).
func TestSubmit_Reset(t *testing.T) {
	t.Parallel()
	r := newRig(t, tools(echoTool())).open()
	c := r.conversation()
	r.model.Push(text("one"), text("two"), text("three"))
	r.answer(r.send(c, "before"))
	old := r.entries(c)[0].ID
	s, err := c.Reset(r.ctx, "we agreed on tea")
	require.NoError(t, err)
	require.Equal(t, durable.SubmissionDone, r.wait(s).Status)
	r.answer(r.send(c, "after"))
	require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.reset", "pi.user", "pi.system", "pi.assistant"}, r.kinds(c))
	view := faux.NewView(r.model.Requests()[1])
	require.Len(t, view.Messages, 2)
	require.Equal(t, "we agreed on tea", view.Messages[0].Text())
	require.Equal(t, "after", view.Messages[1].Text())
	require.Len(t, view.Tools, 1)

	stale, _, err := c.Submit(r.ctx, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{Kind: "test.head", Head: old}})
	require.NoError(t, err)
	rec := r.unanswered(stale, durable.ReasonStale)
	require.Zero(t, rec.EntryID)

	// One that lies in it is taken.
	head, _, err := c.Submit(r.ctx, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: &durable.EntrySpec{
		Kind: "test.head", Head: r.entries(c)[6].ID, Model: []model.Message{model.UserMessage("summary", time.Time{})},
	}})
	require.NoError(t, err)
	require.Equal(t, durable.SubmissionDone, r.wait(head).Status)
	r.answer(r.send(c, "last"))
	view = faux.NewView(r.model.Requests()[2])
	var said []string
	for _, m := range view.Messages {
		said = append(said, m.Text())
	}
	require.Equal(t, []string{"summary", "two", "last"}, said)
	r.sameAsFresh(c)
}

// An input's own limit counts for its run and no other (E12.4).
func TestSubmit_OutputTokens(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Agent.OutputTokens = 500
	r.open()
	c := r.conversation()
	r.model.Push(text("a"), text("a longer answer than that"), text("c"))
	r.answer(r.send(c, "one"))
	s, _, err := c.Submit(r.ctx, &durable.SubmitParams{Content: []model.Block{model.Text("two")}, OutputTokens: 2})
	require.NoError(t, err)
	require.Equal(t, "a longer", r.answer(s))
	require.Equal(t, model.StopLength, r.record(s).StopReason)
	r.answer(r.send(c, "three"))
	for i, want := range []int{500, 2, 500} {
		require.Equal(t, want, r.model.Requests()[i].MaxOutputTokens)
	}
}

// Wait and Stream end with the caller's context, and with the engine (E8.6).
func TestSubmit_WaitEnds(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		p := &puppet{}
		r := newRig(t).provide(p).open()
		s := r.send(r.conversation(), "go")
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		defer cancel()
		rec, err := s.Wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, durable.SubmissionPlaced, rec.Status)
		done := make(chan error, 2)
		go func() { _, err := s.Wait(r.ctx); done <- err }()
		go func() {
			var last error
			for _, err := range s.Stream(r.ctx) {
				last = err
			}
			done <- last
		}()
		after(time.Second)
		r.close()
		require.ErrorIs(t, <-done, durable.ErrClosed)
		require.ErrorIs(t, <-done, durable.ErrClosed)
		_, err = s.Wait(r.ctx)
		require.ErrorIs(t, err, durable.ErrClosed)
	})
}
