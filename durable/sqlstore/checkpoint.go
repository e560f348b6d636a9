package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// checkpoints copies SQLite's write-ahead log into the database when it has
// grown long. SQLite would do it within a commit, where everybody waits for it
// and its errors are lost. Here a second connection copies while commits go on,
// and the writer copies only the little that came meanwhile: then all is
// copied, and the log begins again at its start.
type checkpoints struct {
	writer  *writer
	pages   int
	conn    *sql.Conn
	length  *sql.Stmt // on the writer's connection
	passive *sql.Stmt // likewise

	running chan error // of the copy that goes on, or nil
	last    int        // length of the log when the last copy was begun or done
}

func newCheckpoints(ctx context.Context, w *writer, pages int) (_ *checkpoints, err error) {
	c := &checkpoints{writer: w, pages: pages}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("prepare checkpoints: %w", err), c.release())
		}
	}()
	if c.conn, err = w.db.Conn(ctx); err != nil {
		return nil, err
	}
	if c.length, err = w.conn.PrepareContext(ctx, "PRAGMA wal_checkpoint(NOOP)"); err != nil {
		return nil, err
	}
	if c.passive, err = w.conn.PrepareContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *checkpoints) tick(ctx context.Context) error {
	if c.running != nil {
		select {
		case err := <-c.running:
			c.running = nil
			var log int
			if err == nil {
				log, _, err = c.run(c.passive.QueryRowContext(ctx))
			}
			if err != nil {
				return c.judge(err)
			}
			c.last = log
			c.writer.counters.checkpoints.Add(1)
			return nil
		default:
			return nil
		}
	}
	log, copied, err := c.run(c.length.QueryRowContext(ctx))
	if err != nil {
		return c.judge(err)
	}
	if log < c.last {
		c.last = 0 // it began again
	}
	// A reader may have kept the last copy from its end; do not try it again
	// after every commit.
	if log-copied < c.pages || c.last > 0 && log-c.last < c.pages/8 {
		return nil
	}
	c.last = log
	c.running = make(chan error, 1)
	go func(done chan<- error) {
		if f := c.writer.fault; f != nil {
			if err := f(stepCheckpoint); err != nil {
				done <- err
				return
			}
		}
		_, _, err := c.run(c.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"))
		done <- err
	}(c.running)
	return nil
}

// judge returns nil for an error after which everything is as it was: what has
// no room in the database stays in the log, and is copied later.
func (c *checkpoints) judge(err error) error {
	switch c.writer.dialect.classify(err) {
	case classRejected, classFull:
		return nil
	}
	return fmt.Errorf("checkpoint: %w", err)
}

// run reads the result of a wal_checkpoint: the frames in the log, and how many
// of them are copied.
func (c *checkpoints) run(row *sql.Row) (log, copied int, err error) {
	var busy int
	err = row.Scan(&busy, &log, &copied)
	return log, copied, err
}

func (c *checkpoints) stop(ctx context.Context, final bool) error {
	var err error
	if c.running != nil {
		err = <-c.running
		c.running = nil
	}
	if final && err == nil {
		_, _, err = c.run(c.conn.QueryRowContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"))
	}
	if err != nil {
		err = c.judge(err)
	}
	return errors.Join(err, c.release())
}

func (c *checkpoints) release() error {
	var err error
	for _, st := range []*sql.Stmt{c.length, c.passive} {
		if st != nil {
			err = errors.Join(err, st.Close())
		}
	}
	if c.conn != nil {
		err = errors.Join(err, c.conn.Close())
	}
	return err
}
