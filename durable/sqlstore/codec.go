package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/uptrace/bun"
)

var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// encode returns v as JSON, with the text of raw JSON values kept: no escaping
// of <, > and &, no other order of keys.
func encode(v any) (string, error) {
	buf := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(buf)
	buf.Reset()
	enc := json.NewEncoder(buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return "", err
	}
	return string(bytes.TrimSuffix(buf.Bytes(), []byte("\n"))), nil
}

// one returns the record of the query's only row, or sql.ErrNoRows.
func one[T any](ctx context.Context, q *bun.SelectQuery) (T, error) {
	all, err := list[T](ctx, q)
	if err == nil && len(all) == 0 {
		err = sql.ErrNoRows
	}
	if err != nil {
		var zero T
		return zero, err
	}
	return all[0], nil
}

// list returns the records of the query's rows.
func list[T any](ctx context.Context, q *bun.SelectQuery) (_ []T, err error) {
	rows, err := q.Column("record").Rows(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var out []T
	for rows.Next() {
		var raw sql.RawBytes
		if err := rows.Scan(&raw); err != nil {
			return nil, err
		}
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, rows.Err()
}

// nullable is id, or NULL for 0.
func nullable[T ~int64](id T) any {
	if id == 0 {
		return nil
	}
	return int64(id)
}

// flag is 1, or NULL, so that an index of the rows with 1 is small.
func flag(b bool) any {
	if b {
		return int64(1)
	}
	return nil
}

var minTime, maxTime = time.Unix(0, math.MinInt64), time.Unix(0, math.MaxInt64)

// nanoseconds orders times; those that do not fit are all alike.
func nanoseconds(t time.Time) int64 {
	switch {
	case t.Before(minTime):
		return math.MinInt64
	case t.After(maxTime):
		return math.MaxInt64
	}
	return t.UnixNano()
}
