package storetest

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
)

var valueTests = map[string]func(t *testing.T, h Harness){
	"keeps the text of raw JSON":     testValueRaw,
	"takes any text as a name":       testValueNames,
	"takes large values":             testValueLarge,
	"keeps instants":                 testValueTimes,
	"is not the caller's any more":   testValueCommitted,
	"is the reader's to keep":        testValueRead,
	"of a conflict is the loser's":   testValueConflict,
	"keeps the text of messages":     testValueText,
	"keeps white space of documents": testValueDocument,
}

func testValueRaw(t *testing.T, h Harness) {
	s := h.Store
	e := newEverything(t, s, newTree(t, s))
	mustCommit(t, s, e.batch())
	entry, err := s.Entry(t.Context(), e.entry.ID)
	require.NoError(t, err)
	task, err := s.Task(t.Context(), e.task.ID)
	require.NoError(t, err)
	submission, err := s.Submission(t.Context(), e.submission.ID)
	require.NoError(t, err)
	document, err := s.Document(t.Context(), e.document.DocKey)
	require.NoError(t, err)
	for name, got := range map[string]json.RawMessage{
		"entry data": entry.Data, "arguments": entry.Model[1].Content[1].Arguments, "details": entry.Model[2].Details,
		"provider's block": json.RawMessage(entry.Model[0].Content[1].Raw),
		"input":            task.Input, "checkpoint": task.State.Checkpoint, "signal": task.State.Signal,
		"result": task.State.Outcome.Result, "detail": task.State.Outcome.Error.Detail, "memo": task.Memos["<a>"],
		"host data": submission.HostData, "queued data": submission.Queued.Entry.Data, "document": document.Value,
	} {
		require.Equal(t, rawJSON, string(got), name)
	}
}

func testValueText(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	for _, text := range []string{"", "\x00", "a\x00b", "<script>&amp;", "\u2028\u2029", "日本 🤖", "\x01\x1f\x7f", "'\"\\`;--", strings.Repeat("\n", 100)} {
		e := durable.Entry{
			ID: durable.EntryID(ids(t, s, 1)[0]), ConversationID: tree, Kind: text,
			Model: []model.Message{model.UserMessage(text, epoch)},
		}
		mustCommit(t, s, durable.Batch{Entries: []durable.Entry{e}})
		got, err := s.Entry(t.Context(), e.ID)
		require.NoError(t, err)
		same(t, e, got)
	}
}

// The value of a document is kept byte by byte: an engine compares it.
func testValueDocument(t *testing.T, h Harness) {
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: 1, Kind: "k"}
	value := " {\n\t\"b\" : 1.50,\r\n \"a\":[ ] }\n"
	write(t, h.Store, put(key, value))
	got, err := h.Store.Document(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, value, string(got.Value))
}

func testValueNames(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	names := []string{"a", "\x00", "a\x00", "a\x00b", "'; DROP TABLE entries; --", "?", "日本", "ä", "a\u0308", "\xff\xfe", strings.Repeat("x", 10000)}
	for i, name := range names {
		id := durable.SubmissionID(ids(t, s, 1)[0])
		key := durable.DocKey{Scope: durable.ScopeGlobal, Kind: name, Key: name}
		mustCommit(t, s, durable.Batch{
			Submissions: []durable.SubmissionRecord{{ID: id, ConversationID: tree, RequestID: name, Status: durable.SubmissionQueued}},
			Claims:      []durable.Claim{{Scope: name, Key: name, Value: int64(i)}},
			Documents:   []durable.DocumentWrite{put(key, "1")},
		})
		got, err := s.SubmissionByRequest(t.Context(), tree, name)
		require.NoError(t, err)
		require.Equal(t, id, got.ID)
	}
	for i, name := range names {
		value, err := s.Claimed(t.Context(), name, name)
		require.NoError(t, err)
		require.Equal(t, int64(i), value)
		requireDocument(t, s, durable.DocKey{Scope: durable.ScopeGlobal, Kind: name, Key: name}, 1, "1")
		n := 0
		require.NoError(t, s.VisitDocuments(t.Context(), durable.ScopeGlobal, name, func(d durable.DocRecord) error {
			n++
			require.Equal(t, name, d.Key)
			return nil
		}))
		require.Equal(t, 1, n)
	}
}

