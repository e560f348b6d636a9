package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"github.com/wp-durable/wp-durable/durable"
)

// Store is a store in memory. Its content ends with the process.
type Store struct {
	mu     sync.RWMutex // guards everything below
	closed bool
	seq    durable.Seq
	nextID int64

	conversations map[durable.ConversationID]conversation
	members       map[durable.ConversationID][]durable.ConversationID // by tree
	entries       map[durable.EntryID]entry
	transcripts   map[durable.ConversationID][]durable.EntryID // ascending
	tasks         map[durable.TaskID]task
	work          map[durable.ConversationID][]durable.TaskID // by tree
	partials      map[durable.TaskID][][]byte
	submissions   map[durable.SubmissionID]submission
	open          map[durable.ConversationID]map[durable.SubmissionID]bool
	requests      map[requestKey]durable.SubmissionID
	documents     map[docOwner]map[docName]document
	claims        map[claimKey]int64
}

var _ durable.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store {
	return &Store{
		nextID:        1,
		conversations: map[durable.ConversationID]conversation{},
		members:       map[durable.ConversationID][]durable.ConversationID{},
		entries:       map[durable.EntryID]entry{},
		transcripts:   map[durable.ConversationID][]durable.EntryID{},
		tasks:         map[durable.TaskID]task{},
		work:          map[durable.ConversationID][]durable.TaskID{},
		partials:      map[durable.TaskID][][]byte{},
		submissions:   map[durable.SubmissionID]submission{},
		open:          map[durable.ConversationID]map[durable.SubmissionID]bool{},
		requests:      map[requestKey]durable.SubmissionID{},
		documents:     map[docOwner]map[docName]document{},
		claims:        map[claimKey]int64{},
	}
}

// Commit stores the batch or nothing.
func (s *Store) Commit(ctx context.Context, batch *durable.Batch) (durable.Seq, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("commit: %w: %w", durable.ErrRejected, err)
	}
	b, err := encodeBatch(batch)
	if err != nil {
		return 0, fmt.Errorf("commit: %w: %w", durable.ErrRejected, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("commit: %w", durable.ErrStoreClosed)
	}
	// Whatever can refuse the batch is looked at before the first change.
	if err := s.check(b); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	s.apply(b)
	s.seq++
	return s.seq, nil
}

// AllocateIDs reserves n ids and returns the first.
func (s *Store) AllocateIDs(ctx context.Context, n int) (int64, error) {
	if n < 1 {
		return 0, fmt.Errorf("allocate %d ids: %w", n, durable.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("allocate ids: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, fmt.Errorf("allocate ids: %w", durable.ErrStoreClosed)
	}
	first := s.nextID
	s.nextID += int64(n)
	return first, nil
}

// Info describes the store; Bytes counts the records' JSON.
func (s *Store) Info(ctx context.Context) (durable.StoreInfo, error) {
	info := durable.StoreInfo{Kind: "memory"}
	err := s.read(ctx, "info", func() error {
		for _, c := range s.conversations {
			info.Bytes += int64(len(c.json))
		}
		for _, e := range s.entries {
			info.Bytes += int64(len(e.json))
		}
		for _, t := range s.tasks {
			info.Bytes += int64(len(t.json))
		}
		for _, p := range s.partials {
			for _, data := range p {
				info.Bytes += int64(len(data))
			}
		}
		for _, sub := range s.submissions {
			info.Bytes += int64(len(sub.json))
		}
		for _, docs := range s.documents {
			for _, d := range docs {
				info.Bytes += int64(len(d.record.Value))
				for _, v := range d.history {
					info.Bytes += int64(len(v.record.Value))
				}
			}
		}
		return nil
	})
	return info, err
}

// Close ends the store. Closing it again does nothing.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}

// read runs fn on a state that does not change meanwhile.
func (s *Store) read(ctx context.Context, what string, fn func() error) error {
	err := ctx.Err()
	if err == nil {
		s.mu.RLock()
		defer s.mu.RUnlock()
		err = durable.ErrStoreClosed
		if !s.closed {
			err = fn()
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// insert adds an id to ascending ones.
func insert[T ~int64](ids []T, id T) []T {
	at, found := slices.BinarySearch(ids, id)
	if found {
		return ids
	}
	return slices.Insert(ids, at, id)
}

// remove takes an id out of ascending ones.
func remove[T ~int64](ids []T, id T) []T {
	if at, found := slices.BinarySearch(ids, id); found {
		return slices.Delete(ids, at, at+1)
	}
	return ids
}

// encode returns v as JSON, with the text of raw JSON values kept.
func encode(v any) ([]byte, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), nil
}

func decode(data []byte, v any) error { return json.Unmarshal(data, v) }

// decodeAll decodes a page of records.
func decodeAll[T any](page [][]byte) ([]T, error) {
	out := make([]T, len(page))
	for i, data := range page {
		if err := decode(data, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
