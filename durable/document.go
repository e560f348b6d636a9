package durable

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// DocHistory says whether earlier values of a document are kept.
type DocHistory string

// The document histories.
const (
	Latest     DocHistory = "latest"     // only the newest value; the default
	Rewindable DocHistory = "rewindable" // every value, see [Doc.GetAsOf]
)

// DocFork says what a fork of a conversation gets of a document.
type DocFork string

// The ways a document is forked.
const (
	ForkInitial DocFork = "initial" // a fresh one; the default
	ForkCurrent DocFork = "current" // the value now
	ForkAsOf    DocFork = "asOf"    // the value at the fork entry; needs Rewindable
)

// DocSpec declares a kind of document for [NewDoc].
type DocSpec[T any] struct {
	Kind    string
	Version int // of the stored value; 0 means 1
	Scope   Scope
	History DocHistory
	Fork    DocFork
	// Initial makes the value of a document that does not exist yet; nil
	// means the zero value.
	Initial func() T
	// Migrate reads what an older version stored.
	Migrate func(version int, value json.RawMessage) (T, error)
}

// Doc is a declared kind of document: typed, mutable JSON state that changes
// only in commits. It is immutable itself.
type Doc[T any] struct{ spec DocSpec[T] }

// NewDoc makes a kind of document. It panics when the declaration is wrong.
func NewDoc[T any](spec DocSpec[T]) *Doc[T] {
	if strings.HasPrefix(spec.Kind, "pi.") {
		panic("durable.NewDoc " + spec.Kind + ": kinds that start with pi. are the engine's")
	}
	return newDoc(spec)
}

func newDoc[T any](spec DocSpec[T]) *Doc[T] {
	if spec.Version == 0 {
		spec.Version = 1
	}
	if spec.History == "" {
		spec.History = Latest
	}
	if spec.Fork == "" {
		spec.Fork = ForkInitial
	}
	switch {
	case spec.Kind == "":
		panic("durable.NewDoc: no kind")
	case spec.Scope != ScopeGlobal && spec.Scope != ScopeConversation && spec.Scope != ScopeTask:
		panic("durable.NewDoc " + spec.Kind + ": scope " + string(spec.Scope) + " is unknown")
	case spec.History == Rewindable && spec.Scope != ScopeConversation:
		panic("durable.NewDoc " + spec.Kind + ": only documents of conversations are rewindable")
	case spec.Fork == ForkAsOf && spec.History != Rewindable:
		panic("durable.NewDoc " + spec.Kind + ": fork asOf needs a rewindable document")
	}
	return &Doc[T]{spec}
}

// Kind returns the kind's name.
func (d *Doc[T]) Kind() string { return d.spec.Kind }

// Member returns the document of that key in a family of this kind.
func (d *Doc[T]) Member(key string) DocMember[T] { return DocMember[T]{d, key} }

// DocMember is one key of a family of documents.
type DocMember[T any] struct {
	d   *Doc[T]
	key string
}

// Get is [Doc.Get] for the member.
func (m DocMember[T]) Get(ctx context.Context, e *Engine, owner int64) (T, error) {
	return m.d.get(ctx, e, m.d.docKey(owner, m.key))
}

// Edit is [Doc.Edit] for the member.
func (m DocMember[T]) Edit(tx *Tx, owner int64) (*T, error) {
	return m.d.edit(tx, m.d.docKey(owner, m.key))
}

// Read is [Doc.Read] for the member.
func (m DocMember[T]) Read(tx *Tx, owner int64) (T, error) {
	return m.d.read(tx, m.d.docKey(owner, m.key))
}

// UpdateGlobal is [Doc.UpdateGlobal] for the member.
func (m DocMember[T]) UpdateGlobal(ctx context.Context, e *Engine, fn func(*T) error) error {
	return m.d.updateGlobal(ctx, e, m.d.docKey(0, m.key), fn)
}

func (d *Doc[T]) docKey(owner int64, key string) DocKey {
	return DocKey{Scope: d.spec.Scope, Owner: owner, Kind: d.spec.Kind, Key: key}
}

// Get returns the committed value of the document of a conversation or task,
// 0 for a global one; a value that was never written is the initial one. It
// never writes. A value stored by a newer version is [ErrVersionNewer].
func (d *Doc[T]) Get(ctx context.Context, e *Engine, owner int64) (T, error) {
	return d.get(ctx, e, d.docKey(owner, ""))
}

func (d *Doc[T]) get(ctx context.Context, e *Engine, key DocKey) (T, error) {
	rec, err := e.store.Document(ctx, key)
	if errors.Is(err, ErrNotFound) {
		return d.initial(), nil
	}
	if err != nil {
		var zero T
		return zero, fmt.Errorf("document %s: %w", key.Kind, err)
	}
	return d.decode(&rec)
}

