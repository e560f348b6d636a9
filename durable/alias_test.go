package durable_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
)

// spoil overwrites everything that a message refers to.
func spoil(m *model.Message) {
	for i := range m.Content {
		b := &m.Content[i]
		b.Text, b.Thinking = "spoiled", "spoiled"
		spoilBytes(b.Arguments)
		spoilBytes(b.Data)
	}
	for i := range m.Sections {
		m.Sections[i].Text = "spoiled"
	}
	for i := range m.ToolsAdded {
		m.ToolsAdded[i].Name = "spoiled"
		spoilBytes(m.ToolsAdded[i].Parameters)
	}
	spoilBytes(m.Details)
	if m.Usage != nil {
		m.Usage.Total = -1
	}
}

func spoilBytes[T ~[]byte](p T) {
	for i := range p {
		p[i] = '#'
	}
}

// unspoiled checks that memory is as the store is, and that nothing in either
// was overwritten (E4.8).
func (r *rig) unspoiled(c *durable.Conversation) {
	help(r.t)
	r.idle(c)
	r.sameAsFresh(c)
	msgs, err := c.Context(r.ctx)
	require.NoError(r.t, err)
	require.NotContains(r.t, string(mustJSON(msgs)), "spoiled")
}

// What a request shows to a hook is the hook's (E4.8, E9.3).
func TestAlias_BeforeRequest(t *testing.T) {
	t.Parallel()
	ext := tools(echoTool())
	ext.Sections = []durable.Section{{Key: "s", Render: func(context.Context, *durable.RequestContext) (string, error) { return "a section", nil }}}
	ext.Hooks.BeforeRequest = func(_ context.Context, _ *durable.RequestContext, req *model.Request) error {
		shown := req.Messages
		req.Messages = append([]model.Message(nil), shown...)
		for i := range shown {
			req.Messages[i] = shown[i].Clone()
			spoil(&shown[i])
		}
		return nil
	}
	r := newRig(t, ext).open()
	c := r.conversation()
	r.model.Push(call("echo", `{"text":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	r.unspoiled(c)
	r.model.Push(call("echo", `{"text":"b"}`), text("again"))
	require.Equal(t, "again", r.answer(r.send(c, "go")), "the tool is as it was declared")
	require.NotContains(t, string(mustJSON(r.model.Requests()[3].Messages)), "spoiled")
	r.unspoiled(c)
}

// What is handed over is copied: entries, writes, inputs, host data (E4.8).
func TestAlias_HandedOver(t *testing.T) {
	t.Parallel()
	r := newRig(t).open()
	c := r.conversation()
	spec := func() durable.EntrySpec {
		return durable.EntrySpec{
			Kind: "test.note", Data: json.RawMessage(`{"a":"kept"}`),
			Model: []model.Message{{Role: model.RoleUser, Content: []model.Block{model.Text("kept")}}},
		}
	}
	change := func(s *durable.EntrySpec) {
		spoil(&s.Model[0])
		spoilBytes(s.Data)
		for i := range s.Edits {
			spoil(&s.Edits[i].Messages[0])
		}
	}

	appended := spec()
	r.update(c, func(tx *durable.Tx) error {
		_, err := tx.AppendEntry(c.ID(), appended)
		return err
	})
	change(&appended)
	edit := spec()
	edit.Edits = []durable.Edit{{Target: r.entries(c)[0].ID, Action: durable.EditReplace, Messages: []model.Message{{Role: model.RoleUser, Content: []model.Block{model.Text("edited")}}}}}
	r.update(c, func(tx *durable.Tx) error {
		_, err := tx.AppendEntry(c.ID(), edit)
		return err
	})
	change(&edit)
	written := spec()
	_, _, err := c.Submit(r.ctx, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: &written})
	require.NoError(t, err)
	change(&written)
	r.unspoiled(c)

	// What waits in the inbox is looked at later.
	hold := make(chan struct{})
	step := text("one")
	step.Wait = hold
	r.model.Push(step, text("two"))
	first := r.send(c, "go")
	waits, host, content := spec(), json.RawMessage(`{"mine":"kept"}`), []model.Block{model.Text("kept")}
	_, _, err = c.Submit(r.ctx, &durable.SubmitParams{Type: durable.SubmissionWrite, Entry: &waits})
	require.NoError(t, err)
	second, _, err := c.Submit(r.ctx, &durable.SubmitParams{Content: content, HostData: host})
	require.NoError(t, err)
	change(&waits)
	spoilBytes(host)
	content[0].Text = "spoiled"
	inbox, err := c.Inbox(r.ctx)
	require.NoError(t, err)
	require.Len(t, inbox, 2)
	for i := range inbox { // and what is read is the reader's
		require.NotContains(t, string(mustJSON(inbox[i])), "spoiled")
		spoilBytes(inbox[i].HostData)
		if e := inbox[i].Queued.Entry; e != nil {
			change(e)
		}
		for j := range inbox[i].Queued.Content {
			inbox[i].Queued.Content[j].Text = "spoiled"
		}
	}
	close(hold)
	r.answer(first)
	r.answer(second)
	require.JSONEq(t, `{"mine":"kept"}`, string(r.record(second).HostData))
	for _, req := range r.model.Requests() {
		require.NotContains(t, string(mustJSON(req.Messages)), "spoiled")
	}
	r.unspoiled(c)
}

// A tool's declaration is its own, whoever made it or looked at it (E4.8).
func TestAlias_ToolSpec(t *testing.T) {
	t.Parallel()
	schema := json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`)
	want := string(schema)
	raw, err := durable.NewRawTool(durable.ToolSpec{Name: "raw", Description: "For tests.", Parameters: schema}, func(context.Context, *durable.ToolCall, json.RawMessage) (durable.ToolResult, error) {
		return durable.TextResult("fine"), nil
	})
	require.NoError(t, err)
	spoilBytes(schema)
	spoilBytes(raw.Spec().Parameters)
	spoilBytes(raw.Declaration().Parameters)
	require.Equal(t, want, string(raw.Spec().Parameters))
	r := newRig(t, tools(raw)).open()
	c := r.conversation()
	r.model.Push(call("raw", `{"text":"a"}`), text("done"))
	require.Equal(t, "done", r.answer(r.send(c, "go")))
	r.unspoiled(c)
}

// Every reader of events and streams has payloads of its own, and what it does
// with them concerns nobody else (E4.8, E17.4).
func TestAlias_Payloads(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		detailed := tool("detailed", func(context.Context, *durable.ToolCall, string) (durable.ToolResult, error) {
			return durable.ToolResult{Content: []model.Block{model.Text("result")}, Details: json.RawMessage(`{"a":1}`), Usage: &model.Usage{Total: 3}}, nil
		})
		r := newRig(t, tools(detailed)).open()
		c := r.conversation()
		r.model.Push(call("detailed", `{"text":"a"}`), slow("the answer"), text("behind it"))
		for range 2 { // readers that spoil what they are given
			go func() {
				for ev, err := range c.Events(r.ctx, "") {
					if err != nil {
						return
					}
					spoilEvent(ev)
				}
			}()
		}
		after(0)
		w := watch(r, c)
		after(0)
		s, _, err := c.Submit(r.ctx, &durable.SubmitParams{Content: []model.Block{model.Text("go")}, HostData: json.RawMessage(`{"a":1}`)})
		require.NoError(t, err)
		r.send(c, "waits")
		go func() {
			for ev, err := range s.Stream(r.ctx) {
				if err != nil {
					return
				}
				spoil(&model.Message{Content: ev.Content})
				spoilBytes(ev.Arguments)
				if ev.Submission != nil {
					spoilBytes(ev.Submission.HostData)
				}
			}
		}()
		early := listen(r, s)
		after(time.Hour)
		require.Equal(t, "the answer", r.answer(s))
		require.Equal(t, "the answer", early.text())
		require.Equal(t, []string{"result"}, early.results())
		require.Equal(t, []string{"result"}, listen(r, s).end().results())
		w.mu.Lock()
		seen := slices.Clone(w.events)
		w.mu.Unlock()
		// What is kept for readers that come back is as it was, too.
		n := len(seen)
		for ev, err := range c.Events(r.ctx, seen[0].ID) {
			require.NoError(t, err)
			if seen = append(seen, ev); ev.ID == seen[n-1].ID {
				break
			}
		}
		require.Len(t, seen, 2*n-1)
		for _, ev := range seen {
			raw, err := json.Marshal(ev.Data)
			require.NoError(t, err, "%s", ev.Type)
			require.NotContains(t, string(raw), "spoiled", "%s", ev.Type)
			require.NotContains(t, string(raw), "###", "%s", ev.Type)
			require.NotRegexp(t, `[:,[]-1`, string(raw), "%s", ev.Type)
		}
		require.JSONEq(t, `{"a":1}`, string(r.record(s).HostData))
		rec := c.Record()
		rec.TreeID = 0
		require.NotZero(t, c.Record().TreeID)
		r.unspoiled(c)
	})
}

