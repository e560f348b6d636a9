package storetest

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var commitTests = map[string]func(t *testing.T, h Harness){
	"stores every kind of record":              testCommitAll,
	"stores nothing of a rejected batch":       testCommitRejected,
	"numbers commits from 1":                   testCommitSeq,
	"accepts an empty batch":                   testCommitEmpty,
	"takes the last of two of one id":          testCommitTwice,
	"rejects when its context is over":         testCommitCancelled,
	"answers reads whose context is over":      testReadCancelled,
	"allocates ids that are unique and rising": testAllocate,
}

// everything is a batch with one record of each kind, all fields filled.
type everything struct {
	conversation durable.ConversationRecord
	entry        durable.Entry
	task         durable.TaskRecord
	submission   durable.SubmissionRecord
	document     durable.DocRecord
	global       durable.DocRecord
	claim        durable.Claim
	partial      durable.PartialWrite
}

func newEverything(t *testing.T, s durable.Store, tree durable.ConversationID) everything {
	id := ids(t, s, 4)
	conversation := durable.ConversationID(id[0])
	return everything{
		conversation: sampleConversation(conversation, tree),
		entry:        sampleEntry(durable.EntryID(id[1]), conversation),
		task:         sampleTask(durable.TaskID(id[2]), conversation, tree),
		submission:   sampleSubmission(durable.SubmissionID(id[3]), conversation),
		document: sampleDocument(durable.DocKey{
			Scope: durable.ScopeConversation, Owner: id[0], Kind: "host.doc", Key: "k",
		}),
		global:  sampleDocument(durable.DocKey{Scope: durable.ScopeGlobal, Kind: "host.global", Key: string(rune('a' + id[0]))}),
		claim:   durable.Claim{Scope: "host", Key: string(rune('a' + id[0])), Value: id[0]},
		partial: durable.PartialWrite{TaskID: durable.TaskID(id[2]), Data: []byte("delta")},
	}
}

func (e everything) batch() durable.Batch {
	return durable.Batch{
		Fence:         durable.Fence{Tree: e.conversation.TreeID},
		Conversations: []durable.ConversationRecord{e.conversation},
		Entries:       []durable.Entry{e.entry},
		Tasks:         []durable.TaskRecord{e.task},
		Submissions:   []durable.SubmissionRecord{e.submission},
		Documents:     []durable.DocumentWrite{{Record: e.document, At: e.entry.ID}, {Record: e.global}},
		Partials:      []durable.PartialWrite{e.partial},
		Claims:        []durable.Claim{e.claim},
	}
}

func (e everything) requireStored(t *testing.T, s durable.Store) {
	t.Helper()
	ctx := t.Context()
	conversation, err := s.Conversation(ctx, e.conversation.ID)
	require.NoError(t, err)
	same(t, e.conversation, conversation)
	entry, err := s.Entry(ctx, e.entry.ID)
	require.NoError(t, err)
	same(t, e.entry, entry)
	task, err := s.Task(ctx, e.task.ID)
	require.NoError(t, err)
	same(t, e.task, task)
	submission, err := s.Submission(ctx, e.submission.ID)
	require.NoError(t, err)
	same(t, e.submission, submission)
	for _, want := range []durable.DocRecord{e.document, e.global} {
		document, err := s.Document(ctx, want.DocKey)
		require.NoError(t, err)
		same(t, want, document)
	}
	old, err := s.DocumentAsOf(ctx, e.document.DocKey, e.entry.ID)
	require.NoError(t, err)
	same(t, e.document, old)
	value, err := s.Claimed(ctx, e.claim.Scope, e.claim.Key)
	require.NoError(t, err)
	require.Equal(t, e.claim.Value, value)
	partial, err := s.Partial(ctx, e.partial.TaskID)
	require.NoError(t, err)
	require.Equal(t, [][]byte{e.partial.Data}, partial)
}

