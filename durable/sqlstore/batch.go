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
	for i, c := range b.Claims {
		for _, o := range b.Claims[:i] {
			if o.Scope == c.Scope && o.Key == c.Key {
				return nil, 0, fmt.Errorf("claim %s %q is made twice", c.Scope, c.Key)
			}
		}
		rows = append(rows, claimRow(c))
	}
	for i := range b.Documents {
		w := &b.Documents[i]
		for j := range b.Documents[:i] {
			if b.Documents[j].Record.DocKey == w.Record.DocKey {
				return nil, 0, fmt.Errorf("%s is written twice", describe(w.Record.DocKey))
			}
		}
		r, err := encodeDocument(w)
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
