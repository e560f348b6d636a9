package durable_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/wp-durable/wp-durable/durable"
)

// history is a store that remembers every commit made through it and checks
// after each one what must hold whatever the engine does. A test that has one
// in its store checks the promises E2.1, E2.5 to E2.7, E3, E6.5, E7.1 to E7.3
// and E8.1 to E8.3 without saying so.
type history struct {
	durable.Store

	mu      sync.Mutex
	err     error // the first violation
	commits int   // without those of running output alone
	outputs int   // those of running output alone
	batches []*durable.Batch
	trees   map[durable.ConversationID]*treeHistory
	// allFollowUps is the engine's setting.
	allFollowUps bool
}

func newHistory(s durable.Store) *history {
	return &history{Store: s, trees: map[durable.ConversationID]*treeHistory{}}
}

// Commit stores a batch and checks what it led to.
func (h *history) Commit(ctx context.Context, b *durable.Batch) (durable.Seq, error) {
	own := cloneJSON(b)
	h.mu.Lock()
	defer h.mu.Unlock()
	seq, err := h.Store.Commit(ctx, b)
	if err != nil {
		return seq, err
	}
	h.batches = append(h.batches, own)
	if len(own.Entries)+len(own.Tasks)+len(own.Submissions)+len(own.Documents)+len(own.Conversations)+len(own.Claims) == 0 {
		h.outputs++
	} else {
		h.commits++
	}
	if own.Fence.Tree == 0 {
		return seq, nil
	}
	t := h.trees[own.Fence.Tree]
	if t == nil {
		t = newTreeHistory()
		t.allFollowUps = h.allFollowUps
		h.trees[own.Fence.Tree] = t
	}
	if verr := t.adopt(own); verr != nil && h.err == nil {
		h.err = fmt.Errorf("commit %d of the history: %w\n%s", len(h.batches), verr, describeBatch(own))
	}
	return seq, nil
}

// check returns the first violation.
func (h *history) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// counts returns how many commits were made, of running output alone and other
// ones.
func (h *history) counts() (commits, outputs int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.commits, h.outputs
}

// submissions returns every submission of the store, by id.
func (h *history) submissions() []durable.SubmissionRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []durable.SubmissionRecord
	for _, t := range h.trees {
		for _, s := range t.subs {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b durable.SubmissionRecord) int { return int(a.ID - b.ID) })
	return out
}

// tasks returns every task of the store, by id.
func (h *history) tasks() []durable.TaskRecord {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []durable.TaskRecord
	for _, t := range h.trees {
		for _, r := range t.tasks {
			out = append(out, *r)
		}
	}
	slices.SortFunc(out, func(a, b durable.TaskRecord) int { return int(a.ID - b.ID) })
	return out
}

// conversations returns the ids of all conversations, ascending.
func (h *history) conversations() []durable.ConversationID {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []durable.ConversationID
	for _, t := range h.trees {
		out = append(out, slices.Collect(maps.Keys(t.convs))...)
	}
	slices.Sort(out)
	return out
}

func cloneJSON[T any](v *T) *T {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	out := new(T)
	if err := json.Unmarshal(raw, out); err != nil {
		panic(err)
	}
	return out
}

func describeBatch(b *durable.Batch) string {
	var buf bytes.Buffer
	for _, e := range b.Entries {
		fmt.Fprintf(&buf, "  entry %d %s of %d by %d\n", e.ID, e.Kind, e.ConversationID, e.ByTaskID)
	}
	for _, t := range b.Tasks {
		fmt.Fprintf(&buf, "  task %d %s of %d, owner %d: %s abort %v\n", t.ID, t.Kind, t.ConversationID, t.Owner, t.State.Status, t.AbortRequested)
	}
	for _, s := range b.Submissions {
		fmt.Fprintf(&buf, "  submission %d %s: %s %s\n", s.ID, s.Type, s.Status, s.Reason)
	}
	return buf.String()
}

// treeHistory is the state of one tree, as its commits made it.
type treeHistory struct {
	highest      int64
	convs        map[durable.ConversationID]durable.ConversationRecord
	tasks        map[durable.TaskID]*durable.TaskRecord
	subs         map[durable.SubmissionID]*durable.SubmissionRecord
	entries      map[durable.EntryID]*durable.Entry
	last         map[durable.ConversationID]durable.EntryID
	results      map[durable.TaskID]int // pi.tool-result entries by task
	requests     map[string]durable.SubmissionID
	allFollowUps bool
}

