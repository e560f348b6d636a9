package sqlstore

import (
	"fmt"

	"github.com/wp-durable/wp-durable/durable"
)

// row is one record of a batch, ready to be written.
type row interface {
	write(t *tx) error
}

// encodeBatch turns a batch into rows, in the order in which they are written:
// first what may lose against another batch, last the terminal tasks, because
// what the batch writes for them ends with them. It returns about how many
// bytes they hold.
func encodeBatch(b *durable.Batch) (rows []row, size int, err error) {
	rows = make([]row, 0, len(b.Claims)+len(b.Documents)+len(b.Conversations)+len(b.Entries)+
		len(b.Submissions)+len(b.Partials)+len(b.Tasks))
	if c, ok := twice(b.Claims, func(c *durable.Claim) [2]string { return [2]string{c.Scope, c.Key} }); ok {
		return nil, 0, fmt.Errorf("claim %s %q is made twice", c.Scope, c.Key)
	}
	for _, c := range b.Claims {
		rows = append(rows, claimRow(c))
	}
	if w, ok := twice(b.Documents, func(w *durable.DocumentWrite) durable.DocKey { return w.Record.DocKey }); ok {
		return nil, 0, fmt.Errorf("%s is written twice", describe(w.Record.DocKey))
	}
	for i := range b.Documents {
		r, err := encodeDocument(&b.Documents[i])
		if err != nil {
			return nil, 0, err
		}
		rows, size = append(rows, r), size+len(r.value)
	}
	for i := range b.Conversations {
		r, err := encodeConversation(&b.Conversations[i])
		if err != nil {
			return nil, 0, err
		}
		rows, size = append(rows, r), size+len(r.record)
	}
	for i := range b.Entries {
		r, err := encodeEntry(&b.Entries[i])
		if err != nil {
			return nil, 0, err
		}
		rows, size = append(rows, r), size+len(r.record)
	}
	for i := range b.Submissions {
		r, err := encodeSubmission(&b.Submissions[i])
		if err != nil {
			return nil, 0, err
		}
		rows, size = append(rows, r), size+len(r.record)
	}
	for i := range b.Partials {
		p := partialRow(b.Partials[i])
		rows, size = append(rows, &p), size+len(p.Data)
	}
	for i := range b.Tasks {
		r, err := encodeTask(&b.Tasks[i])
		if err != nil {
			return nil, 0, err
		}
		rows, size = append(rows, r), size+len(r.record)
	}
	return rows, size, nil
}

// twice returns a value whose key another one has before it.
func twice[T any, K comparable](all []T, key func(*T) K) (v T, ok bool) {
	if len(all) < 2 {
		return v, false
	}
	seen := make(map[K]bool, len(all))
	for i := range all {
		k := key(&all[i])
		if seen[k] {
			return all[i], true
		}
		seen[k] = true
	}
	return v, false
}
