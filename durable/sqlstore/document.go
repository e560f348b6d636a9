package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/uptrace/bun"

	"github.com/wp-durable/wp-durable/durable"
)

type documentRow struct {
	key       durable.DocKey
	kind, sub []byte // the key's Kind and Key
	version   int64
	value     string
	at        int64
	expect    int64 // negative: do not compare
	delete    bool
}

func encodeDocument(w *durable.DocumentWrite) (*documentRow, error) {
	key := w.Record.DocKey
	r := &documentRow{
		key: key, kind: []byte(key.Kind), sub: []byte(key.Key), version: int64(w.Record.Version),
		at: int64(w.At), expect: -1, delete: w.Delete,
	}
	if key.Scope == durable.ScopeGlobal {
		r.expect = w.Expect
	}
	if !w.Delete {
		if !json.Valid(w.Record.Value) {
			return nil, fmt.Errorf("%s: value is not JSON", describe(key))
		}
		r.value = string(w.Record.Value)
	}
	return r, nil
}

func (r *documentRow) write(t *tx) error {
	err := r.compare(t)
	if err == nil {
		if r.delete {
			err = r.remove(t)
		} else {
			err = r.put(t)
		}
	}
	var conflict *durable.ConflictError
	if err != nil && !errors.As(err, &conflict) {
		return fmt.Errorf("%s: %w", describe(r.key), err)
	}
	return err
}

// compare checks the revision that was read of a global document.
func (r *documentRow) compare(t *tx) error {
	if r.expect < 0 {
		return nil
	}
	var row [3]driver.Value // version, revision, value
	err := t.query(selectDocument, row[:], string(r.key.Scope), r.key.Owner, r.kind, r.sub)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	stored := durable.DocRecord{DocKey: r.key}
	if value, ok := row[2].(string); ok {
		stored.Version, stored.Revision, stored.Value = int(row[0].(int64)), row[1].(int64), json.RawMessage(value)
	}
	if stored.Revision != r.expect {
		return &durable.ConflictError{Document: &stored}
	}
	return nil
}

func (r *documentRow) put(t *tx) error {
	scope := string(r.key.Scope)
	_, err := t.exec(putDocument, scope, r.key.Owner, r.kind, r.sub, r.version, r.value)
	if err == nil && r.at != 0 {
		_, err = t.exec(putVersion, r.at, scope, r.key.Owner, r.kind, r.sub)
	}
	return err
}

func (r *documentRow) remove(t *tx) error {
	scope := string(r.key.Scope)
	if r.key.Scope != durable.ScopeGlobal {
		_, err := t.exec(deleteDocument, scope, r.key.Owner, r.kind, r.sub)
		return err
	}
	// Its revision lives on, so that no later document of the name passes for
	// the one somebody read.
	_, err := t.exec(buryDocument, scope, r.key.Owner, r.kind, r.sub)
	if err == nil {
		_, err = t.exec(deleteHistory, scope, r.key.Owner, r.kind, r.sub)
	}
	return err
}

// documentModel is a row of the table for reading.
type documentModel struct {
	bun.BaseModel `bun:"table:documents"`

	Scope    string
	Owner    int64
	Kind     []byte
	Key      []byte
	Version  int
	Revision int64
	Value    []byte
}

func (m *documentModel) record() durable.DocRecord {
	return durable.DocRecord{
		DocKey:  durable.DocKey{Scope: durable.Scope(m.Scope), Owner: m.Owner, Kind: string(m.Kind), Key: string(m.Key)},
		Version: m.Version, Revision: m.Revision, Value: m.Value,
	}
}

// Document returns one document.
func (s *Store) Document(ctx context.Context, key durable.DocKey) (durable.DocRecord, error) {
	var m documentModel
	err := s.read(ctx, func(db *bun.DB) error {
		return whereKey(db.NewSelect().Model(&m), key).Where("at = 0").Where("value IS NOT NULL").Scan(ctx)
	})
	if err != nil {
		return durable.DocRecord{}, wrap(err, "%s", describe(key))
	}
	return m.record(), nil
}

// Documents returns all documents of one owner, by kind and key.
func (s *Store) Documents(ctx context.Context, scope durable.Scope, owner int64) ([]durable.DocRecord, error) {
	var ms []documentModel
	err := s.read(ctx, func(db *bun.DB) error {
		return db.NewSelect().Model(&ms).Where("scope = ?", string(scope)).Where("owner = ?", owner).
			Where("at = 0").Where("value IS NOT NULL").Order("kind", "key").Scan(ctx)
	})
	if err != nil {
		return nil, wrap(err, "documents of %s %d", scope, owner)
	}
	out := make([]durable.DocRecord, len(ms))
	for i := range ms {
		out[i] = ms[i].record()
	}
	return out, nil
}

// DocumentAsOf returns the version of a rewindable document at an entry.
func (s *Store) DocumentAsOf(ctx context.Context, key durable.DocKey, at durable.EntryID) (durable.DocRecord, error) {
	var m documentModel
	err := s.read(ctx, func(db *bun.DB) error {
		return whereKey(db.NewSelect().Model(&m), key).Where("at > 0").Where("at <= ?", int64(at)).
			Order("at DESC").Limit(1).Scan(ctx)
	})
	if err != nil {
		return durable.DocRecord{}, wrap(err, "%s as of entry %d", describe(key), at)
	}
	return m.record(), nil
}

// VisitDocuments calls visit with every document of that scope and kind, as of
// one state of the store. It keeps a connection while it runs.
func (s *Store) VisitDocuments(ctx context.Context, scope durable.Scope, kind string, visit func(durable.DocRecord) error) error {
	var failed error // visit's error, returned as it is
	err := s.read(ctx, func(db *bun.DB) (err error) {
		// Leave a connection for what visit reads.
		select {
		case s.visits <- struct{}{}:
			defer func() { <-s.visits }()
		case <-ctx.Done():
			return ctx.Err()
		}
		rows, err := db.NewSelect().Model((*documentModel)(nil)).Where("scope = ?", string(scope)).
			Where("kind = ?", []byte(kind)).Where("at = 0").Where("value IS NOT NULL").Rows(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rows.Close()) }()
		for rows.Next() {
			var m documentModel
			if err := db.ScanRow(ctx, rows, &m); err != nil {
				return err
			}
			if failed = visit(m.record()); failed != nil {
				return nil
			}
		}
		return rows.Err()
	})
	if failed != nil {
		return failed
	}
	return wrap(err, "visit documents %s", kind)
}

func whereKey(q *bun.SelectQuery, key durable.DocKey) *bun.SelectQuery {
	return q.Where("scope = ?", string(key.Scope)).Where("owner = ?", key.Owner).
		Where("kind = ?", []byte(key.Kind)).Where("key = ?", []byte(key.Key))
}

func describe(key durable.DocKey) string {
	return fmt.Sprintf("document %s %d %s %q", key.Scope, key.Owner, key.Kind, key.Key)
}
