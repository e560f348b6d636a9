package memstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/wp-durable/wp-durable/durable"
)

type entry struct {
	id           durable.EntryID
	conversation durable.ConversationID
	head         bool // it has one
	json         []byte
}

func encodeEntry(r *durable.Entry) (entry, error) {
	data, err := encode(r)
	if err != nil {
		return entry{}, fmt.Errorf("entry %d: %w", r.ID, err)
	}
	return entry{id: r.ID, conversation: r.ConversationID, head: r.Head != 0, json: data}, nil
}

func (s *Store) putEntry(e entry) {
	s.entries[e.id] = e
	s.transcripts[e.conversation] = insert(s.transcripts[e.conversation], e.id)
}

// Entry returns one entry.
func (s *Store) Entry(ctx context.Context, id durable.EntryID) (durable.Entry, error) {
	var out durable.Entry
	err := s.read(ctx, fmt.Sprintf("entry %d", id), func() error {
		e, ok := s.entries[id]
		if !ok {
			return durable.ErrNotFound
		}
		return decode(e.json, &out)
	})
	return out, err
}

// Entries returns a page of a conversation's own entries, by id.
func (s *Store) Entries(ctx context.Context, q durable.EntryQuery) ([]durable.Entry, error) {
	var out []durable.Entry
	err := s.read(ctx, fmt.Sprintf("entries of conversation %d", q.ConversationID), func() (err error) {
		ids := s.transcripts[q.ConversationID]
		from, _ := slices.BinarySearch(ids, q.From)
		ids = ids[from:]
		if q.To != 0 {
			to, _ := slices.BinarySearch(ids, q.To+1)
			ids = ids[:to]
		}
		if q.Descending {
			ids = slices.Clone(ids)
			slices.Reverse(ids)
		}
		if q.Limit > 0 && len(ids) > q.Limit {
			ids = ids[:q.Limit]
		}
		page := make([][]byte, len(ids))
		for i, id := range ids {
			page[i] = s.entries[id].json
		}
		out, err = decodeAll[durable.Entry](page)
		return err
	})
	return out, err
}

// NewestHead returns the entry with the highest id ≤ upTo that has a head.
func (s *Store) NewestHead(ctx context.Context, id durable.ConversationID, upTo durable.EntryID) (durable.Entry, error) {
	var out durable.Entry
	err := s.read(ctx, fmt.Sprintf("newest head of conversation %d", id), func() error {
		for _, at := range slices.Backward(s.transcripts[id]) {
			if e := s.entries[at]; e.head && (upTo == 0 || at <= upTo) {
				return decode(e.json, &out)
			}
		}
		return durable.ErrNotFound
	})
	return out, err
}