func (e everything) requireAbsent(t *testing.T, s durable.Store) {
	t.Helper()
	ctx := t.Context()
	_, err := s.Conversation(ctx, e.conversation.ID)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = s.Entry(ctx, e.entry.ID)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = s.Task(ctx, e.task.ID)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = s.Submission(ctx, e.submission.ID)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = s.Document(ctx, e.document.DocKey)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = s.DocumentAsOf(ctx, e.document.DocKey, e.entry.ID)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = s.Document(ctx, e.global.DocKey)
	require.ErrorIs(t, err, durable.ErrNotFound)
	_, err = s.Claimed(ctx, e.claim.Scope, e.claim.Key)
	require.ErrorIs(t, err, durable.ErrNotFound)
	partial, err := s.Partial(ctx, e.partial.TaskID)
	require.NoError(t, err)
	require.Empty(t, partial)
}

func testCommitAll(t *testing.T, h Harness) {
	e := newEverything(t, h.Store, newTree(t, h.Store))
	filled(t, e.conversation)
	filled(t, e.entry)
	filled(t, e.task)
	filled(t, e.task.State)
	filled(t, *e.task.State.Wait)
	filled(t, *e.task.State.Outcome)
	filled(t, e.submission)
	filled(t, *e.submission.Queued)
	filled(t, *e.submission.Queued.Entry)
	filled(t, e.document)
	mustCommit(t, h.Store, e.batch())
	e.requireStored(t, h.Store)
}

// E2.1: whatever refuses a batch, nothing of it is stored, and what it met is
// untouched.
func testCommitRejected(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	stored := newEverything(t, s, tree)
	mustCommit(t, s, stored.batch())
	id := ids(t, s, 1)[0]
	cases := map[string]func(b *durable.Batch){
		"conversation that exists": func(b *durable.Batch) {
			b.Conversations = append(b.Conversations, durable.ConversationRecord{ID: stored.conversation.ID, TreeID: tree})
		},
		"entry that exists": func(b *durable.Batch) {
			b.Entries = append(b.Entries, durable.Entry{ID: stored.entry.ID, ConversationID: tree})
		},
		"entry twice": func(b *durable.Batch) {
			b.Entries = append(b.Entries, durable.Entry{ID: b.Entries[0].ID, ConversationID: tree})
		},
		"request id of another submission": func(b *durable.Batch) {
			b.Submissions = append(b.Submissions, durable.SubmissionRecord{
				ID: durable.SubmissionID(id), ConversationID: stored.submission.ConversationID, RequestID: stored.submission.RequestID,
			})
		},
		"request id twice": func(b *durable.Batch) {
			b.Submissions = append(b.Submissions, durable.SubmissionRecord{
				ID: durable.SubmissionID(id), ConversationID: b.Submissions[0].ConversationID, RequestID: b.Submissions[0].RequestID,
			})
		},
		"claim that is taken": func(b *durable.Batch) {
			b.Claims = append(b.Claims, durable.Claim{Scope: stored.claim.Scope, Key: stored.claim.Key, Value: id})
		},
		"claim twice": func(b *durable.Batch) { b.Claims = append(b.Claims, b.Claims[0]) },
		"global document that was changed": func(b *durable.Batch) {
			b.Documents = append(b.Documents, durable.DocumentWrite{Record: stored.global, Expect: 7})
		},
		"document twice": func(b *durable.Batch) { b.Documents = append(b.Documents, b.Documents[0]) },
		"document that is not JSON": func(b *durable.Batch) {
			b.Documents[0].Record.Value = json.RawMessage(`{"a":`)
		},
		"entry data that is not JSON":   func(b *durable.Batch) { b.Entries[0].Data = json.RawMessage(`{"a":`) },
		"task input that is not JSON":   func(b *durable.Batch) { b.Tasks[0].Input = json.RawMessage(`{"a":`) },
		"host data that is not JSON":    func(b *durable.Batch) { b.Submissions[0].HostData = json.RawMessage(`{"a":`) },
		"checkpoint that is not JSON":   func(b *durable.Batch) { b.Tasks[0].State.Checkpoint = json.RawMessage(`nul`) },
		"message of an unknown role":    func(b *durable.Batch) { b.Entries[0].Model[0].Role = "else" },
		"queued block of unknown type":  func(b *durable.Batch) { b.Submissions[0].Queued.Content[0].Type = "else" },
		"document without a value":      func(b *durable.Batch) { b.Documents[1].Record.Value = nil },
		"conversation twice in a batch": func(b *durable.Batch) { b.Conversations = append(b.Conversations, b.Conversations[0]) },
	}
	for name, spoil := range cases {
		e := newEverything(t, s, tree)
		b := e.batch()
		spoil(&b)
		_, err := s.Commit(t.Context(), &b)
		require.ErrorIs(t, err, durable.ErrRejected, name)
		require.NotErrorIs(t, err, durable.ErrStoreFull, name)
		e.requireAbsent(t, s)
	}
	stored.requireStored(t, s)
	after := newEverything(t, s, tree)
	mustCommit(t, s, after.batch())
	after.requireStored(t, s)
}

