package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync"

	"github.com/uptrace/bun"
)

// What the tests of this package reach into. They open stores with
// sqlstore/sqlite, so they are outside the package.

// The steps of a [Store] that SetFault's function is asked about.
const (
	StepWrite      = stepWrite
	StepCommit     = stepCommit
	StepCheckpoint = stepCheckpoint
)

// QueueLength is the number of jobs that may wait.
const QueueLength = queueLength

// hook is a row that runs a function in the writer's goroutine.
type hook func() error

func (h hook) write(*tx) error { return h() }

func (s *Store) inWriter(fn func() error) error {
	j := newJob([]row{hook(fn)}, 0)
	j.internal = true
	return s.writer.do(context.Background(), j)
}

// SetFault lets fault answer in place of the writer's steps. A nil error lets
// the step happen. It runs in the writer's goroutine, or in the one that copies
// the log.
func (s *Store) SetFault(fault func(step string) error) error {
	return s.inWriter(func() error {
		s.writer.fault = nil
		if fault != nil {
			own := true // the commit of this very job comes first
			s.writer.fault = func(step string) error {
				if step == stepCommit && own {
					own = false
					return nil
				}
				return fault(step)
			}
		}
		return nil
	})
}

// Exec runs a statement on the connection that writes. It may be called from
// the function of SetFault only.
func (s *Store) Exec(query string) error {
	_, err := s.query(query)
	return err
}

// Pragma runs a pragma on the connection that writes and returns its value.
func (s *Store) Pragma(text string) (value string, err error) {
	err = s.inWriter(func() error {
		value, err = s.query("PRAGMA " + text)
		return err
	})
	return value, err
}

func (s *Store) query(text string) (_ string, err error) {
	st, err := s.writer.session.conn.Prepare(text)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	rows, err := st.(driver.StmtQueryContext).QueryContext(context.Background(), nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	row := make([]driver.Value, len(rows.Columns()))
	if len(row) == 0 {
		return "", nil
	}
	err = rows.Next(row)
	return fmt.Sprint(row[0]), err
}

// Queued is the number of jobs that wait.
func (s *Store) Queued() int { return len(s.writer.queue) }

// MigrateWith is MigrateSQLite with other scripts.
var MigrateWith = migrateSQLite

// FaultError is an error as the database's driver makes it.
type FaultError int

func (e FaultError) Error() string { return fmt.Sprintf("injected database error %d", int(e)) }

// Code is SQLite's result code.
func (e FaultError) Code() int { return int(e) }

// Plans calls read, while nothing else reads, and returns the queries that it ran with SQLite's plan of
// each.
func (s *Store) Plans(read func()) (map[string][]string, error) {
	recorder := &recorder{}
	plain := s.db
	s.db = s.db.WithQueryHook(recorder)
	read()
	s.db = plain
	out := map[string][]string{}
	for _, query := range recorder.queries {
		details, err := s.plan(query)
		if err != nil {
			return nil, err
		}
		out[query] = details
	}
	return out, nil
}

func (s *Store) plan(query string) (details []string, err error) {
	rows, err := s.db.DB.QueryContext(context.Background(), "EXPLAIN QUERY PLAN "+query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return nil, err
		}
		details = append(details, detail)
	}
	return details, rows.Err()
}

type recorder struct {
	mu      sync.Mutex
	queries []string
}

func (r *recorder) BeforeQuery(ctx context.Context, _ *bun.QueryEvent) context.Context { return ctx }

func (r *recorder) AfterQuery(_ context.Context, e *bun.QueryEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Err == nil || errors.Is(e.Err, sql.ErrNoRows) {
		r.queries = append(r.queries, e.Query)
	}
}
