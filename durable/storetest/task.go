package storetest

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var taskTests = map[string]func(t *testing.T, h Harness){
	"is not found":                     testTaskMissing,
	"is replaced by id":                testTaskReplace,
	"pages with every filter":          testTaskPages,
	"lists live trees":                 testTaskLiveTrees,
	"takes its documents with it":      testTaskDocuments,
	"takes what the same batch writes": testTaskSameBatch,
}

func testTaskMissing(t *testing.T, h Harness) {
	_, err := h.Store.Task(t.Context(), 77)
	require.ErrorIs(t, err, durable.ErrNotFound)
	tasks, err := h.Store.Tasks(t.Context(), durable.TaskQuery{TreeID: 77})
	require.NoError(t, err)
	require.Empty(t, tasks)
	trees, err := h.Store.LiveTrees(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Empty(t, trees)
}

var statuses = []durable.TaskStatus{
	durable.TaskPending, durable.TaskRunning, durable.TaskWaiting, durable.TaskCompleting, durable.TaskTerminal,
}

func testTaskReplace(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	task := sampleTask(durable.TaskID(ids(t, s, 1)[0]), tree, tree)
	// Every status after every other, also those moves that no engine makes.
	for _, from := range statuses {
		for _, to := range statuses {
			for _, status := range []durable.TaskStatus{from, to} {
				task.State.Status = status
				task.Version++
				mustCommit(t, s, durable.Batch{Tasks: []durable.TaskRecord{task}})
				got, err := s.Task(t.Context(), task.ID)
				require.NoError(t, err)
				same(t, task, got)
				live, err := s.Tasks(t.Context(), durable.TaskQuery{TreeID: tree, Live: true})
				require.NoError(t, err)
				trees, err := s.LiveTrees(t.Context(), 0, 10)
				require.NoError(t, err)
				if status == durable.TaskTerminal {
					require.Empty(t, live)
					require.Empty(t, trees)
				} else {
					same(t, []durable.TaskRecord{task}, live)
					require.Equal(t, []durable.ConversationID{tree}, trees)
				}
			}
		}
	}
}

func testTaskPages(t *testing.T, h Harness) {
	s := h.Store
	var all []durable.TaskRecord
	var conversations []durable.ConversationID
	var trees []durable.ConversationID
	for range 3 {
		tree := newTree(t, s)
		sub := durable.ConversationID(ids(t, s, 1)[0])
		mustCommit(t, s, durable.Batch{Conversations: []durable.ConversationRecord{{ID: sub, TreeID: tree, CreatedAt: epoch}}})
		trees = append(trees, tree)
		conversations = append(conversations, tree, sub)
	}
	for i, id := range ids(t, s, 40) {
		c := i * 7 % len(conversations)
		task := durable.TaskRecord{
			ID: durable.TaskID(id), ConversationID: conversations[c], TreeID: trees[c/2], Kind: "k", Input: raw(), CreatedAt: epoch,
			State: durable.TaskState{Status: statuses[i%len(statuses)]},
		}
		all = append(all, task)
		mustCommit(t, s, durable.Batch{Tasks: []durable.TaskRecord{task}})
	}
	for _, tree := range []durable.ConversationID{0, trees[0], trees[2]} {
		for _, conversation := range []durable.ConversationID{0, conversations[0], conversations[1], conversations[5]} {
			for _, live := range []bool{false, true} {
				for _, descending := range []bool{false, true} {
					for _, limit := range []int{0, 1, 3, 100} {
						q := durable.TaskQuery{TreeID: tree, ConversationID: conversation, Live: live, Limit: limit, Descending: descending}
						taskPages(t, s, q, all)
					}
				}
			}
		}
	}
}

func taskPages(t *testing.T, s durable.Store, q durable.TaskQuery, all []durable.TaskRecord) {
	t.Helper()
	var want []durable.TaskRecord
	for _, task := range all {
		if (q.TreeID == 0 || task.TreeID == q.TreeID) && (q.ConversationID == 0 || task.ConversationID == q.ConversationID) &&
			(!q.Live || task.State.Status != durable.TaskTerminal) {
			want = append(want, task)
		}
	}
	if q.Descending {
		slices.Reverse(want)
	}
	var got []durable.TaskRecord
	for {
		page, err := s.Tasks(t.Context(), q)
		require.NoError(t, err)
		got = append(got, page...)
		if q.Limit == 0 || len(page) < q.Limit {
			break
		}
		require.Len(t, page, q.Limit)
		q.After = page[len(page)-1].ID
	}
	same(t, want, got)
}

func testTaskLiveTrees(t *testing.T, h Harness) {
	s := h.Store
	var want []durable.ConversationID
	for i := range 7 {
		tree := newTree(t, s)
		live := durable.TaskState{Status: durable.TaskRunning}
		if i%3 == 1 {
			live.Status = durable.TaskTerminal
		} else {
			want = append(want, tree)
		}
		id := ids(t, s, 3)
		mustCommit(t, s, durable.Batch{Tasks: []durable.TaskRecord{
			{ID: durable.TaskID(id[0]), ConversationID: tree, TreeID: tree, Input: raw(), State: live},
			{ID: durable.TaskID(id[1]), ConversationID: tree, TreeID: tree, Input: raw(), State: live},
			{ID: durable.TaskID(id[2]), ConversationID: tree, TreeID: tree, Input: raw(), State: durable.TaskState{Status: durable.TaskTerminal}},
		}})
	}
	for _, limit := range []int{1, 2, 100} {
		var got []durable.ConversationID
		after := durable.ConversationID(0)
		for {
			page, err := s.LiveTrees(t.Context(), after, limit)
			require.NoError(t, err)
			got = append(got, page...)
			if len(page) < limit {
				break
			}
			after = page[len(page)-1]
		}
		require.Equal(t, want, got)
	}
}

// E5.4: task documents end with their task; so does its partial.
func testTaskDocuments(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	id := ids(t, s, 2)
	ending, other := sampleTask(durable.TaskID(id[0]), tree, tree), sampleTask(durable.TaskID(id[1]), tree, tree)
	key := func(scope durable.Scope, owner int64, name string) durable.DocKey {
		return durable.DocKey{Scope: scope, Owner: owner, Kind: "k", Key: name}
	}
	gone := []durable.DocKey{key(durable.ScopeTask, id[0], "a"), key(durable.ScopeTask, id[0], "b")}
	stay := []durable.DocKey{key(durable.ScopeTask, id[1], "a"), key(durable.ScopeConversation, id[0], "a"), key(durable.ScopeGlobal, id[0], "a")}
	b := durable.Batch{
		Tasks: []durable.TaskRecord{ending, other},
		Partials: []durable.PartialWrite{
			{TaskID: ending.ID, Data: []byte("x")}, {TaskID: ending.ID, Data: []byte("y")}, {TaskID: other.ID, Data: []byte("z")},
		},
	}
	for _, k := range slices.Concat(gone, stay) {
		b.Documents = append(b.Documents, durable.DocumentWrite{Record: sampleDocument(k), At: 5})
	}
	mustCommit(t, s, b)
	ending.State.Status = durable.TaskCompleting
	mustCommit(t, s, durable.Batch{Tasks: []durable.TaskRecord{ending}})
	for _, k := range gone {
		_, err := s.Document(t.Context(), k)
		require.NoError(t, err)
	}
	ending.State.Status = durable.TaskTerminal
	mustCommit(t, s, durable.Batch{Tasks: []durable.TaskRecord{ending}})
	for _, k := range gone {
		_, err := s.Document(t.Context(), k)
		require.ErrorIs(t, err, durable.ErrNotFound)
		_, err = s.DocumentAsOf(t.Context(), k, 9)
		require.ErrorIs(t, err, durable.ErrNotFound)
	}
	for _, k := range stay {
		_, err := s.Document(t.Context(), k)
		require.NoError(t, err)
		_, err = s.DocumentAsOf(t.Context(), k, 9)
		require.NoError(t, err)
	}
	documents, err := s.Documents(t.Context(), durable.ScopeTask, id[0])
	require.NoError(t, err)
	require.Empty(t, documents)
	partial, err := s.Partial(t.Context(), ending.ID)
	require.NoError(t, err)
	require.Empty(t, partial)
	partial, err = s.Partial(t.Context(), other.ID)
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("z")}, partial)
}

func testTaskSameBatch(t *testing.T, h Harness) {
	s := h.Store
	tree := newTree(t, s)
	task := sampleTask(durable.TaskID(ids(t, s, 1)[0]), tree, tree)
	task.State.Status = durable.TaskTerminal
	key := durable.DocKey{Scope: durable.ScopeTask, Owner: int64(task.ID), Kind: "k"}
	mustCommit(t, s, durable.Batch{
		Tasks:     []durable.TaskRecord{task},
		Documents: []durable.DocumentWrite{{Record: sampleDocument(key)}},
		Partials:  []durable.PartialWrite{{TaskID: task.ID, Data: []byte("x")}},
	})
	_, err := s.Document(t.Context(), key)
	require.ErrorIs(t, err, durable.ErrNotFound)
	partial, err := s.Partial(t.Context(), task.ID)
	require.NoError(t, err)
	require.Empty(t, partial)
}
