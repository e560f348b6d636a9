package memstore

import (
	"fmt"

	"github.com/wp-durable/wp-durable/durable"
)

// batch is a durable.Batch in the form in which it is kept.
type batch struct {
	conversations []conversation
	entries       []entry
	tasks         []task
	partials      []durable.PartialWrite
	submissions   []submission
	documents     []durable.DocumentWrite
	claims        []durable.Claim
}

func encodeBatch(in *durable.Batch) (*batch, error) {
	b := &batch{claims: in.Claims, partials: in.Partials}
	for i := range in.Conversations {
		c, err := encodeConversation(&in.Conversations[i])
		if err != nil {
			return nil, err
		}
		b.conversations = append(b.conversations, c)
	}
	for i := range in.Entries {
		e, err := encodeEntry(&in.Entries[i])
		if err != nil {
			return nil, err
		}
		b.entries = append(b.entries, e)
	}
	for i := range in.Tasks {
		t, err := encodeTask(&in.Tasks[i])
		if err != nil {
			return nil, err
		}
		b.tasks = append(b.tasks, t)
	}
	for i := range in.Submissions {
		s, err := encodeSubmission(&in.Submissions[i])
		if err != nil {
			return nil, err
		}
		b.submissions = append(b.submissions, s)
	}
	for _, w := range in.Documents {
		w, err := ownDocument(w)
		if err != nil {
			return nil, err
		}
		b.documents = append(b.documents, w)
	}
	return b, nil
}

// check returns why the batch cannot be stored. The error wraps ErrRejected.
func (s *Store) check(b *batch) error {
	newConversations := map[durable.ConversationID]bool{}
	for _, c := range b.conversations {
		if _, ok := s.conversations[c.id]; ok || newConversations[c.id] {
			return fmt.Errorf("conversation %d exists: %w", c.id, durable.ErrRejected)
		}
		newConversations[c.id] = true
	}
	newEntries := map[durable.EntryID]bool{}
	for _, e := range b.entries {
		if _, ok := s.entries[e.id]; ok || newEntries[e.id] {
			return fmt.Errorf("entry %d exists: %w", e.id, durable.ErrRejected)
		}
		newEntries[e.id] = true
	}
	if err := s.checkRequests(b.submissions); err != nil {
		return err
	}
	if err := s.checkClaims(b.claims); err != nil {
		return err
	}
	return s.checkDocuments(b.documents)
}

// apply stores a batch that check has passed. Terminal tasks come last: what
// the batch writes for them ends with them.
func (s *Store) apply(b *batch) {
	for _, c := range b.conversations {
		s.conversations[c.id] = c
		s.members[c.tree] = insert(s.members[c.tree], c.id)
	}
	for _, e := range b.entries {
		s.putEntry(e)
	}
	for _, sub := range b.submissions {
		s.putSubmission(sub)
	}
	for _, c := range b.claims {
		s.claims[claimKey{c.Scope, c.Key}] = c.Value
	}
	for _, w := range b.documents {
		s.putDocument(w)
	}
	for _, p := range b.partials {
		s.putPartial(p)
	}
	for _, t := range b.tasks {
		s.putTask(t)
	}
}