func newTreeHistory() *treeHistory {
	return &treeHistory{
		convs: map[durable.ConversationID]durable.ConversationRecord{}, tasks: map[durable.TaskID]*durable.TaskRecord{},
		subs: map[durable.SubmissionID]*durable.SubmissionRecord{}, entries: map[durable.EntryID]*durable.Entry{},
		last: map[durable.ConversationID]durable.EntryID{}, results: map[durable.TaskID]int{}, requests: map[string]durable.SubmissionID{},
	}
}

// adopt checks a commit against the state before it, applies it and checks the
// state after it.
func (t *treeHistory) adopt(b *durable.Batch) error {
	if err := t.checkIDs(b); err != nil {
		return err
	}
	placements := t.placements(b)
	for _, c := range b.Conversations {
		t.convs[c.ID] = c
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		if e.ID <= t.last[e.ConversationID] {
			return fmt.Errorf("entry %d is not above entry %d of its conversation (E3)", e.ID, t.last[e.ConversationID])
		}
		t.last[e.ConversationID], t.entries[e.ID] = e.ID, e
		if e.Kind == durable.KindToolResult {
			t.results[e.ByTaskID]++
		}
	}
	before := maps.Clone(t.tasks)
	for i := range b.Tasks {
		next := &b.Tasks[i]
		if err := checkTask(t.tasks[next.ID], next); err != nil {
			return err
		}
		t.tasks[next.ID] = next
	}
	for i := range b.Tasks {
		if before[b.Tasks[i].ID] == nil {
			if err := t.checkNewTask(&b.Tasks[i], before); err != nil {
				return err
			}
		}
	}
	for i := range b.Submissions {
		next := &b.Submissions[i]
		if err := t.checkSubmission(t.subs[next.ID], next); err != nil {
			return err
		}
		t.subs[next.ID] = next
	}
	for _, p := range placements {
		if err := p.check(t); err != nil {
			return err
		}
	}
	return t.checkState()
}

// checkIDs: ids of a tree increase in commit order (E3).
func (t *treeHistory) checkIDs(b *durable.Batch) error {
	var ids []int64
	for _, c := range b.Conversations {
		ids = append(ids, int64(c.ID))
	}
	for _, e := range b.Entries {
		ids = append(ids, int64(e.ID))
	}
	for _, r := range b.Tasks {
		if t.tasks[r.ID] == nil {
			ids = append(ids, int64(r.ID))
		}
	}
	for _, s := range b.Submissions {
		if t.subs[s.ID] == nil {
			ids = append(ids, int64(s.ID))
		}
	}
	slices.Sort(ids)
	for i, id := range ids {
		if id <= t.highest {
			return fmt.Errorf("id %d was given out, but %d is stored already (E3)", id, t.highest)
		}
		if i > 0 && ids[i-1] == id {
			return fmt.Errorf("id %d was given out twice (E3)", id)
		}
	}
	if len(ids) > 0 {
		t.highest = ids[len(ids)-1]
	}
	return nil
}

// checkTask compares a task with what was stored before, nil for nothing.
func checkTask(before, now *durable.TaskRecord) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("task %d (%s): %s", now.ID, now.Kind, fmt.Sprintf(format, args...))
	}
	st := &now.State
	ended := st.Status == durable.TaskCompleting || st.Status == durable.TaskTerminal
	switch {
	case ended != (st.Outcome != nil):
		return fail("%s with outcome %v", st.Status, st.Outcome)
	case (st.Status == durable.TaskTerminal) != (now.EndedAt != nil):
		return fail("%s with endedAt %v", st.Status, now.EndedAt)
	case (st.Status == durable.TaskWaiting) != (st.Wait != nil):
		return fail("%s with wait %v", st.Status, st.Wait)
	case !ended && len(st.Checkpoint) == 0:
		return fail("%s without a checkpoint", st.Status)
	case st.Status == durable.TaskTerminal && len(now.Memos) > 0:
		return fail("memos outlive it (E6.4)")
	}
	if before == nil {
		if st.Status != durable.TaskPending && st.Status != durable.TaskWaiting {
			return fail("begins as %s", st.Status)
		}
		return nil
	}
	switch {
	case before.State.Status == durable.TaskTerminal:
		return fail("written after it was terminal")
	case before.State.Status == durable.TaskCompleting && !ended:
		return fail("went from completing to %s", st.Status)
	case before.State.Outcome != nil && !equalJSON(before.State.Outcome, st.Outcome):
		return fail("its outcome changed")
	case before.State.Status != durable.TaskPending && st.Status == durable.TaskPending:
		return fail("went back to pending")
	case before.Kind != now.Kind, before.ConversationID != now.ConversationID, before.TreeID != now.TreeID,
		before.Owner != now.Owner, before.Background != now.Background, !before.CreatedAt.Equal(now.CreatedAt):
		return fail("what never changes has changed (E3)")
	case before.AbortRequested && !now.AbortRequested:
		return fail("its abort mark was taken back (E7.3)")
	}
	if st.Status == durable.TaskTerminal {
		return nil
	}
	for name, raw := range before.Memos {
		if !bytes.Equal(raw, now.Memos[name]) {
			return fail("memo %s changed (E6.4)", name)
		}
	}
	return nil
}

