package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
)

// testRandom runs random scripts of commits, reads and reopenings on the store
// and on a model of maps, and compares every answer. The library prints the
// seed of a script that fails, and shortens the script.
func testRandom(t *testing.T, newHarness func(t *testing.T) Harness) {
	rapid.Check(t, func(rt *rapid.T) {
		h := newHarness(t)
		script := &script{t: t, h: h, s: h.Store, model: newModel(), next: 1}
		defer func() { script.s.Close() }()
		rt.Repeat(map[string]func(*rapid.T){
			"commit":        script.commit,
			"read":          script.read,
			"page":          script.page,
			"documents":     script.documents,
			"conversations": script.conversations,
			"reopen":        script.reopen,
			"":              func(*rapid.T) {},
		})
	})
}

type script struct {
	t     *testing.T
	h     Harness
	s     durable.Store
	model *reference
	next  int64         // id
	clock time.Duration // since epoch
	seq   durable.Seq
}

func (s *script) id() int64 {
	s.next++
	return s.next
}

// someID is an id that may or may not be in use.
func (s *script) someID(rt *rapid.T) int64 { return rapid.Int64Range(1, s.next+1).Draw(rt, "id") }

func (s *script) someConversation(rt *rapid.T) durable.ConversationRecord {
	all := s.model.conversations
	if len(all) == 0 {
		return durable.ConversationRecord{ID: 1 << 40, TreeID: 1 << 40}
	}
	return all[rapid.IntRange(0, len(all)-1).Draw(rt, "conversation")]
}

var someJSON = rapid.SampledFrom([]string{`null`, `1`, `"x"`, `{"b":[],"a":{}}`, `"\u0000<é>"`, rawJSON})

// someName is often the same, so that names collide.
var someName = rapid.OneOf(rapid.SampledFrom([]string{"a", "b"}), rapid.String())

func (s *script) commit(rt *rapid.T) {
	var b durable.Batch
	for range rapid.IntRange(1, 5).Draw(rt, "records") {
		switch rapid.IntRange(0, 8).Draw(rt, "kind") {
		case 0:
			b.Conversations = append(b.Conversations, s.newConversation(rt))
		case 1, 2:
			b.Entries = append(b.Entries, s.newEntry(rt))
		case 3, 4:
			b.Tasks = append(b.Tasks, s.newTask(rt, &b))
		case 5:
			b.Submissions = append(b.Submissions, s.newSubmission(rt, &b))
		case 6:
			b.Documents = append(b.Documents, s.newDocument(rt))
		case 7:
			b.Partials = append(b.Partials, durable.PartialWrite{
				TaskID: durable.TaskID(s.someID(rt)), Reset: rapid.Bool().Draw(rt, "reset"),
				Data: []byte(rapid.SampledFrom([]string{"", "x", "yy"}).Draw(rt, "data")),
			})
		case 8:
			b.Claims = append(b.Claims, durable.Claim{
				Scope: someName.Draw(rt, "scope"), Key: someName.Draw(rt, "key"), Value: rapid.Int64().Draw(rt, "value"),
			})
		}
	}
	want := s.model.check(&b)
	seq, err := s.s.Commit(s.t.Context(), &b)
	switch {
	case want == nil && err != nil:
		rt.Fatalf("commit: %v", err)
	case want == nil:
		s.seq++
		if seq != s.seq {
			rt.Fatalf("commit has number %d, not %d", seq, s.seq)
		}
		s.model.apply(&b)
	case !errors.Is(err, durable.ErrRejected):
		rt.Fatalf("commit: %v, want %v", err, want)
	}
	// Where several things refuse a batch, which one it is told is open.
	var got, expected *durable.ConflictError
	if errors.As(err, &got) && errors.As(want, &expected) && got.Claim != nil && expected.Claim != nil {
		if value := s.model.claims[[2]string{got.Claim.Scope, got.Claim.Key}]; value != got.Claim.Value {
			rt.Fatalf("conflict tells %d, stored is %d", got.Claim.Value, value)
		}
	}
}

func (s *script) newConversation(rt *rapid.T) durable.ConversationRecord {
	id := durable.ConversationID(s.id())
	// Mostly later than the one before, sometimes at the same time or earlier.
	s.clock += time.Duration(rapid.IntRange(-2, 5).Draw(rt, "pause"))
	c := durable.ConversationRecord{ID: id, TreeID: id, CreatedAt: epoch.Add(s.clock)}
	if rapid.IntRange(0, 9).Draw(rt, "again") == 0 {
		c.ID = durable.ConversationID(s.someID(rt))
		c.TreeID = c.ID
	}
	if owner := s.someConversation(rt); owner.ID != 1<<40 && rapid.Bool().Draw(rt, "owned") {
		c.TreeID = owner.TreeID
		c.Owner = &durable.Owner{ConversationID: owner.ID, TaskID: 1}
	}
	return c
}

