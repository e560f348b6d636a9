package durable

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Tx stages the writes of one commit. It is handed to the callback of
// [Engine.Update], of [TaskRun.Commit] and of the others that commit, sees
// committed state plus its own writes, and ends with the callback: a later use
// fails with [ErrTxDone]. It belongs to the callback's goroutine.
type Tx struct {
	e    *Engine
	t    *tree
	ctx  context.Context // of the callback, marked as inside the line
	at   time.Time
	by   TaskID // the task that commits, 0 for none
	done bool

	convs    []*ConversationRecord
	entries  []Entry
	tasks    map[TaskID]*TaskRecord
	subs     map[SubmissionID]*SubmissionRecord
	docs     map[DocKey]*docEdit
	docOrder []DocKey
	partials []PartialWrite
	claims   []Claim
	events   []stagedEvent
	settled  []SubmissionID // newly settled, OnSettle not yet called

	liveCache []*TaskRecord       // what live returned, nil when a task was staged since
	openCache []*SubmissionRecord // the same for openSubs
}

// stagedEvent is an event that is published when the commit is stored. That of
// a new entry names its place among the commit's entries, from 1.
type stagedEvent struct {
	conversation ConversationID
	kind         EventType
	data         any
	entry        int
}

// Now is the time of the commit, the same for the whole callback.
func (tx *Tx) Now() time.Time { return tx.at }

func (tx *Tx) check() error {
	if tx.done {
		return ErrTxDone
	}
	return nil
}

func (tx *Tx) id() (int64, error) {
	id, err := tx.e.ids.take(tx.ctx)
	if err == nil && id <= tx.t.highest {
		// Another node wrote the tree with ids of a later block.
		id, err = tx.e.ids.above(tx.ctx, tx.t.highest)
	}
	return id, err
}

// emit stages an event, published when the commit is stored.
func (tx *Tx) emit(id ConversationID, kind EventType, data any) {
	tx.events = append(tx.events, stagedEvent{conversation: id, kind: kind, data: data})
}

// emitSub stages the event of a submission as it is staged now.
func (tx *Tx) emitSub(s *SubmissionRecord) {
	view := *s
	view.Queued, view.ContentHash = nil, nil
	tx.emit(s.ConversationID, EventSubmission, SubmissionEvent{ConversationID: s.ConversationID, SubmissionID: s.ID, Submission: &view})
}

// conversation returns a conversation of the tree, committed or staged.
func (tx *Tx) conversation(id ConversationID) *ConversationRecord {
	for _, c := range tx.convs {
		if c.ID == id {
			return c
		}
	}
	if c := tx.t.convs[id]; c != nil {
		return &c.rec
	}
	return nil
}

// CreateConversation makes a conversation owned by a task of the tree, with
// its owner's agent.
func (tx *Tx) CreateConversation(owner TaskID) (ConversationID, error) {
	if err := tx.check(); err != nil {
		return 0, err
	}
	rec := tx.task(owner)
	if rec == nil {
		return 0, fmt.Errorf("create conversation: owner task %d: %w", owner, ErrNotFound)
	}
	if err := ownable(rec); err != nil {
		return 0, fmt.Errorf("create conversation: %w", err)
	}
	id, err := tx.id()
	if err != nil {
		return 0, err
	}
	tx.convs = append(tx.convs, &ConversationRecord{
		ID: ConversationID(id), TreeID: tx.t.id, CreatedAt: tx.at,
		Owner: &Owner{ConversationID: rec.ConversationID, TaskID: owner},
	})
	settings, err := agentDoc.Read(tx, int64(rec.ConversationID))
	if err != nil {
		return 0, err
	}
	mine, err := agentDoc.Edit(tx, id)
	if err != nil {
		return 0, err
	}
	*mine = settings
	return ConversationID(id), nil
}

// ownable reports whether new work may be given to a task (E7.1).
func ownable(rec *TaskRecord) error {
	switch {
	case rec.State.Status == TaskCompleting, rec.State.Status == TaskTerminal, rec.AbortRequested:
		return fmt.Errorf("task %d: %w", rec.ID, ErrOwnerEnded)
	}
	return nil
}

// AppendEntry writes an entry of a host's own kind. Kinds that start with
// "pi." are refused.
func (tx *Tx) AppendEntry(id ConversationID, spec EntrySpec) (EntryID, error) {
	if err := tx.check(); err != nil {
		return 0, err
	}
	if err := validateEntry(&spec); err != nil {
		return 0, err
	}
	if err := tx.checkHead(id, spec.Head); err != nil {
		return 0, err
	}
	return tx.appendEntry(id, *cloneSpec(&spec))
}

