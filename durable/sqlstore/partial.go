package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type partialRow durable.PartialWrite

func (r *partialRow) write(t *tx) error {
	if r.Reset {
		if _, err := t.exec(deletePartial, int64(r.TaskID)); err != nil {
			return fmt.Errorf("reset partial of task %d: %w", r.TaskID, err)
		}
	}
	if len(r.Data) > 0 {
		if _, err := t.exec(insertPartial, int64(r.TaskID), r.Data); err != nil {
			return fmt.Errorf("partial of task %d: %w", r.TaskID, err)
		}
	}
	return nil
}

// Partial returns what was appended for a task, in order.
func (s *Store) Partial(ctx context.Context, id durable.TaskID) (out [][]byte, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = blobs(ctx, db.NewSelect().Table("partials").Column("data").Where("task_id = ?", int64(id)).Order("id"))
		return err
	})
	return out, wrap(err, "partial of task %d", id)
}

func blobs(ctx context.Context, q *bun.SelectQuery) (_ [][]byte, err error) {
	rows, err := q.Rows(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var out [][]byte
	for rows.Next() {
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			return nil, err
		}
		out = append(out, append([]byte{}, raw...))
	}
	return out, rows.Err()
}
