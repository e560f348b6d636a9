package memstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/wp-durable/wp-durable/durable"
)

type docOwner struct {
	scope durable.Scope
	owner int64
}

type docName struct{ kind, key string }

func (s *Store) document(k durable.DocKey) (document, bool) {
	d, ok := s.documents[docOwner{k.Scope, k.Owner}][docName{k.Kind, k.Key}]
	return d, ok
}

// document is a document and its history.
type document struct {
	record durable.DocRecord
	// deleted marks a global document that is no more. Its revision lives on,
	// so that no later document of the name passes for the one somebody read.
	deleted bool
	history []version // ascending
}

type version struct {
	at     durable.EntryID
	record durable.DocRecord
}

func ownDocument(w durable.DocumentWrite) (durable.DocumentWrite, error) {
	if !w.Delete && !json.Valid(w.Record.Value) {
		return w, fmt.Errorf("document %s: value is not JSON", w.Record.Kind)
	}
	w.Record.Value = bytes.Clone(w.Record.Value)
	return w, nil
}

// checkDocuments compares the revisions that were read of global documents.
func (s *Store) checkDocuments(writes []durable.DocumentWrite) error {
	fresh := map[durable.DocKey]bool{} // written before in this batch
	for _, w := range writes {
		key := w.Record.DocKey
		if fresh[key] {
			return fmt.Errorf("document %s %q is written twice: %w", key.Kind, key.Key, durable.ErrRejected)
		}
		fresh[key] = true
		if key.Scope != durable.ScopeGlobal || w.Expect < 0 {
			continue
		}
		stored := durable.DocRecord{DocKey: key}
		if d, ok := s.document(key); ok && !d.deleted {
			stored = cloneDocument(d.record)
		}
		if stored.Revision != w.Expect {
			return &durable.ConflictError{Document: &stored}
		}
	}
	return nil
}

func (s *Store) putDocument(w durable.DocumentWrite) {
	key := w.Record.DocKey
	owner, name := docOwner{key.Scope, key.Owner}, docName{key.Kind, key.Key}
	if s.documents[owner] == nil {
		s.documents[owner] = map[docName]document{}
	}
	old, ok := s.documents[owner][name]
	next := document{record: w.Record, history: old.history}
	next.record.Revision = old.record.Revision + 1
	switch {
	case !w.Delete:
		if w.At != 0 {
			next.history = putVersion(next.history, version{w.At, next.record})
		}
		s.documents[owner][name] = next
	case ok && key.Scope == durable.ScopeGlobal:
		next.record.Value, next.history, next.deleted = nil, nil, true
		if old.deleted {
			next.record.Revision = old.record.Revision
		}
		s.documents[owner][name] = next
	default:
		delete(s.documents[owner], name)
	}
}

func putVersion(history []version, v version) []version {
	at, found := slices.BinarySearchFunc(history, v.at, func(o version, at durable.EntryID) int { return cmp.Compare(o.at, at) })
	if found {
		history[at] = v
		return history
	}
	return slices.Insert(history, at, v)
}

// Document returns one document.
func (s *Store) Document(ctx context.Context, key durable.DocKey) (durable.DocRecord, error) {
	var out durable.DocRecord
	err := s.read(ctx, describe(key), func() error {
		d, ok := s.document(key)
		if !ok || d.deleted {
			return durable.ErrNotFound
		}
		out = cloneDocument(d.record)
		return nil
	})
	return out, err
}

// Documents returns all documents of one owner, by kind and key.
func (s *Store) Documents(ctx context.Context, scope durable.Scope, owner int64) ([]durable.DocRecord, error) {
	var out []durable.DocRecord
	err := s.read(ctx, fmt.Sprintf("documents of %s %d", scope, owner), func() error {
		out = sortDocuments(s.documents[docOwner{scope, owner}])
		return nil
	})
	return out, err
}

// DocumentAsOf returns the version of a rewindable document at an entry.
func (s *Store) DocumentAsOf(ctx context.Context, key durable.DocKey, at durable.EntryID) (durable.DocRecord, error) {
	var out durable.DocRecord
	err := s.read(ctx, fmt.Sprintf("%s as of entry %d", describe(key), at), func() error {
		d, _ := s.document(key)
		for _, v := range slices.Backward(d.history) {
			if v.at <= at {
				out = cloneDocument(v.record)
				return nil
			}
		}
		return durable.ErrNotFound
	})
	return out, err
}

// VisitDocuments calls visit with every document of that scope and kind.
func (s *Store) VisitDocuments(ctx context.Context, scope durable.Scope, kind string, visit func(durable.DocRecord) error) error {
	var all []durable.DocRecord
	err := s.read(ctx, fmt.Sprintf("visit documents %s", kind), func() error {
		for owner, docs := range s.documents {
			if owner.scope != scope {
				continue
			}
			for name, d := range docs {
				if name.kind == kind && !d.deleted {
					all = append(all, cloneDocument(d.record))
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, d := range all {
		if err := visit(d); err != nil {
			return err
		}
	}
	return nil
}

func sortDocuments(docs map[docName]document) []durable.DocRecord {
	var out []durable.DocRecord
	for _, d := range docs {
		if !d.deleted {
			out = append(out, cloneDocument(d.record))
		}
	}
	slices.SortFunc(out, func(a, b durable.DocRecord) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
	})
	return out
}

func cloneDocument(d durable.DocRecord) durable.DocRecord {
	d.Value = bytes.Clone(d.Value)
	return d
}

func describe(key durable.DocKey) string {
	return fmt.Sprintf("document %s %d %s %q", key.Scope, key.Owner, key.Kind, key.Key)
}