func (s *script) newEntry(rt *rapid.T) durable.Entry {
	e := durable.Entry{
		ID: durable.EntryID(s.id()), ConversationID: s.someConversation(rt).ID,
		Kind: someName.Draw(rt, "kind"), Data: []byte(someJSON.Draw(rt, "data")),
	}
	if rapid.IntRange(0, 9).Draw(rt, "again") == 0 {
		e.ID = durable.EntryID(s.someID(rt))
	}
	if rapid.IntRange(0, 3).Draw(rt, "head") == 0 {
		e.Head = e.ID
	}
	return e
}

func (s *script) newTask(rt *rapid.T, b *durable.Batch) durable.TaskRecord {
	c := s.someConversation(rt)
	id := durable.TaskID(s.id())
	if rapid.Bool().Draw(rt, "change") {
		id = durable.TaskID(s.someID(rt))
		old, ok := s.model.tasks[id]
		for _, t := range b.Tasks {
			if t.ID == id {
				old, ok = t, true
			}
		}
		if ok { // a task stays in its conversation
			c = durable.ConversationRecord{ID: old.ConversationID, TreeID: old.TreeID}
		}
	}
	return durable.TaskRecord{
		ID: id, ConversationID: c.ID, TreeID: c.TreeID, Kind: "k", Input: []byte(someJSON.Draw(rt, "input")), CreatedAt: epoch,
		State: durable.TaskState{Status: rapid.SampledFrom(statuses).Draw(rt, "status")},
	}
}

func (s *script) newSubmission(rt *rapid.T, b *durable.Batch) durable.SubmissionRecord {
	c := s.someConversation(rt).ID
	id := durable.SubmissionID(s.id())
	request := rapid.SampledFrom([]string{"", "a", "b", "c\x00", "d"}).Draw(rt, "request")
	if rapid.Bool().Draw(rt, "change") {
		id = durable.SubmissionID(s.someID(rt))
		old, ok := s.model.submissions[id]
		for _, o := range b.Submissions {
			if o.ID == id {
				old, ok = o, true
			}
		}
		if ok { // and so does a submission, with its request id
			c, request = old.ConversationID, old.RequestID
		}
	}
	return durable.SubmissionRecord{
		ID: id, ConversationID: c, RequestID: request, ContentHash: []byte{1}, CreatedAt: epoch,
		Status: rapid.SampledFrom(submissionStatuses).Draw(rt, "status"),
	}
}

var someScope = rapid.SampledFrom([]durable.Scope{durable.ScopeGlobal, durable.ScopeConversation, durable.ScopeTask})

func (s *script) someKey(rt *rapid.T) durable.DocKey {
	key := durable.DocKey{Scope: someScope.Draw(rt, "scope"), Kind: someName.Draw(rt, "kind")}
	if key.Scope != durable.ScopeGlobal {
		key.Owner = s.someID(rt)
	}
	if rapid.Bool().Draw(rt, "family") {
		key.Key = someName.Draw(rt, "key")
	}
	return key
}

func (s *script) newDocument(rt *rapid.T) durable.DocumentWrite {
	w := durable.DocumentWrite{
		Record: durable.DocRecord{DocKey: s.someKey(rt), Version: rapid.IntRange(0, 3).Draw(rt, "version"), Value: []byte(someJSON.Draw(rt, "value"))},
		Expect: rapid.Int64Range(-1, 2).Draw(rt, "expect"),
		Delete: rapid.IntRange(0, 4).Draw(rt, "delete") == 0,
	}
	if rapid.Bool().Draw(rt, "rewindable") {
		w.At = durable.EntryID(s.someID(rt))
	}
	return w
}

// compare fails unless the store's answer is the model's.
func compare[T any](rt *rapid.T, what string, want T, found bool, got T, err error) {
	switch {
	case !found && !errors.Is(err, durable.ErrNotFound):
		rt.Fatalf("%s: found %v, %v", what, got, err)
	case found && err != nil:
		rt.Fatalf("%s: %v", what, err)
	case found:
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatalf("%s: %s", what, diff)
		}
	}
}

func (s *script) read(rt *rapid.T) {
	id := s.someID(rt)
	ctx := s.t.Context()
	m := s.model
	conversation, err := s.s.Conversation(ctx, durable.ConversationID(id))
	i := slices.IndexFunc(m.conversations, func(c durable.ConversationRecord) bool { return int64(c.ID) == id })
	compare(rt, "conversation", at(m.conversations, i), i >= 0, conversation, err)
	entry, err := s.s.Entry(ctx, durable.EntryID(id))
	wantEntry, ok := m.entries[durable.EntryID(id)]
	compare(rt, "entry", wantEntry, ok, entry, err)
	task, err := s.s.Task(ctx, durable.TaskID(id))
	wantTask, ok := m.tasks[durable.TaskID(id)]
	compare(rt, "task", wantTask, ok, task, err)
	submission, err := s.s.Submission(ctx, durable.SubmissionID(id))
	wantSubmission, ok := m.submissions[durable.SubmissionID(id)]
	compare(rt, "submission", wantSubmission, ok, submission, err)
	partial, err := s.s.Partial(ctx, durable.TaskID(id))
	compare(rt, "partial", m.partials[durable.TaskID(id)], true, partial, err)
	scope, key := someName.Draw(rt, "scope"), someName.Draw(rt, "key")
	value, err := s.s.Claimed(ctx, scope, key)
	wantValue, ok := m.claims[[2]string{scope, key}]
	compare(rt, "claim", wantValue, ok, value, err)
}

