package sqlstore

import (
	"context"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type conversationRow struct {
	id, tree, parent, createdAt int64
	record                      string
}

func encodeConversation(c *durable.ConversationRecord) (*conversationRow, error) {
	record, err := encode(c)
	if err != nil {
		return nil, fmt.Errorf("conversation %d: %w", c.ID, err)
	}
	r := &conversationRow{id: int64(c.ID), tree: int64(c.TreeID), createdAt: nanoseconds(c.CreatedAt), record: record}
	if c.Owner != nil {
		r.parent = int64(c.Owner.ConversationID)
	}
	return r, nil
}

func (r *conversationRow) write(t *tx) error {
	_, err := t.exec(insertConversation, r.id, r.tree, nullable(r.parent), r.createdAt, r.record)
	if err != nil {
		return fmt.Errorf("conversation %d: %w", r.id, err)
	}
	return nil
}

// Conversation returns one conversation.
func (s *Store) Conversation(ctx context.Context, id durable.ConversationID) (out durable.ConversationRecord, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = one[durable.ConversationRecord](ctx, db.NewSelect().Table("conversations").Where("id = ?", int64(id)))
		return err
	})
	return out, wrap(err, "conversation %d", id)
}

// TreeConversations returns every conversation of a tree, by id.
func (s *Store) TreeConversations(ctx context.Context, tree durable.ConversationID) (out []durable.ConversationRecord, err error) {
	err = s.read(ctx, func(db *bun.DB) error {
		out, err = list[durable.ConversationRecord](ctx, db.NewSelect().Table("conversations").
			Where("tree_id = ?", int64(tree)).Order("id"))
		return err
	})
	return out, wrap(err, "conversations of tree %d", tree)
}

// Conversations returns a page of all conversations, by creation time and id.
func (s *Store) Conversations(ctx context.Context, q durable.ConversationQuery) (out []durable.ConversationRecord, err error) {
	if q.Limit < 1 {
		return nil, fmt.Errorf("conversations: limit %d: %w", q.Limit, durable.ErrInvalid)
	}
	err = s.read(ctx, func(db *bun.DB) error {
		sel := db.NewSelect().Table("conversations").Limit(int64(q.Limit))
		if q.Parent != 0 {
			sel = sel.Where("parent_id = ?", int64(q.Parent))
		}
		behind, order := ">", "ASC"
		if q.Descending {
			behind, order = "<", "DESC"
		}
		if q.After.ID != 0 {
			sel = sel.Where("(created_at, id) ? (?, ?)", bun.Safe(behind), nanoseconds(q.After.CreatedAt), q.After.ID)
		}
		sel = sel.Order("created_at "+order, "id "+order)
		out, err = list[durable.ConversationRecord](ctx, sel)
		return err
	})
	return out, wrap(err, "conversations")
}