func testValueLarge(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	text := strings.Repeat("0123456789abcde\x00", 256<<10) // 4 MiB
	value, err := json.Marshal(text)
	require.NoError(t, err)
	id := ids(t, s, 2)
	e := durable.Entry{ID: durable.EntryID(id[0]), ConversationID: tree, Kind: "k", Data: value}
	key := durable.DocKey{Scope: durable.ScopeConversation, Owner: int64(tree), Kind: "k"}
	mustCommit(t, s, durable.Batch{
		Entries:   []durable.Entry{e},
		Documents: []durable.DocumentWrite{put(key, string(value))},
		Partials:  []durable.PartialWrite{{TaskID: durable.TaskID(id[1]), Data: []byte(text)}},
	})
	got, err := s.Entry(t.Context(), e.ID)
	require.NoError(t, err)
	require.True(t, bytes.Equal(value, got.Data))
	document, err := s.Document(t.Context(), key)
	require.NoError(t, err)
	require.True(t, bytes.Equal(value, document.Value))
	partial, err := s.Partial(t.Context(), durable.TaskID(id[1]))
	require.NoError(t, err)
	require.Len(t, partial, 1)
	require.Equal(t, len(text), len(partial[0]))
}

func testValueTimes(t *testing.T, h Harness) {
	s := h.Store
	for _, at := range []time.Time{epoch, epoch.In(time.FixedZone("east", 3*3600+1800)), time.Now(), {}} {
		id := durable.ConversationID(ids(t, s, 1)[0])
		mustCommit(t, s, durable.Batch{Conversations: []durable.ConversationRecord{{ID: id, TreeID: id, CreatedAt: at}}})
		got, err := s.Conversation(t.Context(), id)
		require.NoError(t, err)
		require.True(t, at.Equal(got.CreatedAt), "%s came back as %s", at, got.CreatedAt)
		require.Equal(t, at.IsZero(), got.CreatedAt.IsZero())
	}
}

// spoil overwrites all that a caller can reach in a batch.
func spoil(b *durable.Batch) {
	zero := func(p []byte) {
		for i := range p {
			p[i] = '#'
		}
	}
	messages := func(ms []model.Message) {
		for i := range ms {
			for j := range ms[i].Content {
				zero(ms[i].Content[j].Data)
				zero(ms[i].Content[j].Arguments)
				ms[i].Content[j].Text = "#"
			}
			if ms[i].Usage != nil {
				ms[i].Usage.Input = -1
			}
			zero(ms[i].Details)
			ms[i].Provider = "#"
		}
	}
	c := &b.Conversations[0]
	c.ForkOf.At, c.Owner.TaskID = -1, -1
	e := &b.Entries[0]
	zero(e.Data)
	messages(e.Model)
	messages(e.Edits[1].Messages)
	e.Edits[0].Target = -1
	t := &b.Tasks[0]
	zero(t.Input)
	zero(t.State.Checkpoint)
	zero(t.State.Signal)
	zero(t.State.Outcome.Result)
	zero(t.State.Outcome.Error.Detail)
	t.State.Wait.On[0], t.State.Outcome.Reason = -1, "#"
	*t.StartedAt, *t.State.Wait.Deadline = time.Time{}, time.Time{}
	zero(t.Memos["<a>"])
	delete(t.Memos, "b")
	s := &b.Submissions[0]
	zero(s.ContentHash)
	zero(s.HostData)
	zero(s.Detail)
	s.Queued.WhenBusy = "#"
	s.Queued.Content[0].Text = "#"
	messages(s.Queued.Entry.Model)
	*s.SettledAt = time.Time{}
	for i := range b.Documents {
		zero(b.Documents[i].Record.Value)
	}
	for i := range b.Partials {
		zero(b.Partials[i].Data)
	}
}