// GetAsOf returns the value that a rewindable document of a conversation had
// in the commit that wrote an entry of it.
func (d *Doc[T]) GetAsOf(ctx context.Context, e *Engine, conversation ConversationID, at EntryID) (T, error) {
	rec, err := e.store.DocumentAsOf(ctx, d.docKey(int64(conversation), ""), at)
	if errors.Is(err, ErrNotFound) {
		return d.initial(), nil
	}
	if err != nil {
		var zero T
		return zero, fmt.Errorf("document %s: %w", d.spec.Kind, err)
	}
	return d.decode(&rec)
}

// Read returns the value as the commit sees it. It never creates the document.
func (d *Doc[T]) Read(tx *Tx, owner int64) (T, error) { return d.read(tx, d.docKey(owner, "")) }

func (d *Doc[T]) read(tx *Tx, key DocKey) (T, error) {
	var zero T
	if err := tx.check(); err != nil {
		return zero, err
	}
	if ed := tx.docs[key]; ed != nil {
		raw, err := encode(ed.value)
		if err != nil {
			return zero, fmt.Errorf("document %s: %w", key.Kind, err)
		}
		return d.decode(&DocRecord{DocKey: key, Version: d.spec.Version, Value: raw})
	}
	rec, err := tx.doc(key)
	if err != nil {
		return zero, err
	}
	if rec == nil {
		return d.initial(), nil
	}
	return d.decode(rec)
}

// Edit returns the value for the callback to change. It is private to the
// commit; what it holds when the callback returns is stored, unless it is what
// was stored before. A document that does not exist is created. When another
// commit changes a global document in between, the callback is run again.
func (d *Doc[T]) Edit(tx *Tx, owner int64) (*T, error) { return d.edit(tx, d.docKey(owner, "")) }

func (d *Doc[T]) edit(tx *Tx, key DocKey) (*T, error) {
	if err := tx.check(); err != nil {
		return nil, err
	}
	if ed := tx.docs[key]; ed != nil {
		v, ok := ed.value.(*T)
		if !ok {
			return nil, fmt.Errorf("document %s: edited as two types in one commit: %w", key.Kind, ErrInvalid)
		}
		return v, nil
	}
	if err := tx.ownsDoc(key); err != nil {
		return nil, err
	}
	rec, err := tx.doc(key)
	if err != nil {
		return nil, err
	}
	v := d.initial()
	if rec != nil {
		if v, err = d.decode(rec); err != nil {
			return nil, err
		}
	}
	tx.putDoc(key, &docEdit{key: key, value: &v, version: d.spec.Version, history: d.spec.History, before: rec})
	return &v, nil
}

// UpdateGlobal changes a global document: fn is given the value and changes
// it, and is called again when another commit came in between.
func (d *Doc[T]) UpdateGlobal(ctx context.Context, e *Engine, fn func(*T) error) error {
	return d.updateGlobal(ctx, e, d.docKey(0, ""), fn)
}

func (d *Doc[T]) updateGlobal(ctx context.Context, e *Engine, key DocKey, fn func(*T) error) error {
	if key.Scope != ScopeGlobal {
		return fmt.Errorf("document %s is not global: %w", key.Kind, ErrInvalid)
	}
	for {
		rec, err := e.store.Document(ctx, key)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("document %s: %w", key.Kind, err)
		}
		v := d.initial()
		if err == nil {
			if v, err = d.decode(&rec); err != nil {
				return err
			}
		}
		if err := e.protect("update of document "+key.Kind, func() error { return fn(&v) }); err != nil {
			return err
		}
		raw, err := encode(v)
		if err != nil {
			return fmt.Errorf("document %s: %w", key.Kind, err)
		}
		if rec.Revision > 0 && rec.Version == d.spec.Version && bytes.Equal(raw, rec.Value) {
			return nil
		}
		_, err = e.store.Commit(ctx, &Batch{Documents: []DocumentWrite{{
			Record: DocRecord{DocKey: key, Version: d.spec.Version, Revision: rec.Revision + 1, Value: raw},
			Expect: rec.Revision,
		}}})
		if _, lost := errors.AsType[*ConflictError](err); lost {
			continue
		}
		if err == nil || errors.Is(err, ErrRejected) || errors.Is(err, ErrStoreFailed) || errors.Is(err, ErrStoreClosed) {
			e.note(err)
			return wrapDoc(key, err)
		}
		stored, err := e.settledGlobal(ctx, key, rec.Revision+1, raw, err)
		if stored || err != nil {
			return err
		}
	}
}

