package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// checkpoints copies SQLite's write-ahead log into the database when it has
// grown long. SQLite would do it within a commit, where everybody waits for it
// and its errors are lost. Here a second connection copies while commits go on,
// and the writer copies only the little that came meanwhile: then all is
// copied, and the log begins again at its start.
type checkpoints struct {
	writer *writer
	pages  int
	own    *session // with the statement ownPassive
	// Statements on the writer's session.
	length, passive int

	running chan error // of the copy that goes on, or nil
	last    int64      // length of the log when the last copy was begun or done
}

// The statements of the session that copies.
const (
	ownPassive = iota
	ownTruncate
)

func newCheckpoints(ctx context.Context, w *writer, c driver.Connector, pages int) (*checkpoints, error) {
	cp := &checkpoints{writer: w, pages: pages, length: len(w.session.stmts), passive: len(w.session.stmts) + 1}
	for _, mode := range []string{"NOOP", "PASSIVE"} {
		if err := w.session.prepare("PRAGMA wal_checkpoint(" + mode + ")"); err != nil {
			return nil, err
		}
	}
	own, err := connect(ctx, c)
	if err != nil {
		return nil, err
	}
	for _, mode := range []string{"PASSIVE", "TRUNCATE"} {
		if err := own.prepare("PRAGMA wal_checkpoint(" + mode + ")"); err != nil {
			return nil, errors.Join(err, own.close())
		}
	}
	cp.own = own
	return cp, nil
}

func (c *checkpoints) tick() error {
	if c.running != nil {
		select {
		case err := <-c.running:
			c.running = nil
			if err == nil {
				c.last, _, err = checkpoint(c.writer.session, c.passive)
			}
			if err == nil {
				c.writer.counters.checkpoints.Add(1)
			}
			return c.judge(err)
		default:
			return nil
		}
	}
	log, copied, err := checkpoint(c.writer.session, c.length)
	if err != nil {
		return c.judge(err)
	}
	if log < c.last {
		c.last = 0 // it began again
	}
	// A reader may have kept the last copy from its end; do not try it again
	// after every commit.
	if pages := int64(c.pages); log-copied < pages || c.last > 0 && log-c.last < pages/8 {
		return nil
	}
	c.last = log
	c.running = make(chan error, 1)
	go func(done chan<- error) { done <- c.copy() }(c.running)
	return nil
}

// copy runs beside the writer.
func (c *checkpoints) copy() error {
	if f := c.writer.fault; f != nil {
		if err := f(stepCheckpoint); err != nil {
			return err
		}
	}
	_, _, err := checkpoint(c.own, ownPassive)
	return err
}

// judge returns nil for an error after which everything is as it was: what has
// no room in the database stays in the log, and is copied later.
func (c *checkpoints) judge(err error) error {
	if err == nil {
		return nil
	}
	switch c.writer.dialect.classify(err) {
	case classRejected, classFull:
		return nil
	}
	return fmt.Errorf("checkpoint: %w", err)
}

// checkpoint runs a wal_checkpoint and returns how many frames are in the log,
// and how many of them are copied.
func checkpoint(s *session, statement int) (log, copied int64, err error) {
	var row [3]driver.Value // whether it was kept from its end, log, copied
	if err := s.query(statement, row[:], nil); err != nil {
		return 0, 0, err
	}
	return row[1].(int64), row[2].(int64), nil
}

func (c *checkpoints) stop(final bool) error {
	var err error
	if c.running != nil {
		err = <-c.running
		c.running = nil
	}
	if final && err == nil {
		_, _, err = checkpoint(c.own, ownTruncate)
	}
	return errors.Join(c.judge(err), c.own.close())
}
