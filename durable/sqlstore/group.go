package sqlstore

import (
	"errors"
	"fmt"

	"github.com/wp-durable/wp-durable/durable"
)

// attempt writes jobs in one transaction. It answers those that were stored,
// that lost against another batch, or that cannot be tried again, and returns
// the others, to be tried alone. A job on its own is always answered.
func (w *writer) attempt(jobs []*job) (again []*job) {
	if err := w.failure(); err != nil {
		finish(jobs, err)
		return nil
	}
	if _, err := w.tx.exec(begin); err != nil {
		// It says nothing about any of the batches.
		err = fmt.Errorf("begin: %w", err)
		if c := w.dialect.classify(err); c != classRejected && c != classFull {
			w.fail(err)
			finish(jobs, w.failure())
			return nil
		}
		w.counters.rejected.Add(uint64(len(jobs)))
		finish(jobs, w.rejection(err))
		return nil
	}
	alone := len(jobs) == 1
	var stored, lost []*job
	var conflicts []error
	w.tx.rows = 0
	for i, j := range jobs {
		err := w.put(j, alone)
		if err == nil {
			stored = append(stored, j)
			continue
		}
		if c := w.dialect.classify(err); c == classBroken || c == classCorrupt {
			w.rollback()
			w.fail(err)
			finish(jobs, w.failure())
			return nil
		}
		if alone {
			w.rollback()
			w.counters.rejected.Add(1)
			j.finish(w.rejection(err))
			return nil
		}
		if !w.undo() {
			// The transaction is over, and with it what was written in it.
			w.rollback()
			return jobs
		}
		if conflict := (*durable.ConflictError)(nil); errors.As(err, &conflict) {
			lost, conflicts = append(lost, jobs[i]), append(conflicts, err)
		} else {
			again = append(again, j)
		}
	}
	if err := w.commit(); err != nil {
		w.rollback()
		c := w.dialect.classify(err)
		switch {
		case c != classRejected && c != classFull:
			w.fail(err)
			finish(jobs, w.failure())
			return nil
		case alone:
			w.counters.rejected.Add(1)
			finish(jobs, w.rejection(err))
			return nil
		}
		return jobs
	}
	w.counters.commits.Add(1)
	w.counters.rows.Add(uint64(w.tx.rows))
	for _, j := range stored {
		if !j.internal {
			w.counters.batches.Add(1)
			w.seq++
			j.seq = w.seq
		}
		j.finish(nil)
	}
	w.counters.rejected.Add(uint64(len(lost)))
	for i, j := range lost {
		j.finish(conflicts[i])
	}
	return again
}

// put writes one job, with a savepoint unless it is alone.
func (w *writer) put(j *job, alone bool) error {
	if !alone {
		if _, err := w.tx.exec(savepoint); err != nil {
			return fmt.Errorf("savepoint: %w", err)
		}
	}
	if w.fault != nil {
		if err := w.fault(stepWrite); err != nil {
			return err
		}
	}
	for _, r := range j.rows {
		if err := r.write(&w.tx); err != nil {
			return err
		}
	}
	w.tx.rows += int64(len(j.rows))
	if !alone {
		if _, err := w.tx.exec(release); err != nil {
			return fmt.Errorf("release savepoint: %w", err)
		}
	}
	return nil
}

// undo takes a job back to its savepoint. It returns false when that cannot be
// done because the database has ended the whole transaction.
func (w *writer) undo() bool {
	if _, err := w.tx.exec(undo); err != nil {
		return false
	}
	_, err := w.tx.exec(release)
	return err == nil
}

func (w *writer) commit() error {
	if w.fault != nil {
		if err := w.fault(stepCommit); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	if _, err := w.tx.exec(commit); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// rollback ends a transaction that may have ended already. If it cannot be
// ended, the next one cannot begin, and that fails the store.
func (w *writer) rollback() { _, _ = w.tx.exec(rollback) }

// rejection is the answer to a batch that surely was not stored.
func (w *writer) rejection(err error) error {
	if errors.Is(err, durable.ErrRejected) {
		return err
	}
	if w.dialect.classify(err) == classFull {
		return fmt.Errorf("%w: %w", durable.ErrStoreFull, err)
	}
	return fmt.Errorf("%w: %w", durable.ErrRejected, err)
}

func finish(jobs []*job, err error) {
	for _, j := range jobs {
		j.finish(err)
	}
}
