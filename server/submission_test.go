package server_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/server"
)

// pixel is a PNG of one pixel, as base64.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// (S3, S9)
func TestSubmit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	f.faux.Push(faux.Step{Text: "Hi there."})
	sub := f.submit(c.ID, input("r1", "Hello"))
	require.Equal(t, c.ID, sub.ConversationID)
	require.Equal(t, "r1", sub.RequestID)
	require.Equal(t, "input", sub.Type)
	require.Nil(t, sub.Answer)

	done := f.wait(sub.ID)
	require.Equal(t, "done", done.Status)
	require.Equal(t, &server.Answer{Text: "Hi there.", StopReason: "stop"}, done.Answer)
	require.Positive(t, done.Usage.Total)
	require.NotZero(t, done.EntryID)
	require.NotZero(t, done.AnswerEntryID)
	require.False(t, done.TimedOut)

	// (E2.5) The same requestId finds it again, with the string as a block too.
	for _, content := range []any{"Hello", []any{map[string]any{"type": "text", "text": "Hello"}}} {
		var again server.Submission
		f.do("POST", path("/v1/conversations/%d/submit", c.ID), map[string]any{"requestId": "r1", "content": content}).into(200, &again)
		require.Equal(t, done, again)
	}
	f.do("POST", path("/v1/conversations/%d/submit", c.ID), input("r1", "Other")).problem(409, "request_id_conflict")
	require.EqualValues(t, 1, f.faux.Count())

	var got server.Submission
	f.do("GET", path("/v1/submissions/%d", sub.ID), nil).into(200, &got)
	require.Equal(t, done, got)

	var usage server.UsageReport
	f.do("GET", "/v1/usage", nil).into(200, &usage)
	require.Equal(t, done.Usage.Total, usage.Summary.Tokens)
	require.Equal(t, *done.Usage, usage.Models["faux/faux-1"])
	var conv server.Conversation
	f.do("GET", path("/v1/conversations/%d", c.ID), nil).into(200, &conv)
	require.Equal(t, usage.Summary, conv.UsageSummary)
	require.Equal(t, done.AnswerEntryID, conv.Head)
}

// (S3) A submission's usage is that of its own run, also when that failed.
func TestSubmission_Usage(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	f.faux.Push(
		faux.Step{ToolCalls: []faux.ToolCall{{Name: "echo", Arguments: json.RawMessage(`{"text":"a"}`)}}, Usage: &model.Usage{Input: 1}},
		faux.Step{Text: "x", Error: &faux.Error{Class: "quota"}, Usage: &model.Usage{Input: 10}},
		faux.Step{Text: "ok", Usage: &model.Usage{Input: 100}},
	)
	failed := f.submit(c.ID, input("r1", "x"))
	f.wait(failed.ID)
	require.EqualValues(t, 100, f.wait(f.submit(c.ID, input("r2", "y")).ID).Usage.Input)
	got := f.wait(failed.ID)
	require.Equal(t, "unanswered", got.Status)
	require.EqualValues(t, 11, got.Usage.Input)
}

