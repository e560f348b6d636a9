package host

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/server/internal/config"
)

// watchedStore is the store as the engine uses it: it tells the host when the
// store has failed, and kills the process at a commit that a test names.
type watchedStore struct {
	durable.Store
	crash config.Crash
	kill  func()

	commits  atomic.Int64
	failOnce sync.Once
	failed   chan struct{} // closed when the store must be opened anew
}

func watch(s durable.Store, crash config.Crash, kill func()) *watchedStore {
	return &watchedStore{Store: s, crash: crash, kill: kill, failed: make(chan struct{})}
}

// Commit commits. Commits are counted in the order in which they are asked for.
func (s *watchedStore) Commit(ctx context.Context, batch *durable.Batch) (durable.Seq, error) {
	if s.crash.At == 0 {
		return s.watch(s.Store.Commit(ctx, batch))
	}
	n := s.commits.Add(1)
	if n == s.crash.At && s.crash.Before {
		s.kill()
	}
	seq, err := s.watch(s.Store.Commit(ctx, batch))
	if n == s.crash.At && !s.crash.Before {
		s.kill()
	}
	return seq, err
}

func (s *watchedStore) watch(seq durable.Seq, err error) (durable.Seq, error) {
	if errors.Is(err, durable.ErrStoreFailed) {
		s.failOnce.Do(func() { close(s.failed) })
	}
	return seq, err
}
