package storetest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/wp-durable/wp-durable/durable"
)

// reference is a store as plain maps, which the random scripts compare with.
type reference struct {
	conversations []durable.ConversationRecord
	entries       map[durable.EntryID]durable.Entry
	tasks         map[durable.TaskID]durable.TaskRecord
	partials      map[durable.TaskID][][]byte
	submissions   map[durable.SubmissionID]durable.SubmissionRecord
	docs          map[durable.DocKey]durable.DocRecord // Value nil: deleted
	history       map[durable.DocKey]map[durable.EntryID]durable.DocRecord
	claims        map[[2]string]int64
}

func newModel() *reference {
	return &reference{
		entries:     map[durable.EntryID]durable.Entry{},
		tasks:       map[durable.TaskID]durable.TaskRecord{},
		partials:    map[durable.TaskID][][]byte{},
		submissions: map[durable.SubmissionID]durable.SubmissionRecord{},
		docs:        map[durable.DocKey]durable.DocRecord{},
		history:     map[durable.DocKey]map[durable.EntryID]durable.DocRecord{},
		claims:      map[[2]string]int64{},
	}
}

// check returns why a store must refuse the batch, or nil.
func (m *reference) check(b *durable.Batch) error {
	seen := map[any]bool{}
	once := func(key any) error {
		if seen[key] {
			return fmt.Errorf("%v twice", key)
		}
		seen[key] = true
		return nil
	}
	for _, c := range b.Claims {
		key := [2]string{c.Scope, c.Key}
		if value, ok := m.claims[key]; ok {
			return &durable.ConflictError{Claim: &durable.Claim{Scope: c.Scope, Key: c.Key, Value: value}}
		}
		if err := once(key); err != nil {
			return err
		}
	}
	for _, w := range b.Documents {
		if err := once(w.Record.DocKey); err != nil {
			return err
		}
		stored, _ := m.document(w.Record.DocKey)
		if w.Record.Scope == durable.ScopeGlobal && w.Expect >= 0 && stored.Revision != w.Expect {
			return &durable.ConflictError{Document: &stored}
		}
	}
	for _, c := range b.Conversations {
		if slices.ContainsFunc(m.conversations, func(o durable.ConversationRecord) bool { return o.ID == c.ID }) {
			return fmt.Errorf("conversation %d exists", c.ID)
		}
		if err := once(c.ID); err != nil {
			return err
		}
	}
	for _, e := range b.Entries {
		if _, ok := m.entries[e.ID]; ok {
			return fmt.Errorf("entry %d exists", e.ID)
		}
		if err := once(e.ID); err != nil {
			return err
		}
	}
	requests := map[string]durable.SubmissionID{}
	for _, s := range b.Submissions {
		if s.RequestID == "" {
			continue
		}
		key := fmt.Sprintf("%d %s", s.ConversationID, s.RequestID)
		stored, ok := m.byRequest(s.ConversationID, s.RequestID)
		if other, fresh := requests[key]; ok && stored.ID != s.ID || fresh && other != s.ID {
			return fmt.Errorf("request id %q is taken", s.RequestID)
		}
		requests[key] = s.ID
	}
	return nil
}

func (m *reference) apply(b *durable.Batch) {
	m.conversations = append(m.conversations, b.Conversations...)
	for _, e := range b.Entries {
		m.entries[e.ID] = e
	}
	for _, s := range b.Submissions {
		m.submissions[s.ID] = s
	}
	for _, c := range b.Claims {
		m.claims[[2]string{c.Scope, c.Key}] = c.Value
	}
	for _, w := range b.Documents {
		key := w.Record.DocKey
		old := m.docs[key]
		switch {
		case !w.Delete:
			w.Record.Revision = old.Revision + 1
			m.docs[key] = w.Record
			if w.At != 0 {
				if m.history[key] == nil {
					m.history[key] = map[durable.EntryID]durable.DocRecord{}
				}
				m.history[key][w.At] = w.Record
			}
			continue
		case key.Scope != durable.ScopeGlobal:
			delete(m.docs, key)
		case old.Value != nil:
			m.docs[key] = durable.DocRecord{DocKey: key, Revision: old.Revision + 1}
		}
		delete(m.history, key)
	}
	for _, p := range b.Partials {
		if p.Reset {
			delete(m.partials, p.TaskID)
		}
		if len(p.Data) > 0 {
			m.partials[p.TaskID] = append(m.partials[p.TaskID], p.Data)
		}
	}
	for _, t := range b.Tasks {
		m.tasks[t.ID] = t
		if t.State.Status == durable.TaskTerminal {
			delete(m.partials, t.ID)
			ended := func(k durable.DocKey) bool { return k.Scope == durable.ScopeTask && k.Owner == int64(t.ID) }
			maps.DeleteFunc(m.docs, func(k durable.DocKey, _ durable.DocRecord) bool { return ended(k) })
			maps.DeleteFunc(m.history, func(k durable.DocKey, _ map[durable.EntryID]durable.DocRecord) bool { return ended(k) })
		}
	}
}