// checkHead refuses a head that is not an entry of the past, or that lies
// where the model no longer looks.
func (tx *Tx) checkHead(id ConversationID, head EntryID) error {
	if head == 0 {
		return nil
	}
	if head < 0 || int64(head) > tx.t.highest && !tx.staged(head) {
		return fmt.Errorf("entry: head %d is not an entry: %w", head, ErrInvalid)
	}
	stale, err := tx.stale(id, head)
	if err == nil && stale {
		err = fmt.Errorf("entry: head %d lies before the active range: %w", head, ErrInvalid)
	}
	return err
}

func (tx *Tx) staged(id EntryID) bool {
	for i := range tx.entries {
		if tx.entries[i].ID == id {
			return true
		}
	}
	return false
}

func validateEntry(spec *EntrySpec) error {
	if spec.Kind == "" {
		return fmt.Errorf("entry: kind is empty: %w", ErrInvalid)
	}
	if strings.HasPrefix(spec.Kind, "pi.") {
		return fmt.Errorf("entry: kind %q: kinds that start with pi. are the engine's: %w", spec.Kind, ErrInvalid)
	}
	return validateEntryContent(spec)
}

func validateEntryContent(spec *EntrySpec) error {
	if len(spec.Data) > 0 && !json.Valid(spec.Data) {
		return fmt.Errorf("entry: data is not JSON: %w", ErrInvalid)
	}
	if spec.Head < 0 {
		return fmt.Errorf("entry: head %d is negative: %w", spec.Head, ErrInvalid)
	}
	if err := validateMessages("model", spec.Model); err != nil {
		return err
	}
	for i, ed := range spec.Edits {
		switch {
		case ed.Target == 0:
			return fmt.Errorf("entry: edits[%d]: no target: %w", i, ErrInvalid)
		case ed.Action != EditOmit && ed.Action != EditReplace:
			return fmt.Errorf("entry: edits[%d]: action %q is unknown: %w", i, ed.Action, ErrInvalid)
		}
		if err := validateMessages(fmt.Sprintf("edits[%d].messages", i), ed.Messages); err != nil {
			return err
		}
	}
	return nil
}

func validateMessages(where string, messages []model.Message) error {
	for i := range messages {
		m := &messages[i]
		switch m.Role {
		case model.RoleUser, model.RoleAssistant, model.RoleToolResult, model.RoleSystem:
		default:
			return fmt.Errorf("entry: %s[%d]: role %q is unknown: %w", where, i, m.Role, ErrInvalid)
		}
		if len(m.Details) > 0 && !json.Valid(m.Details) {
			return fmt.Errorf("entry: %s[%d]: details are not JSON: %w", where, i, ErrInvalid)
		}
		for _, t := range m.ToolsAdded {
			if !json.Valid(t.Parameters) {
				return fmt.Errorf("entry: %s[%d]: parameters of tool %q are not JSON: %w", where, i, t.Name, ErrInvalid)
			}
		}
		for j := range m.Content {
			if err := validateBlock(&m.Content[j]); err != nil {
				return fmt.Errorf("entry: %s[%d].content[%d]: %w", where, i, j, err)
			}
		}
	}
	return nil
}

func validateBlock(b *model.Block) error {
	switch b.Type {
	case model.BlockText:
		if !utf8.ValidString(b.Text) {
			return fmt.Errorf("text is not valid UTF-8: %w", ErrInvalid)
		}
	case model.BlockImage:
		if err := model.CheckImage(b.MimeType, b.Data); err != nil {
			return fmt.Errorf("%v: %w", err, ErrInvalid)
		}
	case model.BlockThinking:
	case model.BlockToolCall:
		if len(b.Arguments) > 0 && !json.Valid(b.Arguments) {
			return fmt.Errorf("arguments are not JSON: %w", ErrInvalid)
		}
	default:
		return fmt.Errorf("block type %q is unknown: %w", b.Type, ErrInvalid)
	}
	return nil
}

// headSelf, as the head of an entry to be written, means the entry itself.
const headSelf EntryID = -1

