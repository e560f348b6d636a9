package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
)

// session is one connection, used through the driver itself: database/sql
// between would add a tenth to the cost of a row. One goroutine uses it at a
// time.
//
// Its statements never run under a caller's context: an interrupt would end
// the whole transaction (E4.4).
type session struct {
	conn  driver.Conn
	stmts []driver.Stmt
	args  []driver.NamedValue // reused
}

func connect(ctx context.Context, c driver.Connector) (*session, error) {
	conn, err := c.Connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("open for writing: %w", err)
	}
	return &session{conn: conn}, nil
}

// prepare prepares a statement, which gets the next number.
func (s *session) prepare(query string) error {
	st, err := s.conn.Prepare(query)
	if err != nil {
		return fmt.Errorf("prepare %q: %w", query, err)
	}
	s.stmts = append(s.stmts, st)
	_, execs := st.(driver.StmtExecContext)
	_, queries := st.(driver.StmtQueryContext)
	if !execs || !queries {
		return fmt.Errorf("prepare %q: the driver's statements take no context", query)
	}
	return nil
}

// exec runs a statement and returns how many rows it changed. Arguments are
// int64, string, []byte or nil.
func (s *session) exec(statement int, args []any) (int64, error) {
	res, err := s.stmts[statement].(driver.StmtExecContext).ExecContext(context.Background(), s.bind(args))
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// query runs a statement and reads its first row into dest, or returns
// sql.ErrNoRows.
func (s *session) query(statement int, dest []driver.Value, args []any) error {
	rows, err := s.stmts[statement].(driver.StmtQueryContext).QueryContext(context.Background(), s.bind(args))
	if err != nil {
		return err
	}
	err = rows.Next(dest)
	// To the end: a statement that writes is done only then.
	for rest := make([]driver.Value, len(dest)); err == nil; {
		if next := rows.Next(rest); next != nil {
			if !errors.Is(next, io.EOF) {
				err = next
			}
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = sql.ErrNoRows
	}
	return errors.Join(err, rows.Close())
}

func (s *session) bind(args []any) []driver.NamedValue {
	s.args = s.args[:0]
	for i, v := range args {
		s.args = append(s.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return s.args
}

func (s *session) close() error {
	var err error
	for _, st := range s.stmts {
		err = errors.Join(err, st.Close())
	}
	return errors.Join(err, s.conn.Close())
}
