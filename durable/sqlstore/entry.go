package sqlstore

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type entryRow struct {
	id, conversation, head int64
	record                 string
}

func encodeEntry(e *durable.Entry) (*entryRow, error) {
	record, err := encode(e)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", e.ID, err)
	}
	return &entryRow{int64(e.ID), int64(e.ConversationID), int64(e.Head), record}, nil
}

func (r *entryRow) write(t *tx) error {
	_, err := t.exec(insertEntry, r.id, r.conversation, nullable(r.head), r.record)
	if err != nil {
		return fmt.Errorf("entry %d: %w", r.id, err)
	}
	return nil
}

// Entry returns one entry.
func (s *Store) Entry(ctx context.Context, id durable.EntryID) (out durable.Entry, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = one[durable.Entry](ctx, db.NewSelect().Table("entries").Where("id = ?", int64(id)))
		return err
	})
	return out, wrap(err, "entry %d", id)
}

// Entries returns a page of a conversation's own entries, by id.
func (s *Store) Entries(ctx context.Context, q durable.EntryQuery) (out []durable.Entry, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		sel := db.NewSelect().Table("entries").Where("conversation_id = ?", int64(q.ConversationID))
		if q.From != 0 {
			sel = sel.Where("id >= ?", int64(q.From))
		}
		if q.To != 0 {
			sel = sel.Where("id <= ?", int64(q.To))
		}
		out, err = list[durable.Entry](ctx, page(sel, q.Limit, q.Descending))
		return err
	})
	return out, wrap(err, "entries of conversation %d", q.ConversationID)
}

// NewestHead returns the entry with the highest id ≤ upTo that has a head.
func (s *Store) NewestHead(ctx context.Context, id durable.ConversationID, upTo durable.EntryID) (out durable.Entry, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		sel := db.NewSelect().Table("entries").Where("conversation_id = ?", int64(id)).Where("head IS NOT NULL")
		if upTo != 0 {
			sel = sel.Where("id <= ?", int64(upTo))
		}
		out, err = one[durable.Entry](ctx, page(sel, 1, true))
		return err
	})
	return out, wrap(err, "newest head of conversation %d", id)
}

// page orders by id and limits the rows; limit 0 means all.
func page(sel *bun.SelectQuery, limit int, descending bool) *bun.SelectQuery {
	if limit > 0 {
		sel = sel.Limit(int64(limit))
	}
	if descending {
		return sel.Order("id DESC")
	}
	return sel.Order("id ASC")
}
