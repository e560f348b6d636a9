package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

// Store is a store in an SQL database. Packages that know a driver open one;
// see sqlstore/sqlite.
type Store struct {
	dialect dialect
	db      *bun.DB // reads
	writer  *writer
	visits  chan struct{} // slots of VisitDocuments
	size    func() (int64, error)
	release func() error

	mu      sync.Mutex
	closing bool           // guarded by mu
	reads   sync.WaitGroup // grows only under mu while not closing

	close    sync.Once
	closeErr error
}

var _ durable.Store = (*Store)(nil)

// newStore makes a store whose writer does not run yet. On an error the caller
// closes what it gave.
func newStore(d dialect, read *sql.DB, readers int, w *writer) *Store {
	return &Store{dialect: d, db: bun.NewDB(read, d.schema()), writer: w, visits: make(chan struct{}, readers-1)}
}

// start runs the writer.
func (s *Store) start() { go s.writer.run() }

// Commit stores the batch or nothing.
func (s *Store) Commit(ctx context.Context, batch *durable.Batch) (durable.Seq, error) {
	rows, size, err := encodeBatch(batch)
	if err != nil {
		return 0, fmt.Errorf("commit: %w: %w", durable.ErrRejected, err)
	}
	j := newJob(rows, size)
	if err := s.writer.do(ctx, j); err != nil {
		return 0, fmt.Errorf("commit: %w", err)
	}
	return j.seq, nil
}

// AllocateIDs reserves n ids and returns the first.
func (s *Store) AllocateIDs(ctx context.Context, n int) (int64, error) {
	if n < 1 {
		return 0, fmt.Errorf("allocate %d ids: %w", n, durable.ErrInvalid)
	}
	block := &idBlock{n: int64(n)}
	j := newJob([]row{block}, 0)
	j.internal = true
	if err := s.writer.do(ctx, j); err != nil {
		return 0, fmt.Errorf("allocate ids: %w", err)
	}
	return block.first, nil
}

// idBlock is a row that takes ids.
type idBlock struct{ n, first int64 }

func (b *idBlock) write(t *tx) error {
	var next [1]driver.Value
	if err := t.query(allocateIDs, next[:], b.n); err != nil {
		return fmt.Errorf("allocate ids: %w", err)
	}
	b.first = next[0].(int64) - b.n
	return nil
}

// Info describes the store.
func (s *Store) Info(ctx context.Context) (durable.StoreInfo, error) {
	info := durable.StoreInfo{Kind: s.dialect.kind()}
	err := s.read(ctx, func(*bun.DB) (err error) {
		info.Bytes, err = s.size()
		return err
	})
	return info, wrap(err, "info")
}

// Failed returns a channel that is closed when an I/O error made the store
// fail. The host should end the process then, so that a new one reads what is
// on disk.
func (s *Store) Failed() <-chan struct{} { return s.writer.failed }

// Stats returns what the store has written since it was opened.
func (s *Store) Stats() Stats { return s.writer.counters.stats() }

// Close waits for the batches and reads under way and closes the database.
// Closing it again does nothing.
func (s *Store) Close() error {
	s.close.Do(func() { s.closeErr = s.shutDown() })
	return s.closeErr
}

func (s *Store) shutDown() error {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.reads.Wait()
	// The writer writes what is queued and tidies up. The order matters for
	// SQLite: the last connection that can write copies the log into the
	// database. After a failure nothing may be written any more, so then the
	// connections that read are the last.
	err := s.writer.stop()
	if s.writer.failure() == nil {
		err = errors.Join(err, s.db.Close(), s.writer.session.close())
	} else {
		err = errors.Join(err, s.writer.session.close(), s.db.Close())
	}
	if err := errors.Join(err, s.release()); err != nil {
		return fmt.Errorf("close store: %w", err)
	}
	return nil
}

// read runs fn, which only reads.
func (s *Store) read(ctx context.Context, fn func(db *bun.DB) error) error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return durable.ErrStoreClosed
	}
	s.reads.Add(1)
	s.mu.Unlock()
	defer s.reads.Done()

	if err := s.writer.failure(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	err := fn(s.db)
	if failure := s.writer.failure(); failure != nil {
		return failure
	}
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return durable.ErrNotFound
	case err != nil && s.dialect.classify(err) == classCorrupt:
		return fmt.Errorf("%w: %w", durable.ErrStoreCorrupt, err)
	}
	return err
}

// wrap adds what was attempted to an error.
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
