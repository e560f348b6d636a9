package memstore

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/wp-durable/wp-durable/durable"
)

type task struct {
	id                 durable.TaskID
	conversation, tree durable.ConversationID
	live               bool
	json               []byte
}

func encodeTask(r *durable.TaskRecord) (task, error) {
	data, err := encode(r)
	if err != nil {
		return task{}, fmt.Errorf("task %d: %w", r.ID, err)
	}
	return task{
		id: r.ID, conversation: r.ConversationID, tree: r.TreeID,
		live: r.State.Status != durable.TaskTerminal, json: data,
	}, nil
}

// putTask stores a task. With a terminal one end its documents and its partial.
func (s *Store) putTask(t task) {
	if old, ok := s.tasks[t.id]; ok && old.tree != t.tree {
		s.work[old.tree] = remove(s.work[old.tree], t.id)
	}
	s.tasks[t.id] = t
	s.work[t.tree] = insert(s.work[t.tree], t.id)
	if !t.live {
		delete(s.partials, t.id)
		delete(s.documents, docOwner{durable.ScopeTask, int64(t.id)})
	}
}

func (s *Store) putPartial(p durable.PartialWrite) {
	if p.Reset {
		delete(s.partials, p.TaskID)
	}
	if len(p.Data) > 0 {
		s.partials[p.TaskID] = append(s.partials[p.TaskID], bytes.Clone(p.Data))
	}
}

// Task returns one task.
func (s *Store) Task(ctx context.Context, id durable.TaskID) (durable.TaskRecord, error) {
	var out durable.TaskRecord
	err := s.read(ctx, fmt.Sprintf("task %d", id), func() error {
		t, ok := s.tasks[id]
		if !ok {
			return durable.ErrNotFound
		}
		return decode(t.json, &out)
	})
	return out, err
}

// Tasks returns a page of tasks, by id.
func (s *Store) Tasks(ctx context.Context, q durable.TaskQuery) ([]durable.TaskRecord, error) {
	order := func(a, b task) int {
		if q.Descending {
			return cmp.Compare(b.id, a.id)
		}
		return cmp.Compare(a.id, b.id)
	}
	var out []durable.TaskRecord
	err := s.read(ctx, "tasks", func() (err error) {
		ids := s.work[q.TreeID]
		if q.TreeID == 0 {
			ids = slices.Collect(maps.Keys(s.tasks))
		}
		var found []task
		for _, id := range ids {
			t := s.tasks[id]
			if (q.ConversationID == 0 || t.conversation == q.ConversationID) &&
				(!q.Live || t.live) &&
				(q.After == 0 || order(t, task{id: q.After}) > 0) {
				found = append(found, t)
			}
		}
		slices.SortFunc(found, order)
		if q.Limit > 0 {
			found = found[:min(q.Limit, len(found))]
		}
		var page [][]byte
		for _, t := range found {
			page = append(page, t.json)
		}
		out, err = decodeAll[durable.TaskRecord](page)
		return err
	})
	return out, err
}

// LiveTrees returns, ascending, the ids above after of trees that have a task
// that is not terminal.
func (s *Store) LiveTrees(ctx context.Context, after durable.ConversationID, limit int) ([]durable.ConversationID, error) {
	if limit < 1 {
		return nil, fmt.Errorf("live trees: limit %d: %w", limit, durable.ErrInvalid)
	}
	var out []durable.ConversationID
	err := s.read(ctx, "live trees", func() error {
		trees := map[durable.ConversationID]bool{}
		for _, t := range s.tasks {
			if t.live && t.tree > after {
				trees[t.tree] = true
			}
		}
		out = slices.Sorted(maps.Keys(trees))
		out = out[:min(limit, len(out))]
		return nil
	})
	return out, err
}

// Partial returns what was appended for a task, in order.
func (s *Store) Partial(ctx context.Context, id durable.TaskID) ([][]byte, error) {
	var out [][]byte
	err := s.read(ctx, fmt.Sprintf("partial of task %d", id), func() error {
		for _, data := range s.partials[id] {
			out = append(out, bytes.Clone(data))
		}
		return nil
	})
	return out, err
}
