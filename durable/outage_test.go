package durable_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

// outage is a store that cannot be reached for a time: every call fails, and
// nobody is told whether the commit that it interrupted is stored.
type outage struct {
	durable.Store
	mu       sync.Mutex
	from, to time.Time
	applied  bool // the first commit in the outage is stored
	// flaky, when not nil, says whether a call gets no answer out of turn.
	flaky func() bool
}

func (s *outage) set(from, to time.Time, applied bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from, s.to, s.applied = from, to, applied
}

func (s *outage) down() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); (now.Before(s.from) || !now.Before(s.to)) && (s.flaky == nil || !s.flaky()) {
		return nil
	}
	return fmt.Errorf("no route to the store: %w", storetest.ErrInjected)
}

func (s *outage) Commit(ctx context.Context, b *durable.Batch) (durable.Seq, error) {
	if err := s.down(); err != nil {
		s.mu.Lock()
		applied := s.applied
		s.applied = false
		s.mu.Unlock()
		if applied {
			_, _ = s.Store.Commit(ctx, b)
		}
		return 0, err
	}
	return s.Store.Commit(ctx, b)
}

func unless[T any](s *outage, fn func() (T, error)) (T, error) {
	if err := s.down(); err != nil {
		var none T
		return none, err
	}
	return fn()
}

func (s *outage) AllocateIDs(ctx context.Context, n int) (int64, error) {
	return unless(s, func() (int64, error) { return s.Store.AllocateIDs(ctx, n) })
}

func (s *outage) Conversation(ctx context.Context, id durable.ConversationID) (durable.ConversationRecord, error) {
	return unless(s, func() (durable.ConversationRecord, error) { return s.Store.Conversation(ctx, id) })
}

func (s *outage) TreeConversations(ctx context.Context, id durable.ConversationID) ([]durable.ConversationRecord, error) {
	return unless(s, func() ([]durable.ConversationRecord, error) { return s.Store.TreeConversations(ctx, id) })
}

func (s *outage) Claimed(ctx context.Context, scope, key string) (int64, error) {
	return unless(s, func() (int64, error) { return s.Store.Claimed(ctx, scope, key) })
}

func (s *outage) Entry(ctx context.Context, id durable.EntryID) (durable.Entry, error) {
	return unless(s, func() (durable.Entry, error) { return s.Store.Entry(ctx, id) })
}

func (s *outage) Entries(ctx context.Context, q durable.EntryQuery) ([]durable.Entry, error) {
	return unless(s, func() ([]durable.Entry, error) { return s.Store.Entries(ctx, q) })
}

func (s *outage) NewestHead(ctx context.Context, id durable.ConversationID, upTo durable.EntryID) (durable.Entry, error) {
	return unless(s, func() (durable.Entry, error) { return s.Store.NewestHead(ctx, id, upTo) })
}

func (s *outage) Task(ctx context.Context, id durable.TaskID) (durable.TaskRecord, error) {
	return unless(s, func() (durable.TaskRecord, error) { return s.Store.Task(ctx, id) })
}

func (s *outage) Tasks(ctx context.Context, q durable.TaskQuery) ([]durable.TaskRecord, error) {
	return unless(s, func() ([]durable.TaskRecord, error) { return s.Store.Tasks(ctx, q) })
}

func (s *outage) Partial(ctx context.Context, id durable.TaskID) ([][]byte, error) {
	return unless(s, func() ([][]byte, error) { return s.Store.Partial(ctx, id) })
}

func (s *outage) Submission(ctx context.Context, id durable.SubmissionID) (durable.SubmissionRecord, error) {
	return unless(s, func() (durable.SubmissionRecord, error) { return s.Store.Submission(ctx, id) })
}

func (s *outage) SubmissionByRequest(ctx context.Context, c durable.ConversationID, id string) (durable.SubmissionRecord, error) {
	return unless(s, func() (durable.SubmissionRecord, error) { return s.Store.SubmissionByRequest(ctx, c, id) })
}

func (s *outage) OpenSubmissions(ctx context.Context, tree durable.ConversationID) ([]durable.SubmissionRecord, error) {
	return unless(s, func() ([]durable.SubmissionRecord, error) { return s.Store.OpenSubmissions(ctx, tree) })
}

func (s *outage) Document(ctx context.Context, key durable.DocKey) (durable.DocRecord, error) {
	return unless(s, func() (durable.DocRecord, error) { return s.Store.Document(ctx, key) })
}

func (s *outage) Documents(ctx context.Context, scope durable.Scope, owner int64) ([]durable.DocRecord, error) {
	return unless(s, func() ([]durable.DocRecord, error) { return s.Store.Documents(ctx, scope, owner) })
}

// A store that cannot be reached for a while, at any time of the scripted run:
// it goes on when the store is back, as if nothing had been (E4.3, E2.6, E2.7).
func TestFault_Outage(t *testing.T) {
	t.Parallel()
	for _, applied := range []bool{false, true} {
		t.Run(fmt.Sprintf("applied %v", applied), func(t *testing.T) {
			t.Parallel()
			step := 150 * time.Millisecond
			if testing.Short() {
				step = time.Second
			}
			for at := time.Duration(0); at < 40*time.Second; at += step {
				bubble(t, func(t *testing.T) {
					s := newFaultScript(t)
					s.r.opts.Logger = slog.New(slog.DiscardHandler)
					s.r.close()
					now := time.Now()
					store := &outage{Store: s.r.history, from: now.Add(at), to: now.Add(at + 7*time.Second), applied: applied}
					s.r.store = store
					s.r.open()
					s.run()
				})
				if t.Failed() {
					t.Fatalf("outage after %v", at)
				}
			}
		})
	}
}
