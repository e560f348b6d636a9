package sqlstore

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type taskRow struct {
	id, conversation, tree int64
	live                   bool
	record                 string
}

func encodeTask(r *durable.TaskRecord) (*taskRow, error) {
	record, err := encode(r)
	if err != nil {
		return nil, fmt.Errorf("task %d: %w", r.ID, err)
	}
	return &taskRow{
		id: int64(r.ID), conversation: int64(r.ConversationID), tree: int64(r.TreeID),
		live: r.State.Status != durable.TaskTerminal, record: record,
	}, nil
}

func (r *taskRow) write(t *tx) error {
	if err := r.put(t); err != nil {
		return fmt.Errorf("task %d: %w", r.id, err)
	}
	return nil
}

func (r *taskRow) put(t *tx) error {
	statement := putTerminalTask
	if r.live {
		statement = putLiveTask
	}
	n, err := t.exec(statement, r.id, r.conversation, r.tree, r.record)
	if err == nil && n == 0 {
		_, err = t.exec(replaceTask, r.conversation, r.tree, flag(r.live), r.record, r.id)
	}
	if err != nil || r.live {
		return err
	}
	// With a task end its documents and its partial.
	if _, err := t.exec(deleteTaskDocuments, r.id); err != nil {
		return err
	}
	_, err = t.exec(deletePartial, r.id)
	return err
}

// Task returns one task.
func (s *Store) Task(ctx context.Context, id durable.TaskID) (out durable.TaskRecord, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = one[durable.TaskRecord](ctx, db.NewSelect().Table("tasks").Where("id = ?", int64(id)))
		return err
	})
	return out, wrap(err, "task %d", id)
}

// Tasks returns a page of tasks, by id. Without Live it reads through all tasks
// behind the cursor, until the page is full.
func (s *Store) Tasks(ctx context.Context, q durable.TaskQuery) (out []durable.TaskRecord, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		sel := db.NewSelect().Table("tasks")
		if q.TreeID != 0 {
			sel = sel.Where("tree_id = ?", int64(q.TreeID))
		}
		if q.ConversationID != 0 {
			sel = sel.Where("conversation_id = ?", int64(q.ConversationID))
			if q.TreeID == 0 { // for the index of live ones
				sel = sel.Where("tree_id = (SELECT c.tree_id FROM conversations AS c WHERE c.id = ?)", int64(q.ConversationID))
			}
		}
		if q.Live {
			sel = sel.Where("live = 1")
		}
		if q.After != 0 {
			behind := ">"
			if q.Descending {
				behind = "<"
			}
			sel = sel.Where("id ? ?", bun.Safe(behind), int64(q.After))
		}
		out, err = list[durable.TaskRecord](ctx, page(sel, q.Limit, q.Descending))
		return err
	})
	return out, wrap(err, "tasks")
}

// LiveTrees returns, ascending, the ids above after of trees that have a task
// that is not terminal.
func (s *Store) LiveTrees(ctx context.Context, after durable.ConversationID, limit int) (out []durable.ConversationID, err error) {
	if limit < 1 {
		return nil, fmt.Errorf("live trees: limit %d: %w", limit, durable.ErrInvalid)
	}
	err = s.read(ctx, func(db *bun.DB) error {
		return db.NewSelect().Table("tasks").Distinct().Column("tree_id").Where("live = 1").
			Where("tree_id > ?", int64(after)).Order("tree_id").Limit(int64(limit)).Scan(ctx, &out)
	})
	return out, wrap(err, "live trees")
}