// (S3) Unknown fields are ignored here, and only here.
func TestSubmit_Fields(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	f.faux.AddRules([]faux.Rule{{Step: faux.Step{Text: "ok"}}}, 0)
	route := path("/v1/conversations/%d/submit", c.ID)
	for _, tt := range []struct{ name, body, location string }{
		{"unknown fields", `{"requestId":"a","content":"x","foo":1,"Content":"other"}`, ""},
		{"type", `{"requestId":"b","content":"x","type":"input","whenBusy":"steer","limits":{"outputTokens":9}}`, ""},
		{"image", `{"requestId":"c","content":[{"type":"text","text":"x"},{"type":"image","mimeType":"image/png","data":"` + pixel + `"}]}`, ""},
		{"no requestId", `{"content":"x"}`, "body.requestId"},
		{"empty requestId", `{"requestId":"","content":"x"}`, "body.requestId"},
		{"long requestId", `{"requestId":"` + strings.Repeat("x", 257) + `","content":"x"}`, "body.requestId"},
		{"no content", `{"requestId":"d"}`, "body.content"},
		{"content of another type", `{"requestId":"d","content":5}`, "body.content"},
		{"requestId with a NUL", `{"requestId":"d\u0000","content":"x"}`, "body.requestId"},
		{"no body", ``, "body"},
		{"unknown block", `{"requestId":"d","content":[{"type":"text","text":"x"},{"type":"video"}]}`, "body.content[1].type"},
		{"block without a type", `{"requestId":"d","content":[{"text":"x"}]}`, "body.content[0].type"},
		{"block that is a text", `{"requestId":"d","content":["x"]}`, "body.content[0]"},
		{"image of another type", `{"requestId":"d","content":[{"type":"text","text":"x"},{"type":"image","mimeType":"image/bmp","data":"` + pixel + `"}]}`, "body.content[1].mimeType"},
		{"a tool call", `{"requestId":"d","content":[{"type":"toolCall","id":"x","name":"y","arguments":{}}]}`, "body.content[0].type"},
		{"whenBusy", `{"requestId":"d","content":"x","whenBusy":"later"}`, "body.whenBusy"},
		{"type", `{"requestId":"d","content":"x","type":"other"}`, "body.type"},
		{"spend limit", `{"requestId":"d","content":"x","limits":{"costUsd":1}}`, "body.limits.costUsd"},
		{"output limit of 0", `{"requestId":"d","content":"x","limits":{"outputTokens":0}}`, "body.limits.outputTokens"},
		{"callback", `{"requestId":"d","content":"x","callback":{"url":"https://example.com"}}`, "body.callback"},
		{"entry and content", `{"requestId":"d","content":"x","entry":{"kind":"k"}}`, "body.content"},
		{"write without entry", `{"requestId":"d","type":"write"}`, "body.entry"},
		{"write with content", `{"requestId":"d","type":"write","content":"x","entry":{"kind":"k"}}`, "body.entry"},
		{"write with an unknown field", `{"requestId":"d","type":"write","entry":{"kind":"k","x":1}}`, "body.entry.x"},
		{"write of a kind of the engine", `{"requestId":"d","type":"write","entry":{"kind":"pi.user"}}`, "body.entry.kind"},
		{"write with half a message", `{"requestId":"d","type":"write","entry":{"kind":"k","model":[{"role":"user"}]}}`, "body.entry.model[0].content"},
		{"blank content", `{"requestId":"d","content":"  "}`, "body.content"},
		{"image that is none", `{"requestId":"d","content":[{"type":"image","mimeType":"image/png","data":"AAAA"}]}`, "body.content[0].data"},
		{"base64 that is none", `{"requestId":"d","content":[{"type":"image","mimeType":"image/png","data":"?"}]}`, "body.content[0].data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := f.do("POST", route, tt.body)
			if tt.location == "" {
				require.Equal(t, 202, a.status, a.body)
				return
			}
			p := a.problem(400, "invalid")
			require.Equal(t, tt.location, p["errors"].([]any)[0].(map[string]any)["location"], a.body)
		})
	}
	f.do("POST", "/v1/conversations/99/submit", input("r", "x")).problem(404, "not_found")
	f.do("GET", "/v1/submissions/99", nil).problem(404, "not_found")
	f.do("GET", "/v1/submissions/99/wait", nil).problem(404, "not_found")
	f.do("GET", "/v1/submissions/99/stream", nil).problem(404, "not_found")
	f.do("POST", "/v1/submissions/99/withdraw", nil).problem(404, "not_found")
}