func (tx *Tx) appendEntry(id ConversationID, spec EntrySpec) (EntryID, error) {
	if tx.conversation(id) == nil {
		return 0, fmt.Errorf("conversation %d: %w", id, ErrNotFound)
	}
	n, err := tx.id()
	if err != nil {
		return 0, err
	}
	e := Entry{
		ID: EntryID(n), ConversationID: id, Kind: spec.Kind, Model: slices.Clone(spec.Model),
		Data: spec.Data, Head: spec.Head, Edits: spec.Edits, ByTaskID: tx.by,
	}
	if e.Head == headSelf {
		e.Head = e.ID
	}
	for i := range e.Model {
		if e.Model[i].Timestamp.IsZero() {
			e.Model[i].Timestamp = tx.at
		}
	}
	tx.entries = append(tx.entries, e)
	tx.events = append(tx.events, stagedEvent{conversation: id, kind: EventEntryAppended, entry: len(tx.entries)})
	return e.ID, nil
}

// Task returns a task of the tree as it is now, or ErrNotFound. The record is
// the caller's.
func (tx *Tx) Task(id TaskID) (TaskRecord, error) {
	if err := tx.check(); err != nil {
		return TaskRecord{}, err
	}
	if rec := tx.task(id); rec != nil {
		return rec.clone(), nil
	}
	rec, err := tx.e.store.Task(tx.ctx, id)
	if err == nil && rec.TreeID != tx.t.id {
		return TaskRecord{}, fmt.Errorf("task %d belongs to another tree: %w", id, ErrNotFound)
	}
	return rec, err
}

// task returns the staged or committed record, nil when it is not in memory.
// The record must not be modified.
func (tx *Tx) task(id TaskID) *TaskRecord {
	if rec, ok := tx.tasks[id]; ok {
		return rec
	}
	return tx.t.tasks[id]
}

// editTask returns a private copy of the record that the commit will store.
func (tx *Tx) editTask(id TaskID) *TaskRecord {
	if rec, ok := tx.tasks[id]; ok {
		return rec
	}
	rec := tx.t.tasks[id]
	if rec == nil {
		return nil
	}
	c := *rec
	c.Memos = maps.Clone(rec.Memos)
	tx.putTask(&c)
	return &c
}

func (tx *Tx) putTask(rec *TaskRecord) {
	if tx.tasks == nil {
		tx.tasks = map[TaskID]*TaskRecord{}
	}
	tx.tasks[rec.ID] = rec
	tx.liveCache = nil
}

// live returns the tasks of the tree that are not terminal, by id.
func (tx *Tx) live() []*TaskRecord {
	if tx.liveCache != nil {
		return tx.liveCache
	}
	out := make([]*TaskRecord, 0, len(tx.t.tasks)+len(tx.tasks))
	for id, rec := range tx.t.tasks {
		if _, staged := tx.tasks[id]; !staged && rec.State.Status != TaskTerminal {
			out = append(out, rec)
		}
	}
	for _, rec := range tx.tasks {
		if rec.State.Status != TaskTerminal {
			out = append(out, rec)
		}
	}
	slices.SortFunc(out, func(a, b *TaskRecord) int { return cmp.Compare(a.ID, b.ID) })
	tx.liveCache = out
	return out
}

// busy reports whether the conversation has live work that is not below a
// background task (E8.2).
func (tx *Tx) busy(id ConversationID) bool {
	for _, rec := range tx.live() {
		if rec.ConversationID == id && foreground(rec, tx.task) {
			return true
		}
	}
	return false
}

// foreground reports whether neither the task nor an owner of it within its
// conversation is a background task.
func foreground(rec *TaskRecord, task func(TaskID) *TaskRecord) bool {
	for rec != nil {
		if rec.Background {
			return false
		}
		if rec.Owner == 0 {
			return true
		}
		rec = task(rec.Owner)
	}
	return true
}

func (tx *Tx) sub(id SubmissionID) *SubmissionRecord {
	if s, ok := tx.subs[id]; ok {
		return s
	}
	return tx.t.subs[id]
}

func (tx *Tx) editSub(id SubmissionID) *SubmissionRecord {
	if s, ok := tx.subs[id]; ok {
		return s
	}
	s := tx.t.subs[id]
	if s == nil {
		return nil
	}
	c := *s
	tx.putSub(&c)
	return &c
}

func (tx *Tx) putSub(s *SubmissionRecord) {
	if tx.subs == nil {
		tx.subs = map[SubmissionID]*SubmissionRecord{}
	}
	tx.subs[s.ID] = s
	tx.openCache = nil
}

