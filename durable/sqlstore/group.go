package sqlstore

import (
	"errors"
	"fmt"

	"github.com/wp-durable/wp-durable/durable"
)

// writeGroup writes jobs in one transaction, and those that must be tried alone each
// in one of its own. It answers every job.
func (w *writer) writeGroup(jobs []*job) {
	alone, careful := w.attempt(jobs, false)
	if careful {
		alone, _ = w.attempt(jobs, true)
	}
	for _, j := range alone {
		w.attempt([]*job{j}, false)
	}
}

// attempt writes jobs in one transaction. It answers those that were stored,
// that lost against another batch, or that cannot be tried again, and returns
// the others, to be tried alone. A job on its own is always answered.
//
// Savepoints cost a sixth of the writing, so at first there are none. When a
// batch fails that has written something, nothing is stored, and attempt asks
// to be called again with careful: then each batch has its savepoint.
func (w *writer) attempt(jobs []*job, careful bool) (again []*job, beCareful bool) {
	if err := w.failure(); err != nil {
		finish(jobs, err)
		return nil, false
	}
	if _, err := w.tx.exec(begin); err != nil {
		// It says nothing about any of the batches.
		w.refuse(jobs, fmt.Errorf("begin: %w", err))
		return nil, false
	}
	alone := len(jobs) == 1
	var stored, lost []*job
	var conflicts []error
	w.tx.rows = 0
	for _, j := range jobs {
		rows, err := w.put(j, careful)
		if err == nil {
			stored = append(stored, j)
			continue
		}
		var conflict *durable.ConflictError
		isConflict := errors.As(err, &conflict)
		switch c := w.dialect.classify(err); {
		case c == classBroken || c == classCorrupt:
			w.rollback()
			w.refuse(jobs, err)
			return nil, false
		case alone:
			w.rollback()
			w.counters.rejected.Add(1)
			j.finish(w.rejection(err))
			return nil, false
		case !careful && isConflict && rows == 0:
			// It met the conflict before it changed anything.
		case !careful:
			w.rollback()
			return nil, true
		case !w.undo():
			// The transaction is over, and with it what was written in it.
			w.rollback()
			return jobs, false
		}
		if isConflict {
			lost, conflicts = append(lost, j), append(conflicts, err)
		} else {
			again = append(again, j)
		}
	}
	if err := w.commit(); err != nil {
		w.rollback()
		if c := w.dialect.classify(err); (c == classRejected || c == classFull) && !alone {
			return jobs, false
		}
		w.refuse(jobs, err)
		return nil, false
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
	return again, false
}

// put writes one job, and returns how many rows it wrote before an error.
func (w *writer) put(j *job, withSavepoint bool) (rows int, err error) {
	if withSavepoint {
		if _, err := w.tx.exec(savepoint); err != nil {
			return 0, fmt.Errorf("savepoint: %w", err)
		}
	}
	if w.fault != nil {
		if err := w.fault(stepWrite); err != nil {
			return 0, err
		}
	}
	for i, r := range j.rows {
		if err := r.write(&w.tx); err != nil {
			return i, err
		}
	}
	w.tx.rows += int64(len(j.rows))
	if withSavepoint {
		if _, err := w.tx.exec(release); err != nil {
			return len(j.rows), fmt.Errorf("release savepoint: %w", err)
		}
	}
	return len(j.rows), nil
}

// refuse answers jobs whose transaction failed as a whole, after which either
// nothing of them is stored, or the store cannot go on.
func (w *writer) refuse(jobs []*job, err error) {
	if c := w.dialect.classify(err); c != classRejected && c != classFull {
		w.fail(err)
		finish(jobs, w.failure())
		return
	}
	w.counters.rejected.Add(uint64(len(jobs)))
	finish(jobs, w.rejection(err))
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