// (S3, S9) A write adds an entry that the model may see.
func TestSubmit_Write(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	f.faux.AddRules([]faux.Rule{{Step: faux.Step{Text: "ok"}}}, 0)
	sub := f.submit(c.ID, `{"requestId":"w","type":"write","entry":{"kind":"app.note","data":{"b":1,"a":12345678901234567890},
		"model":[{"role":"user","content":"Remember the milk."}]}}`)
	require.Equal(t, "done", sub.Status)
	require.Nil(t, sub.Answer)
	a := f.do("GET", path("/v1/conversations/%d/entries", c.ID), nil)
	require.Contains(t, a.body, `{"b":1,"a":12345678901234567890}`, "JSON text stays as it came (S9)")
	f.wait(f.submit(c.ID, input("i", "What?")).ID)
	require.Contains(t, f.do("GET", "/v1/test/faux/requests", nil).body, "Remember the milk.")
	require.Contains(t, f.do("GET", path("/v1/conversations/%d/context", c.ID), nil).body, "Remember the milk.")

	f.submit(c.ID, path(`{"requestId":"e","type":"write","entry":{"kind":"app.edit","edits":[{"target":%d,"action":"omit"}]}}`, sub.EntryID))
	require.NotContains(t, f.do("GET", path("/v1/conversations/%d/context", c.ID), nil).body, "Remember the milk.")
	f.do("GET", "/v1/conversations/99/context", nil).problem(404, "not_found")
}

// (S3) A model without credential: nothing is written.
func TestSubmit_MissingCredential(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	agent := map[string]any{"model": map[string]any{"provider": "keyless", "modelId": "k-1"}}
	c := f.conversation(map[string]any{"agent": agent})
	p := f.do("POST", path("/v1/conversations/%d/submit", c.ID), input("r", "x")).problem(409, "missing_credential")
	require.Equal(t, "keyless", p["provider"])
	p = f.do("POST", "/v1/submit", map[string]any{"requestId": "r", "content": "x", "agent": agent}).problem(409, "missing_credential")
	require.Equal(t, "keyless", p["provider"])
	var page server.ConversationPage
	f.do("GET", "/v1/conversations", nil).into(200, &page)
	require.Len(t, page.Items, 1)
	var entries server.EntryPage
	f.do("GET", path("/v1/conversations/%d/entries", c.ID), nil).into(200, &entries)
	require.Empty(t, entries.Items)

	// What was admitted while there was a credential is found again.
	f.faux.Push(faux.Step{Text: "ok"})
	c = f.conversation(nil)
	first := f.wait(f.submit(c.ID, input("r", "x")).ID)
	f.do("PATCH", path("/v1/conversations/%d", c.ID), map[string]any{"agent": agent})
	var again server.Submission
	f.do("POST", path("/v1/conversations/%d/submit", c.ID), input("r", "x")).into(200, &again)
	require.Equal(t, first, again)
}

// (S3, E4.1) The same requestId finds conversation and submission again, also
// when many ask at once.
func TestSubmitAnywhere(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.faux.AddRules([]faux.Rule{{Step: faux.Step{Text: "ok"}}}, 0)
	body := map[string]any{"requestId": "r", "content": "x", "title": "T", "agent": map[string]any{"instructions": "I"}, "foo": 1}
	results := make(chan server.Submission, 8)
	var wg sync.WaitGroup
	for range cap(results) {
		wg.Go(func() {
			var s server.Submission
			a := f.do("POST", "/v1/submit", body)
			if json.Unmarshal([]byte(a.body), &s) == nil {
				results <- s
			}
		})
	}
	wg.Wait()
	close(results)
	var first server.Submission
	n := 0
	for s := range results {
		if first.ID == 0 {
			first = s
		}
		require.Equal(t, first.ID, s.ID)
		require.Equal(t, first.ConversationID, s.ConversationID)
		n++
	}
	require.Equal(t, 8, n)
	var c server.Conversation
	f.do("GET", path("/v1/conversations/%d", first.ConversationID), nil).into(200, &c)
	require.Equal(t, "T", c.Title)
	require.Equal(t, "I", c.Agent.Instructions)
	f.wait(first.ID)

	var page server.ConversationPage
	f.do("GET", "/v1/conversations", nil).into(200, &page)
	require.Len(t, page.Items, 1)
	f.do("POST", "/v1/submit", input("r", "other")).problem(409, "request_id_conflict")

	var s server.Submission
	f.do("POST", "/v1/submit", map[string]any{"requestId": "r2", "content": "x", "conversationId": first.ConversationID}).into(202, &s)
	require.Equal(t, first.ConversationID, s.ConversationID)
	f.wait(s.ID)
	f.do("POST", "/v1/submit", map[string]any{"requestId": "r3", "content": "x", "conversationId": 99}).problem(404, "not_found")
	f.do("POST", "/v1/submit", map[string]any{"requestId": "r3", "content": "x", "conversationId": first.ConversationID, "title": "U"}).problem(400, "invalid")
	f.do("POST", "/v1/submit", map[string]any{"requestId": "r3", "content": "x", "type": "write"}).problem(400, "invalid")
	f.do("POST", "/v1/submit", map[string]any{"requestId": "r3", "content": ""}).problem(400, "invalid")
	f.do("POST", "/v1/submit", map[string]any{"requestId": "r3", "content": "x", "callback": map[string]any{}}).problem(400, "invalid")
	f.do("GET", "/v1/conversations", nil).into(200, &page)
	require.Len(t, page.Items, 1, "what was refused has created nothing")
}