func at[T any](all []T, i int) (out T) {
	if i >= 0 {
		out = all[i]
	}
	return out
}

func (s *script) page(rt *rapid.T) {
	ctx := s.t.Context()
	c := s.someConversation(rt)
	limit := rapid.IntRange(0, 4).Draw(rt, "limit")
	descending := rapid.Bool().Draw(rt, "descending")
	from, to := int64(0), int64(0)
	if rapid.Bool().Draw(rt, "bounds") {
		from, to = s.someID(rt), s.someID(rt)
	}
	eq := durable.EntryQuery{ConversationID: c.ID, From: durable.EntryID(from), To: durable.EntryID(to), Limit: limit, Descending: descending}
	entries, err := s.s.Entries(ctx, eq)
	compare(rt, "entries", s.model.entriesOf(eq), true, entries, err)
	head, err := s.s.NewestHead(ctx, c.ID, durable.EntryID(to))
	wantHead, ok := s.model.newestHead(c.ID, durable.EntryID(to))
	compare(rt, "newest head", wantHead, ok, head, err)

	tq := durable.TaskQuery{Live: rapid.Bool().Draw(rt, "live"), After: durable.TaskID(from), Limit: limit, Descending: descending}
	if rapid.Bool().Draw(rt, "of tree") {
		tq.TreeID = c.TreeID
	}
	if rapid.Bool().Draw(rt, "of conversation") {
		tq.ConversationID = c.ID
	}
	if len(s.model.conversations) == 0 {
		return // a task of a conversation that is not stored is found by no query for it
	}
	tasks, err := s.s.Tasks(ctx, tq)
	compare(rt, fmt.Sprintf("tasks %+v", tq), s.model.tasksOf(tq), true, tasks, err)
	trees, err := s.s.LiveTrees(ctx, durable.ConversationID(from), limit+1)
	compare(rt, "live trees", s.model.liveTrees(durable.ConversationID(from), limit+1), true, trees, err)
	open, err := s.s.OpenSubmissions(ctx, c.TreeID)
	compare(rt, "open submissions", s.model.open(c.TreeID), true, open, err)
	request := rapid.SampledFrom([]string{"", "a", "b", "c\x00", "d"}).Draw(rt, "request")
	submission, err := s.s.SubmissionByRequest(ctx, c.ID, request)
	wantSubmission, ok := s.model.byRequest(c.ID, request)
	compare(rt, "submission by request", wantSubmission, ok, submission, err)
}

func (s *script) documents(rt *rapid.T) {
	ctx := s.t.Context()
	key := s.someKey(rt)
	document, err := s.s.Document(ctx, key)
	want, ok := s.model.document(key)
	compare(rt, "document", want, ok, document, err)
	at := durable.EntryID(s.someID(rt))
	document, err = s.s.DocumentAsOf(ctx, key, at)
	want, ok = s.model.asOf(key, at)
	compare(rt, "document as of", want, ok, document, err)
	list, err := s.s.Documents(ctx, key.Scope, key.Owner)
	compare(rt, "documents", s.model.documentsOf(func(k durable.DocKey) bool {
		return k.Scope == key.Scope && k.Owner == key.Owner
	}), true, list, err)
	list = nil
	err = s.s.VisitDocuments(ctx, key.Scope, key.Kind, func(d durable.DocRecord) error {
		list = append(list, d)
		return nil
	})
	slices.SortFunc(list, byKey)
	compare(rt, "visited documents", s.model.documentsOf(func(k durable.DocKey) bool {
		return k.Scope == key.Scope && k.Kind == key.Kind
	}), true, list, err)
}

func (s *script) conversations(rt *rapid.T) {
	ctx := s.t.Context()
	c := s.someConversation(rt)
	tree, err := s.s.TreeConversations(ctx, c.TreeID)
	compare(rt, "tree", s.model.tree(c.TreeID), true, tree, err)
	q := durable.ConversationQuery{Limit: rapid.IntRange(1, 4).Draw(rt, "limit"), Descending: rapid.Bool().Draw(rt, "descending")}
	if rapid.Bool().Draw(rt, "of parent") {
		q.Parent = c.ID
	}
	if rapid.Bool().Draw(rt, "continue") {
		q.After = durable.Cursor{CreatedAt: c.CreatedAt, ID: int64(c.ID)}
	}
	list, err := s.s.Conversations(ctx, q)
	compare(rt, "conversations", s.model.conversationsOf(q), true, list, err)
}

func (s *script) reopen(rt *rapid.T) {
	if s.h.Reopen == nil {
		rt.Skip("the content ends with the store")
	}
	if rapid.IntRange(0, 3).Draw(rt, "now") > 0 {
		return // it takes long
	}
	s.s = s.h.Reopen(s.t)
	s.seq = 0
}