func spoilEvent(ev durable.Event) {
	switch d := ev.Data.(type) {
	case durable.EntryEvent:
		for i := range d.Entry.Model {
			spoil(&d.Entry.Model[i])
		}
		spoilBytes(d.Entry.Data)
	case durable.ToolEvent:
		spoilBytes(d.Arguments)
		if d.Result != nil {
			spoil(d.Result)
		}
	case durable.SubmissionEvent:
		spoilBytes(d.Submission.HostData)
		spoilBytes(d.Submission.Detail)
		if d.Submission.SettledAt != nil {
			*d.Submission.SettledAt = time.Time{}
		}
	case durable.DocEvent:
		spoilBytes(d.Value)
	case durable.MessageEvent:
		if d.Delta != nil {
			d.Delta.Text = "spoiled"
		}
	case durable.RunEvent:
		for i := range d.SubmissionIDs {
			d.SubmissionIDs[i] = -1
		}
	case durable.InboxEvent:
		for i := range d.Queued {
			d.Queued[i] = -1
		}
	case durable.TaskFailedEvent:
		spoilBytes(d.Outcome.Result)
	case durable.Snapshot:
		for i := range d.View.Entries {
			for j := range d.View.Entries[i].Model {
				spoil(&d.View.Entries[i].Model[j])
			}
		}
		for _, raw := range d.View.Docs {
			spoilBytes(raw)
		}
	}
}