// (E8) Busy, steer, withdraw, abort.
func TestSubmission_WhileBusy(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	hold := make(chan struct{})
	f.faux.Push(faux.Step{ToolCalls: []faux.ToolCall{{Name: "echo", Arguments: json.RawMessage(`{"text":"a"}`)}}, Hold: hold},
		faux.Step{Text: "answer to both"})
	first := f.submit(c.ID, input("r1", "one"))

	f.do("POST", path("/v1/conversations/%d/submit", c.ID), map[string]any{"requestId": "no", "content": "x", "whenBusy": "reject"}).problem(409, "busy")
	steer := f.submit(c.ID, map[string]any{"requestId": "r2", "content": "and this", "whenBusy": "steer"})
	queued := f.submit(c.ID, input("r3", "later"))
	require.Equal(t, "queued", queued.Status)
	var conv server.Conversation
	f.do("GET", path("/v1/conversations/%d", c.ID), nil).into(200, &conv)
	require.True(t, conv.Busy)
	require.Equal(t, []durable.SubmissionID{steer.ID, queued.ID}, conv.Inbox)

	var withdrawn server.Submission
	f.do("POST", path("/v1/submissions/%d/withdraw", queued.ID), "{}").into(200, &withdrawn)
	require.Equal(t, "unanswered", withdrawn.Status)
	require.Equal(t, "aborted", withdrawn.Reason)
	f.do("POST", path("/v1/submissions/%d/withdraw", queued.ID), nil).problem(409, "settled")
	f.do("POST", path("/v1/submissions/%d/withdraw", first.ID), nil).problem(409, "already_placed")
	f.do("POST", path("/v1/submissions/%d/withdraw", first.ID), `{"x":1}`).problem(400, "invalid")

	// (S3) A wait of 0 answers at once, with the status now.
	var now server.Submission
	f.do("GET", path("/v1/submissions/%d/wait?timeoutMs=0", first.ID), nil).into(200, &now)
	require.True(t, now.TimedOut)
	require.Equal(t, "placed", now.Status)
	for _, query := range []string{"-1", "60001", "x"} {
		f.do("GET", path("/v1/submissions/%d/wait?timeoutMs=%s", first.ID, query), nil).problem(400, "invalid")
	}
	close(hold)
	one, two := f.wait(first.ID), f.wait(steer.ID)
	require.Equal(t, "answer to both", one.Answer.Text)
	require.Equal(t, one.AnswerEntryID, two.AnswerEntryID)
	f.do("POST", path("/v1/submissions/%d/withdraw", first.ID), nil).problem(409, "settled")
}

// (S3) A long poll holds at most WAIT_MS.
func TestSubmission_WaitLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *fixtureOptions) {
		o.server.Limits = server.DefaultLimits()
		o.server.Limits.WaitMS = 20
	})
	c := f.conversation(nil)
	hold := make(chan struct{})
	f.faux.Push(faux.Step{Text: "x", Hold: hold})
	sub := f.submit(c.ID, input("r", "go"))
	var s server.Submission
	f.do("GET", path("/v1/submissions/%d/wait?timeoutMs=60000", sub.ID), nil).into(200, &s)
	require.True(t, s.TimedOut)
	f.do("GET", path("/v1/submissions/%d/wait", sub.ID), nil).into(200, &s)
	require.True(t, s.TimedOut)
	close(hold)
	require.Equal(t, "done", f.wait(sub.ID).Status)
}

