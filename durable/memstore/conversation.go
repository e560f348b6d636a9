package memstore

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/wp-durable/wp-durable/durable"
)

type conversation struct {
	id, tree, parent durable.ConversationID // parent 0: no owner
	createdAt        time.Time
	json             []byte
}

type claimKey struct{ scope, key string }

func encodeConversation(r *durable.ConversationRecord) (conversation, error) {
	data, err := encode(r)
	if err != nil {
		return conversation{}, fmt.Errorf("conversation %d: %w", r.ID, err)
	}
	c := conversation{id: r.ID, tree: r.TreeID, createdAt: r.CreatedAt, json: data}
	if r.Owner != nil {
		c.parent = r.Owner.ConversationID
	}
	return c, nil
}

func (s *Store) checkClaims(claims []durable.Claim) error {
	taken := map[claimKey]bool{}
	for _, c := range claims {
		k := claimKey{c.Scope, c.Key}
		if value, ok := s.claims[k]; ok {
			return &durable.ConflictError{Claim: &durable.Claim{Scope: c.Scope, Key: c.Key, Value: value}}
		}
		if taken[k] {
			return fmt.Errorf("claim %s %q is made twice: %w", c.Scope, c.Key, durable.ErrRejected)
		}
		taken[k] = true
	}
	return nil
}

// Conversation returns one conversation.
func (s *Store) Conversation(ctx context.Context, id durable.ConversationID) (durable.ConversationRecord, error) {
	var out durable.ConversationRecord
	err := s.read(ctx, fmt.Sprintf("conversation %d", id), func() error {
		c, ok := s.conversations[id]
		if !ok {
			return durable.ErrNotFound
		}
		return decode(c.json, &out)
	})
	return out, err
}

// TreeConversations returns every conversation of a tree, by id.
func (s *Store) TreeConversations(ctx context.Context, tree durable.ConversationID) ([]durable.ConversationRecord, error) {
	var out []durable.ConversationRecord
	err := s.read(ctx, fmt.Sprintf("conversations of tree %d", tree), func() (err error) {
		var page [][]byte
		for _, id := range s.members[tree] {
			page = append(page, s.conversations[id].json)
		}
		out, err = decodeAll[durable.ConversationRecord](page)
		return err
	})
	return out, err
}

// Conversations returns a page of all conversations, by creation time and id.
func (s *Store) Conversations(ctx context.Context, q durable.ConversationQuery) ([]durable.ConversationRecord, error) {
	if q.Limit < 1 {
		return nil, fmt.Errorf("conversations: limit %d: %w", q.Limit, durable.ErrInvalid)
	}
	order := func(a, b conversation) int {
		n := cmp.Or(a.createdAt.Compare(b.createdAt), cmp.Compare(a.id, b.id))
		if q.Descending {
			return -n
		}
		return n
	}
	after := conversation{id: durable.ConversationID(q.After.ID), createdAt: q.After.CreatedAt}
	var out []durable.ConversationRecord
	err := s.read(ctx, "conversations", func() (err error) {
		var found []conversation
		for _, c := range s.conversations {
			if (q.Parent == 0 || c.parent == q.Parent) && (q.After.ID == 0 || order(c, after) > 0) {
				found = append(found, c)
			}
		}
		slices.SortFunc(found, order)
		var page [][]byte
		for _, c := range found[:min(q.Limit, len(found))] {
			page = append(page, c.json)
		}
		out, err = decodeAll[durable.ConversationRecord](page)
		return err
	})
	return out, err
}

// Claimed returns the value of a claim.
func (s *Store) Claimed(ctx context.Context, scope, key string) (int64, error) {
	var out int64
	err := s.read(ctx, fmt.Sprintf("claim %s %q", scope, key), func() error {
		value, ok := s.claims[claimKey{scope, key}]
		if !ok {
			return durable.ErrNotFound
		}
		out = value
		return nil
	})
	return out, err
}