// openSubs returns the queued or placed submissions of the tree, by id.
func (tx *Tx) openSubs() []*SubmissionRecord {
	if tx.openCache != nil {
		return tx.openCache
	}
	out := make([]*SubmissionRecord, 0, len(tx.t.open)+len(tx.subs))
	for _, id := range tx.t.open {
		if s := tx.sub(id); s.SettledAt == nil {
			out = append(out, s)
		}
	}
	// New ones have ids above those of the tree.
	for _, id := range slices.Sorted(maps.Keys(tx.subs)) {
		if s := tx.subs[id]; s.SettledAt == nil && tx.t.subs[id] == nil {
			out = append(out, s)
		}
	}
	tx.openCache = out
	return out
}

// batch collects what was staged; nil when there is nothing to store.
func (tx *Tx) batch() (*Batch, error) {
	b := &Batch{Fence: Fence{Tree: tx.t.id, Epoch: tx.t.epoch}, Entries: tx.entries, Partials: tx.partials, Claims: tx.claims}
	for _, c := range tx.convs {
		b.Conversations = append(b.Conversations, *c)
	}
	for _, id := range slices.Sorted(maps.Keys(tx.tasks)) {
		if err := checkMove(tx.t.tasks[id], tx.tasks[id]); err != nil {
			return nil, err
		}
		b.Tasks = append(b.Tasks, *tx.tasks[id])
	}
	for _, id := range slices.Sorted(maps.Keys(tx.subs)) {
		b.Submissions = append(b.Submissions, *tx.subs[id])
	}
	for _, key := range tx.docOrder {
		w, err := tx.docs[key].write(tx)
		if err != nil {
			return nil, err
		}
		if w != nil {
			b.Documents = append(b.Documents, *w)
		}
	}
	if len(b.Conversations)+len(b.Entries)+len(b.Tasks)+len(b.Submissions)+len(b.Documents)+len(b.Partials)+len(b.Claims) == 0 {
		return nil, nil
	}
	return b, nil
}

// clone returns a record that shares no memory with r.
func (r *TaskRecord) clone() TaskRecord {
	c := *r
	c.Input = bytes.Clone(r.Input)
	c.Memos = maps.Clone(r.Memos)
	for k, v := range c.Memos {
		c.Memos[k] = bytes.Clone(v)
	}
	c.StartedAt, c.EndedAt = clonePtr(r.StartedAt), clonePtr(r.EndedAt)
	c.State.Checkpoint = bytes.Clone(r.State.Checkpoint)
	c.State.Signal = bytes.Clone(r.State.Signal)
	if w := clonePtr(r.State.Wait); w != nil {
		w.On = slices.Clone(w.On)
		w.Deadline = clonePtr(w.Deadline)
		c.State.Wait = w
	}
	if o := clonePtr(r.State.Outcome); o != nil {
		o.Result = bytes.Clone(o.Result)
		if o.Error = clonePtr(o.Error); o.Error != nil {
			o.Error.Detail = bytes.Clone(o.Error.Detail)
		}
		c.State.Outcome = o
	}
	return c
}

// clone returns a record that shares no memory with s.
func (s *SubmissionRecord) clone() SubmissionRecord {
	c := *s
	c.Detail = bytes.Clone(s.Detail)
	c.ContentHash = bytes.Clone(s.ContentHash)
	c.HostData = bytes.Clone(s.HostData)
	c.SettledAt = clonePtr(s.SettledAt)
	if q := clonePtr(s.Queued); q != nil {
		m := model.Message{Content: q.Content}
		q.Content = m.Clone().Content
		q.Entry = cloneSpec(q.Entry)
		c.Queued = q
	}
	return c
}

func cloneSpec(s *EntrySpec) *EntrySpec {
	if s == nil {
		return nil
	}
	c := *s
	c.Model = cloneMessages(s.Model)
	c.Data = bytes.Clone(s.Data)
	c.Edits = cloneEdits(s.Edits)
	return &c
}

func cloneMessages(ms []model.Message) []model.Message {
	c := slices.Clone(ms)
	for i := range c {
		c[i] = ms[i].Clone()
	}
	return c
}

func cloneEdits(eds []Edit) []Edit {
	c := slices.Clone(eds)
	for i := range c {
		c[i].Messages = cloneMessages(eds[i].Messages)
	}
	return c
}

func clonePtr[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}