// checkNewTask: new work needs a live owner (E7.1).
func (t *treeHistory) checkNewTask(r *durable.TaskRecord, before map[durable.TaskID]*durable.TaskRecord) error {
	if _, ok := t.convs[r.ConversationID]; !ok {
		return fmt.Errorf("task %d belongs to conversation %d, which does not exist", r.ID, r.ConversationID)
	}
	if r.Owner == 0 {
		return nil
	}
	owner := before[r.Owner]
	if owner == nil {
		owner = t.tasks[r.Owner]
	}
	switch {
	case owner == nil:
		return fmt.Errorf("task %d: its owner %d does not exist (E7.1)", r.ID, r.Owner)
	case owner.ConversationID != r.ConversationID:
		return fmt.Errorf("task %d: its owner %d is of another conversation (E7.1)", r.ID, r.Owner)
	case owner.AbortRequested || owner.State.Status == durable.TaskCompleting || owner.State.Status == durable.TaskTerminal:
		return fmt.Errorf("task %d: its owner %d is ending (E7.1)", r.ID, r.Owner)
	}
	return nil
}

func (t *treeHistory) checkSubmission(before, now *durable.SubmissionRecord) error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("submission %d: %s", now.ID, fmt.Sprintf(format, args...))
	}
	settled := now.Status == durable.SubmissionDone || now.Status == durable.SubmissionUnanswered
	switch {
	case settled != (now.SettledAt != nil):
		return fail("%s with settledAt %v", now.Status, now.SettledAt)
	case (now.Status == durable.SubmissionQueued) != (now.Queued != nil):
		return fail("%s with queued content %v", now.Status, now.Queued != nil)
	case (now.Status == durable.SubmissionUnanswered) != (now.Reason != ""):
		return fail("%s with reason %q (E2.7)", now.Status, now.Reason)
	}
	if before != nil {
		switch {
		case before.SettledAt != nil:
			return fail("settled twice (E2.7)")
		case before.Status == durable.SubmissionPlaced && now.Status == durable.SubmissionQueued:
			return fail("taken back from the transcript")
		case before.EntryID != 0 && before.EntryID != now.EntryID:
			return fail("placed twice, as entry %d and %d (E2.5)", before.EntryID, now.EntryID)
		case !bytes.Equal(before.ContentHash, now.ContentHash) || before.RequestID != now.RequestID || before.Type != now.Type:
			return fail("what never changes has changed (E3)")
		case !equalJSON(before.HostData, now.HostData):
			return fail("its host data changed from %s to %s (E4.8)", before.HostData, now.HostData)
		}
	} else if now.RequestID != "" {
		key := fmt.Sprintf("%d %s", now.ConversationID, now.RequestID)
		if other, ok := t.requests[key]; ok {
			return fail("its request id is that of submission %d (E2.5)", other)
		}
		t.requests[key] = now.ID
	}
	if now.Type == durable.SubmissionWrite {
		if now.Status == durable.SubmissionDone && t.entries[now.EntryID] == nil {
			return fail("done without an entry")
		}
		return nil
	}
	if now.EntryID != 0 {
		e := t.entries[now.EntryID]
		if e == nil || e.Kind != durable.KindUser || e.ConversationID != now.ConversationID {
			return fail("its entry %d is not a user entry of the conversation", now.EntryID)
		}
		run := t.tasks[now.TaskID]
		if run == nil || run.Kind != "pi.generation" || run.ConversationID != now.ConversationID {
			return fail("its run %d is not a generation of the conversation", now.TaskID)
		}
	}
	if now.Status != durable.SubmissionDone {
		return nil
	}
	a := t.entries[now.AnswerEntryID]
	switch {
	case a == nil || a.Kind != durable.KindAssistant || a.ConversationID != now.ConversationID:
		return fail("its answer %d is not an assistant entry of the conversation", now.AnswerEntryID)
	case a.ByTaskID != now.TaskID:
		return fail("its answer %d was written by task %d, not by its run %d", a.ID, a.ByTaskID, now.TaskID)
	case a.ID <= now.EntryID:
		return fail("its answer %d is older than it", a.ID)
	}
	return nil
}