// (S3, E7.4)
func TestAbort(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c := f.conversation(nil)
	route := path("/v1/conversations/%d/abort", c.ID)
	var res server.AbortResult
	f.do("POST", route, nil).into(200, &res)
	require.Equal(t, server.AbortResult{Withdrawn: []durable.SubmissionID{}}, res)

	f.faux.Push(faux.Step{Text: "I will hang", ToolCalls: []faux.ToolCall{{Name: "hang"}}})
	sub := f.submit(c.ID, input("r1", "go"))
	queued := f.submit(c.ID, input("r2", "later"))
	f.follow(sub.ID).until("tool_output")
	f.do("POST", route, `{"background":true}`).into(200, &res)
	require.Equal(t, server.AbortResult{Withdrawn: []durable.SubmissionID{queued.ID}}, res)
	done := f.wait(sub.ID)
	require.Equal(t, "unanswered", done.Status)
	require.Equal(t, "aborted", done.Reason)
	require.Nil(t, done.Answer)
	entries := f.do("GET", path("/v1/conversations/%d/entries", c.ID), nil).body
	require.Contains(t, entries, "hanging", "output so far is kept")
	f.do("POST", "/v1/conversations/99/abort", nil).problem(404, "not_found")
	f.do("POST", route, `{"reason":"x"}`).problem(400, "invalid")
}

// (S3) An abort answers within WAIT_MS, whether the work has ended or not.
func TestAbort_SlowWork(t *testing.T) {
	t.Parallel()
	end := make(chan struct{})
	stubborn := durable.NewTool(durable.ToolSpec{Name: "stubborn", Description: "Does not listen."},
		func(_ context.Context, call *durable.ToolCall, _ struct{}) (durable.ToolResult, error) {
			call.Output([]byte("working\n"))
			<-end
			return durable.TextResult("ended"), nil
		})
	f := newFixture(t, func(o *fixtureOptions) {
		o.engine.Registry = durable.NewRegistry(durable.Extension{Name: "x", Tools: []*durable.Tool{stubborn}})
		o.server.Limits = server.DefaultLimits()
		o.server.Limits.WaitMS = 20
	})
	c := f.conversation(nil)
	f.faux.Push(faux.Step{ToolCalls: []faux.ToolCall{{Name: "stubborn"}}})
	sub := f.submit(c.ID, input("r", "go"))
	f.follow(sub.ID).until("tool_output")
	var res server.AbortResult
	f.do("POST", path("/v1/conversations/%d/abort", c.ID), nil).into(202, &res)
	require.True(t, res.Busy)
	close(end)
	require.Equal(t, "aborted", f.wait(sub.ID).Reason)
}

// (S9) A faux script can be given over HTTP, and the requests read.
func TestFaux(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	a := f.do("POST", "/v1/test/faux/responses", `{"responses":[{"text":"a","thinking":"hm"},{"error":{"class":"quota","message":"no money"}}]}`)
	require.JSONEq(t, `{"pending":2}`, a.body)
	f.do("POST", "/v1/test/faux/responses", `{"respnses":[]}`).problem(400, "invalid")
	f.do("POST", "/v1/test/faux/responses", `{"responses":[{"error":{"class":"x"}}]}`).problem(400, "invalid")
	c := f.conversation(nil)
	require.Equal(t, "a", f.wait(f.submit(c.ID, input("1", "x")).ID).Answer.Text)
	failed := f.wait(f.submit(c.ID, input("2", "y")).ID)
	require.Equal(t, "model_error", failed.Reason)
	require.JSONEq(t, `{"class":"quota","message":"no money"}`, string(failed.Detail))
	require.Contains(t, f.do("GET", "/v1/test/faux/requests", nil).body, `"text":"y"`)

	f = newFixture(t, func(o *fixtureOptions) { o.server.Faux = nil })
	f.do("GET", "/v1/test/faux/requests", nil).problem(404, "not_found")
}