// filter returns the wanted values in order, at most limit of them; 0 is all.
func filter[T any](all []T, want func(T) bool, order func(a, b T) int, limit int) []T {
	var out []T
	for _, v := range all {
		if want(v) {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, order)
	if limit > 0 && len(out) > limit {
		out = out[:limit]
	}
	return out
}

func values[K comparable, V any](m map[K]V) []V { return slices.Collect(maps.Values(m)) }

func direction[T any](descending bool, order func(a, b T) int) func(a, b T) int {
	if descending {
		return func(a, b T) int { return order(b, a) }
	}
	return order
}

func (m *reference) tree(tree durable.ConversationID) []durable.ConversationRecord {
	return filter(m.conversations, func(c durable.ConversationRecord) bool { return c.TreeID == tree },
		func(a, b durable.ConversationRecord) int { return cmp.Compare(a.ID, b.ID) }, 0)
}

func (m *reference) conversationsOf(q durable.ConversationQuery) []durable.ConversationRecord {
	order := direction(q.Descending, func(a, b durable.ConversationRecord) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	after := durable.ConversationRecord{ID: durable.ConversationID(q.After.ID), CreatedAt: q.After.CreatedAt}
	return filter(m.conversations, func(c durable.ConversationRecord) bool {
		return (q.Parent == 0 || c.Owner != nil && c.Owner.ConversationID == q.Parent) &&
			(q.After.ID == 0 || order(after, c) < 0)
	}, order, q.Limit)
}

func (m *reference) entriesOf(q durable.EntryQuery) []durable.Entry {
	return filter(values(m.entries), func(e durable.Entry) bool {
		return e.ConversationID == q.ConversationID && e.ID >= q.From && (q.To == 0 || e.ID <= q.To)
	}, direction(q.Descending, func(a, b durable.Entry) int { return cmp.Compare(a.ID, b.ID) }), q.Limit)
}

func (m *reference) newestHead(id durable.ConversationID, upTo durable.EntryID) (durable.Entry, bool) {
	all := filter(m.entriesOf(durable.EntryQuery{ConversationID: id, To: upTo, Descending: true}),
		func(e durable.Entry) bool { return e.Head != 0 }, func(a, b durable.Entry) int { return cmp.Compare(b.ID, a.ID) }, 1)
	if len(all) == 0 {
		return durable.Entry{}, false
	}
	return all[0], true
}

func (m *reference) tasksOf(q durable.TaskQuery) []durable.TaskRecord {
	order := direction(q.Descending, func(a, b durable.TaskRecord) int { return cmp.Compare(a.ID, b.ID) })
	return filter(values(m.tasks), func(t durable.TaskRecord) bool {
		return (q.TreeID == 0 || t.TreeID == q.TreeID) && (q.ConversationID == 0 || t.ConversationID == q.ConversationID) &&
			(!q.Live || t.State.Status != durable.TaskTerminal) && (q.After == 0 || order(durable.TaskRecord{ID: q.After}, t) < 0)
	}, order, q.Limit)
}

func (m *reference) liveTrees(after durable.ConversationID, limit int) []durable.ConversationID {
	trees := map[durable.ConversationID]bool{}
	for _, t := range m.tasks {
		if t.State.Status != durable.TaskTerminal && t.TreeID > after {
			trees[t.TreeID] = true
		}
	}
	out := slices.Sorted(maps.Keys(trees))
	return out[:min(limit, len(out))]
}

func (m *reference) open(tree durable.ConversationID) []durable.SubmissionRecord {
	return filter(values(m.submissions), func(s durable.SubmissionRecord) bool {
		return (s.Status == durable.SubmissionQueued || s.Status == durable.SubmissionPlaced) &&
			slices.ContainsFunc(m.conversations, func(c durable.ConversationRecord) bool { return c.ID == s.ConversationID && c.TreeID == tree })
	}, func(a, b durable.SubmissionRecord) int { return cmp.Compare(a.ID, b.ID) }, 0)
}

func (m *reference) byRequest(c durable.ConversationID, request string) (durable.SubmissionRecord, bool) {
	for _, s := range m.submissions {
		if s.ConversationID == c && s.RequestID == request && request != "" {
			return s, true
		}
	}
	return durable.SubmissionRecord{}, false
}

func (m *reference) document(key durable.DocKey) (durable.DocRecord, bool) {
	d, ok := m.docs[key]
	if !ok || d.Value == nil {
		return durable.DocRecord{DocKey: key}, false
	}
	return d, true
}

func (m *reference) asOf(key durable.DocKey, at durable.EntryID) (durable.DocRecord, bool) {
	best := durable.EntryID(0)
	for place := range m.history[key] {
		if place <= at {
			best = max(best, place)
		}
	}
	return m.history[key][best], best > 0
}

func (m *reference) documentsOf(want func(durable.DocKey) bool) []durable.DocRecord {
	return filter(values(m.docs), func(d durable.DocRecord) bool { return d.Value != nil && want(d.DocKey) }, byKey, 0)
}

func byKey(a, b durable.DocRecord) int {
	return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key))
}