// foreground reports whether a task counts as busy (E8.2).
func (t *treeHistory) foreground(r *durable.TaskRecord) bool {
	for r != nil {
		if r.Background {
			return false
		}
		r = t.tasks[r.Owner]
	}
	return true
}

func (t *treeHistory) busy(id durable.ConversationID) bool {
	for _, r := range t.tasks {
		if r.ConversationID == id && r.State.Status != durable.TaskTerminal && t.foreground(r) {
			return true
		}
	}
	return false
}

// ownerOf returns the task above a task, through its conversation too.
func (t *treeHistory) ownerOf(r *durable.TaskRecord) *durable.TaskRecord {
	if r.Owner != 0 {
		return t.tasks[r.Owner]
	}
	if c := t.convs[r.ConversationID]; c.Owner != nil {
		return t.tasks[c.Owner.TaskID]
	}
	return nil
}

func ending(r *durable.TaskRecord) bool {
	return r.AbortRequested || r.State.Status == durable.TaskCompleting && r.State.Outcome.Status != durable.OutcomeCompleted
}

// checkState checks what holds after every commit.
func (t *treeHistory) checkState() error {
	for id, r := range t.tasks {
		want := 0
		if o := r.State.Outcome; o != nil && r.Kind == "pi.tool" && o.Status != durable.OutcomeFaulted && o.Status != durable.OutcomeOrphaned {
			want = 1 // in the commit with which it ends, or begins to
		}
		if t.results[id] != want {
			return fmt.Errorf("task %d (%s), %s, has %d results, want %d (E2.1, E2.8)", id, r.Kind, r.State.Status, t.results[id], want)
		}
		if r.State.Status == durable.TaskTerminal {
			continue
		}
		if owner := t.ownerOf(r); owner != nil && !r.Background {
			switch {
			case owner.State.Status == durable.TaskTerminal && r.Owner != 0:
				return fmt.Errorf("task %d lives below the terminal task %d (E7.2)", id, owner.ID)
			case owner.State.Status != durable.TaskTerminal && ending(owner) && !r.AbortRequested:
				return fmt.Errorf("task %d lives unmarked below task %d, which is to end (E7.3)", id, owner.ID)
			}
		}
		if w := r.State.Wait; w != nil && len(w.On) > 0 {
			done := true
			for _, on := range w.On {
				done = done && t.tasks[on] != nil && t.tasks[on].State.Status == durable.TaskTerminal
			}
			if done {
				return fmt.Errorf("task %d waits for tasks that have ended (E6.5)", id)
			}
		}
	}
	for id, s := range t.subs {
		switch s.Status {
		case durable.SubmissionPlaced:
			if run := t.tasks[s.TaskID]; run.State.Outcome != nil {
				return fmt.Errorf("submission %d is open, its run %d has ended (E2.7)", id, run.ID)
			}
		case durable.SubmissionQueued:
			c := t.convs[s.ConversationID]
			if c.Owner != nil {
				if o := t.tasks[c.Owner.TaskID]; o != nil && o.State.Status != durable.TaskTerminal && (ending(o) || o.State.Outcome != nil) {
					continue // waits for its owner's end
				}
			}
			if !t.busy(s.ConversationID) {
				return fmt.Errorf("submission %d waits in an idle conversation (E8.2)", id)
			}
		}
	}
	return nil
}

// placement is what a commit placed in one conversation.
type placement struct {
	conv    durable.ConversationID
	queue   []*durable.SubmissionRecord // the inbox before, by id
	busy    bool                        // before
	changed map[durable.SubmissionID]*durable.SubmissionRecord
	added   map[durable.SubmissionID]bool // admitted in this commit
	fresh   map[durable.TaskID]bool       // tasks made in this commit
	reset   bool
}