// settledGlobal asks the store, until it answers, whether a write of a global
// document with an uncertain outcome is stored: its revision tells (E4.3).
func (e *Engine) settledGlobal(ctx context.Context, key DocKey, revision int64, raw []byte, cause error) (bool, error) {
	for attempt := 0; ; attempt++ {
		now, err := e.store.Document(ctx, key)
		if err == nil || errors.Is(err, ErrNotFound) {
			return now.Revision == revision && bytes.Equal(now.Value, raw), nil
		}
		e.note(err)
		if e.hasFailed() || !e.backoff(ctx, attempt) {
			return false, fmt.Errorf("document %s: %w, outcome unknown: %w: %w", key.Kind, errUnreachable, cause, err)
		}
	}
}

func wrapDoc(key DocKey, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("document %s: %w", key.Kind, err)
}

func (d *Doc[T]) initial() T {
	if d.spec.Initial != nil {
		return d.spec.Initial()
	}
	var zero T
	return zero
}

func (d *Doc[T]) decode(rec *DocRecord) (T, error) {
	var v T
	switch {
	case rec.Version > d.spec.Version:
		return v, fmt.Errorf("document %s: version %d: %w", rec.Kind, rec.Version, ErrVersionNewer)
	case rec.Version < d.spec.Version && d.spec.Migrate == nil:
		return v, fmt.Errorf("document %s: no migration from version %d to %d: %w", rec.Kind, rec.Version, d.spec.Version, ErrInvalid)
	case rec.Version < d.spec.Version:
		v, err := d.spec.Migrate(rec.Version, bytes.Clone(rec.Value))
		if err != nil {
			return v, fmt.Errorf("document %s: migrate from version %d: %w", rec.Kind, rec.Version, err)
		}
		return v, nil
	}
	if err := json.Unmarshal(rec.Value, &v); err != nil {
		return v, fmt.Errorf("document %s: %w", rec.Kind, err)
	}
	return v, nil
}

// docEdit is a document that a commit may write.
type docEdit struct {
	key     DocKey
	value   any // *T
	version int
	history DocHistory
	before  *DocRecord     // nil: absent
	written *DocumentWrite // set by write when there is something to store
}

func (tx *Tx) putDoc(key DocKey, ed *docEdit) {
	if tx.docs == nil {
		tx.docs = map[DocKey]*docEdit{}
	}
	if tx.docs[key] == nil {
		tx.docOrder = append(tx.docOrder, key)
	}
	tx.docs[key] = ed
}

// doc returns the committed record, nil when there is none.
func (tx *Tx) doc(key DocKey) (*DocRecord, error) {
	if rec, ok := tx.t.docs[key]; ok {
		return rec, nil
	}
	if key.Scope == ScopeConversation && tx.t.convs[ConversationID(key.Owner)] == nil {
		return nil, nil // its conversation is made in this commit
	}
	rec, err := tx.e.store.Document(tx.ctx, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("document %s: %w", key.Kind, err)
	}
	var p *DocRecord
	if err == nil {
		p = &rec
	}
	if key.Scope != ScopeGlobal {
		tx.t.mu.Lock()
		tx.t.docs[key] = p
		tx.t.mu.Unlock()
	}
	return p, nil
}

// ownsDoc reports whether the document belongs to the commit's tree.
func (tx *Tx) ownsDoc(key DocKey) error {
	if key.Scope == ScopeConversation && tx.conversation(ConversationID(key.Owner)) == nil ||
		key.Scope == ScopeTask && tx.task(TaskID(key.Owner)) == nil {
		return fmt.Errorf("document %s: its %s %d is not in this tree: %w", key.Kind, key.Scope, key.Owner, ErrNotFound)
	}
	return nil
}

// write makes what is to be stored, nil when nothing changed.
func (ed *docEdit) write(tx *Tx) (*DocumentWrite, error) {
	raw, err := encode(ed.value)
	if err != nil {
		return nil, fmt.Errorf("document %s: %w", ed.key.Kind, err)
	}
	if ed.before != nil && ed.before.Version == ed.version && bytes.Equal(raw, ed.before.Value) {
		return nil, nil
	}
	w := &DocumentWrite{Record: DocRecord{DocKey: ed.key, Version: ed.version, Revision: 1, Value: raw}}
	if ed.before != nil {
		w.Record.Revision = ed.before.Revision + 1
	}
	if ed.key.Scope == ScopeGlobal {
		w.Expect = w.Record.Revision - 1
	}
	if ed.history == Rewindable {
		for i := range tx.entries {
			if tx.entries[i].ConversationID == ConversationID(ed.key.Owner) {
				w.At = tx.entries[i].ID
				break
			}
		}
		if w.At == 0 {
			id, err := tx.id()
			if err != nil {
				return nil, err
			}
			w.At = EntryID(id)
		}
	}
	ed.written = w
	return w, nil
}