func testCommitSeq(t *testing.T, h Harness) {
	tree := durable.ConversationID(ids(t, h.Store, 1)[0])
	for n := range 5 {
		b := durable.Batch{Entries: []durable.Entry{{ID: durable.EntryID(ids(t, h.Store, 1)[0]), ConversationID: tree, Kind: "k"}}}
		require.Equal(t, durable.Seq(n+1), mustCommit(t, h.Store, b))
		_, err := h.Store.Commit(t.Context(), &b) // rejected: the entry exists
		require.ErrorIs(t, err, durable.ErrRejected)
	}
}

func testCommitEmpty(t *testing.T, h Harness) {
	mustCommit(t, h.Store, durable.Batch{})
}

func testCommitTwice(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	id := ids(t, s, 2)
	first, second := sampleTask(durable.TaskID(id[0]), tree, tree), sampleTask(durable.TaskID(id[0]), tree, tree)
	second.Kind, second.State.Status = "second", durable.TaskTerminal
	early, late := sampleSubmission(durable.SubmissionID(id[1]), tree), sampleSubmission(durable.SubmissionID(id[1]), tree)
	late.Status = durable.SubmissionDone
	mustCommit(t, s, durable.Batch{
		Tasks:       []durable.TaskRecord{first, second},
		Submissions: []durable.SubmissionRecord{early, late},
	})
	task, err := s.Task(t.Context(), first.ID)
	require.NoError(t, err)
	same(t, second, task)
	submission, err := s.Submission(t.Context(), early.ID)
	require.NoError(t, err)
	same(t, late, submission)
	open, err := s.OpenSubmissions(t.Context(), tree)
	require.NoError(t, err)
	require.Empty(t, open)
}

func testCommitCancelled(t *testing.T, h Harness) {
	e := newEverything(t, h.Store, newTree(t, h.Store))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := e.batch()
	_, err := h.Store.Commit(ctx, &b)
	require.ErrorIs(t, err, durable.ErrRejected)
	require.ErrorIs(t, err, context.Canceled)
	e.requireAbsent(t, h.Store)
}

func testReadCancelled(t *testing.T, h Harness) {
	e := newEverything(t, h.Store, newTree(t, h.Store))
	mustCommit(t, h.Store, e.batch())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := h.Store.Entry(ctx, e.entry.ID)
	require.ErrorIs(t, err, context.Canceled)
	_, err = h.Store.AllocateIDs(ctx, 1)
	require.ErrorIs(t, err, context.Canceled)
	e.requireStored(t, h.Store)
}

func testAllocate(t *testing.T, h Harness) {
	last := int64(0)
	for _, n := range []int{1, 1, 3, 1000, 1} {
		first, err := h.Store.AllocateIDs(t.Context(), n)
		require.NoError(t, err)
		require.Greater(t, first, last)
		last = first + int64(n) - 1
	}
	for _, n := range []int{0, -1} {
		_, err := h.Store.AllocateIDs(t.Context(), n)
		require.ErrorIs(t, err, durable.ErrInvalid)
	}
}