// placements collects, before a commit is applied, what is needed to judge the
// order in which it places submissions.
func (t *treeHistory) placements(b *durable.Batch) map[durable.ConversationID]*placement {
	out := map[durable.ConversationID]*placement{}
	for i := range b.Submissions {
		s := &b.Submissions[i]
		p := out[s.ConversationID]
		if p == nil {
			p = &placement{
				conv: s.ConversationID, busy: t.busy(s.ConversationID),
				changed: map[durable.SubmissionID]*durable.SubmissionRecord{}, added: map[durable.SubmissionID]bool{}, fresh: map[durable.TaskID]bool{},
			}
			for _, q := range t.subs {
				if q.ConversationID == s.ConversationID && q.Status == durable.SubmissionQueued {
					p.queue = append(p.queue, q)
				}
			}
			slices.SortFunc(p.queue, func(a, b *durable.SubmissionRecord) int { return int(a.ID - b.ID) })
			out[s.ConversationID] = p
		}
		p.changed[s.ID] = s
		p.added[s.ID] = t.subs[s.ID] == nil
	}
	for _, p := range out {
		for _, r := range b.Tasks {
			if t.tasks[r.ID] == nil {
				p.fresh[r.ID] = true
			}
		}
		for _, q := range p.queue {
			p.reset = p.reset || q.Queued.Entry != nil && q.Queued.Entry.Kind == durable.KindReset
		}
	}
	return out
}

// check judges the order of E8.1 and E8.2.
func (p *placement) check(t *treeHistory) error {
	for id, s := range p.changed {
		if p.added[id] && s.Status == durable.SubmissionQueued && !p.busy && len(p.queue) == 0 {
			return fmt.Errorf("submission %d was queued in an idle conversation (E8.1)", id)
		}
	}
	var steers, followUps, writes []*durable.SubmissionRecord // still in the inbox at the boundary
	for _, q := range p.queue {
		now := p.changed[q.ID]
		if now != nil && now.EntryID == 0 && now.SettledAt != nil && now.Reason != durable.ReasonStale {
			continue // taken back in this commit
		}
		switch {
		case q.Type == durable.SubmissionWrite:
			writes = append(writes, q)
		case q.Queued.WhenBusy == durable.Steer:
			steers = append(steers, q)
		default:
			followUps = append(followUps, q)
		}
	}
	placed := func(list []*durable.SubmissionRecord) (n int, final bool) {
		for _, q := range list {
			if now := p.changed[q.ID]; now != nil && now.Status != durable.SubmissionQueued {
				n++
				final = final || p.fresh[now.TaskID]
			}
		}
		return n, final
	}
	nw, _ := placed(writes)
	ns, finalSteers := placed(steers)
	nf, _ := placed(followUps)
	if nw+ns+nf == 0 {
		return nil
	}
	final := finalSteers || nf > 0
	switch {
	case nw != len(writes):
		return fmt.Errorf("conversation %d: %d of %d writes were placed (E8.2)", p.conv, nw, len(writes))
	case ns != 0 && ns != len(steers):
		return fmt.Errorf("conversation %d: %d of %d steers were placed (E8.2)", p.conv, ns, len(steers))
	case nf > 0 && len(steers) > 0:
		return fmt.Errorf("conversation %d: a follow-up was placed before a steer (E8.2)", p.conv)
	case nf > 0 && t.allFollowUps && nf != len(followUps):
		return fmt.Errorf("conversation %d: %d of %d follow-ups were placed (E8.2)", p.conv, nf, len(followUps))
	case nf > 0 && !t.allFollowUps && (nf != 1 || p.changed[followUps[0].ID] == nil):
		return fmt.Errorf("conversation %d: not the oldest follow-up was placed, or %d of them (E8.2)", p.conv, nf)
	case !final && ns == 0 && len(steers) > 0 && !p.reset:
		return fmt.Errorf("conversation %d: steers were left out after a tool round (E8.2)", p.conv)
	}
	var order []durable.EntryID
	for _, list := range [][]*durable.SubmissionRecord{writes, steers, followUps} {
		for _, q := range list {
			if now := p.changed[q.ID]; now != nil && now.EntryID != 0 {
				order = append(order, now.EntryID)
			}
		}
	}
	if !slices.IsSorted(order) {
		return fmt.Errorf("conversation %d: placed in the order %v (E8.2)", p.conv, order)
	}
	return nil
}

func equalJSON(a, b any) bool {
	x, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return bytes.Equal(x, y)
}