// again returns the same records in other memory.
func (e everything) again() everything {
	return everything{
		conversation: sampleConversation(e.conversation.ID, e.conversation.TreeID),
		entry:        sampleEntry(e.entry.ID, e.entry.ConversationID),
		task:         sampleTask(e.task.ID, e.task.ConversationID, e.task.TreeID),
		submission:   sampleSubmission(e.submission.ID, e.submission.ConversationID),
		document:     sampleDocument(e.document.DocKey),
		global:       sampleDocument(e.global.DocKey),
		claim:        e.claim,
		partial:      durable.PartialWrite{TaskID: e.partial.TaskID, Data: bytes.Clone(e.partial.Data)},
	}
}

// E4.8: what a caller does with a batch after Commit changes nothing.
func testValueCommitted(t *testing.T, h Harness) {
	e := newEverything(t, h.Store, newTree(t, h.Store))
	want := e.again()
	b := e.batch()
	mustCommit(t, h.Store, b)
	spoil(&b)
	want.requireStored(t, h.Store)
}

// E4.8: what a reader does with a value changes nothing.
func testValueRead(t *testing.T, h Harness) {
	s := h.Store
	ctx := t.Context()
	e := newEverything(t, s, newTree(t, s))
	mustCommit(t, s, e.batch())
	want := e.again()
	for range 2 { // by key, then from lists
		var b durable.Batch
		conversation, err := s.Conversation(ctx, e.conversation.ID)
		require.NoError(t, err)
		entry, err := s.Entry(ctx, e.entry.ID)
		require.NoError(t, err)
		task, err := s.Task(ctx, e.task.ID)
		require.NoError(t, err)
		submission, err := s.Submission(ctx, e.submission.ID)
		require.NoError(t, err)
		document, err := s.Document(ctx, e.document.DocKey)
		require.NoError(t, err)
		old, err := s.DocumentAsOf(ctx, e.document.DocKey, e.entry.ID)
		require.NoError(t, err)
		partial, err := s.Partial(ctx, e.partial.TaskID)
		require.NoError(t, err)
		b.Conversations = []durable.ConversationRecord{conversation}
		b.Entries = []durable.Entry{entry}
		b.Tasks = []durable.TaskRecord{task}
		b.Submissions = []durable.SubmissionRecord{submission}
		b.Documents = []durable.DocumentWrite{{Record: document}, {Record: old}}
		b.Partials = []durable.PartialWrite{{Data: partial[0]}}
		spoil(&b)
		want.requireStored(t, s)

		b.Conversations, err = s.Conversations(ctx, durable.ConversationQuery{Parent: e.conversation.TreeID, Limit: 1})
		require.NoError(t, err)
		b.Entries, err = s.Entries(ctx, durable.EntryQuery{ConversationID: e.entry.ConversationID})
		require.NoError(t, err)
		b.Tasks, err = s.Tasks(ctx, durable.TaskQuery{TreeID: e.task.TreeID})
		require.NoError(t, err)
		b.Submissions, err = s.OpenSubmissions(ctx, e.conversation.TreeID)
		require.NoError(t, err)
		documents, err := s.Documents(ctx, e.document.Scope, e.document.Owner)
		require.NoError(t, err)
		b.Documents = []durable.DocumentWrite{{Record: documents[0]}}
		require.NoError(t, s.VisitDocuments(ctx, e.document.Scope, e.document.Kind, func(d durable.DocRecord) error {
			b.Documents = append(b.Documents, durable.DocumentWrite{Record: d})
			return nil
		}))
		b.Partials = nil
		spoil(&b)
		want.requireStored(t, s)
	}
}

func testValueConflict(t *testing.T, h Harness) {
	key := durable.DocKey{Scope: durable.ScopeGlobal, Kind: "k"}
	write(t, h.Store, put(key, "[1]"))
	w := put(key, "[2]")
	w.Expect = 0
	stored := conflictOf(t, h.Store, w)
	copy(stored.Value, "###")
	requireDocument(t, h.Store, key, 1, "[1]")
}
