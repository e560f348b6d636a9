package sqlstore

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/wp-durable/wp-durable/durable"
)

const (
	queueLength   = 1024    // jobs that wait; more callers wait for a place
	maxGroup      = 256     // batches of one transaction
	maxGroupBytes = 8 << 20 // and what they hold, about
)

// writer owns the connection that writes. Everything without a comment belongs
// to the goroutine of run.
type writer struct {
	dialect dialect
	session *session
	tx      tx
	upkeep  upkeep
	seq     durable.Seq
	group   []*job // reused

	queue    chan *job
	stopping chan struct{} // closed by stop
	stopped  chan struct{} // closed by run; nothing is written any more
	closeErr error         // of run, set before stopped is closed

	failed   chan struct{} // closed by fail
	failErr  atomic.Pointer[error]
	counters counters

	// fault, when set before run, may return an error in place of a step.
	fault func(step string) error
}

// The steps that fault is asked about.
const (
	stepWrite      = "write"
	stepCommit     = "commit"
	stepCheckpoint = "checkpoint"
)

// newWriter makes a writer that does not run yet, on a connection of its own.
func newWriter(d dialect, s *session) (*writer, error) {
	if err := prepare(s, d); err != nil {
		return nil, err
	}
	return &writer{
		dialect: d, session: s, tx: tx{session: s},
		queue:    make(chan *job, queueLength),
		stopping: make(chan struct{}),
		stopped:  make(chan struct{}),
		failed:   make(chan struct{}),
	}, nil
}

// do queues a job and waits for its end. It may be called concurrently.
func (w *writer) do(ctx context.Context, j *job) error {
	select {
	case <-w.stopping:
		return durable.ErrStoreClosed
	default:
	}
	if err := w.failure(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", durable.ErrRejected, err)
	}
	select {
	case w.queue <- j:
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for a place in the queue: %w", durable.ErrRejected, ctx.Err())
	case <-w.stopping:
		return durable.ErrStoreClosed
	}
	select {
	case <-j.done:
		return j.err
	case <-ctx.Done():
		if j.withdraw() {
			return fmt.Errorf("%w: wait for the writer: %w", durable.ErrRejected, ctx.Err())
		}
		<-j.done
		return j.err
	case <-w.stopped:
	}
	// Answered at the last moment, or queued too late.
	select {
	case <-j.done:
		return j.err
	default:
		return durable.ErrStoreClosed
	}
}

// run writes groups of jobs until stop, then what is still queued.
func (w *writer) run() {
	defer close(w.stopped)
	for w.collect() {
		w.write()
	}
	final := w.failure() == nil
	w.closeErr = w.upkeep.stop(final)
}

// stop ends run and waits for it. The session is still open then.
func (w *writer) stop() error {
	close(w.stopping)
	<-w.stopped
	return w.closeErr
}

// collect waits for a job and takes all others that wait, within bounds. It
// returns false when there is none and the writer stops.
func (w *writer) collect() bool {
	w.group = w.group[:0]
	size := 0
	add := func(j *job) {
		if j.take() {
			w.group = append(w.group, j)
			size += j.size
		}
	}
	select {
	case j := <-w.queue:
		add(j)
	case <-w.stopping:
		select {
		case j := <-w.queue:
			add(j)
		default:
			return false
		}
	}
	for len(w.group) < maxGroup && size < maxGroupBytes {
		select {
		case j := <-w.queue:
			add(j)
		default:
			return true
		}
	}
	return true
}

// write writes the group and answers every job of it.
func (w *writer) write() {
	if len(w.group) == 0 {
		return
	}
	w.counters.groups.Add(1)
	w.writeGroup(w.group)
	if w.failure() == nil {
		if err := w.upkeep.tick(); err != nil {
			w.fail(err)
		}
	}
	clear(w.group)
}

// fail ends the store. What is queued, and comes later, is answered with err.
func (w *writer) fail(err error) {
	err = fmt.Errorf("%w: %w", durable.ErrStoreFailed, err)
	w.failErr.Store(&err)
	close(w.failed)
}

// failure returns why the store failed, or nil. It may be called concurrently.
func (w *writer) failure() error {
	if err := w.failErr.Load(); err != nil {
		return *err
	}
	return nil
}
