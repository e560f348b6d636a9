package sqlstore_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

// BenchmarkCommit commits the batches of an engine's turns, from 1, 16 and 64
// conversations at a time, and in the same run the floor: as many batches and
// rows of the same bytes, appended to one table with one index, by prepared
// statements, from one goroutine that groups them. One operation is one turn
// of five batches with 14 rows.
//
// The metrics: turns of the store and of the floor a second, the store's share
// of the floor, and the 99th percentile of a commit's time.
func BenchmarkCommit(b *testing.B) {
	for _, committers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("committers=%d", committers), func(b *testing.B) {
			var storeTime, floorTime time.Duration
			var commits []time.Duration
			var storeCPU, floorCPU time.Duration
			// In turns, so that what else the machine does meets both. Each has a
			// database of its own, closed before the next is opened: they would
			// share SQLite's cache.
			const rounds = 4
			for range rounds {
				turns := b.N/rounds + 1
				store := newStoreBench(b)
				began := cpu()
				d, times := drive(b, committers, turns, store.turn)
				storeTime, storeCPU = storeTime+d, storeCPU+cpu()-began
				commits = append(commits, times...)
				store.close(b)
				floor := newFloorBench(b)
				began = cpu()
				d, _ = drive(b, committers, turns, floor.turn)
				floorTime, floorCPU = floorTime+d, floorCPU+cpu()-began
				floor.close(b)
			}
			b.StopTimer()
			n := float64(rounds * (b.N/rounds + 1))
			slices.Sort(commits)
			b.ReportMetric(n/storeTime.Seconds(), "turns/s")
			b.ReportMetric(n/floorTime.Seconds(), "floor-turns/s")
			b.ReportMetric(100*floorTime.Seconds()/storeTime.Seconds(), "%floor")
			b.ReportMetric(float64(commits[len(commits)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(storeCPU.Microseconds())/n, "cpu-µs/turn")
			b.ReportMetric(float64(floorCPU.Microseconds())/n, "floor-cpu-µs/turn")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// drive runs turns, each committer those of its own conversation, and returns
// how long it took and how long each commit took.
func drive(b *testing.B, committers, turns int, turn func(conversation int, commit func(func() error))) (time.Duration, []time.Duration) {
	var left atomic.Int64
	left.Store(int64(turns))
	var mu sync.Mutex
	var all []time.Duration
	var wg sync.WaitGroup
	start := time.Now()
	for c := range committers {
		wg.Go(func() {
			var times []time.Duration
			for left.Add(-1) >= 0 {
				turn(c, func(commit func() error) {
					began := time.Now()
					if err := commit(); err != nil {
						b.Error(err)
					}
					times = append(times, time.Since(began))
				})
			}
			mu.Lock()
			all = append(all, times...)
			mu.Unlock()
		})
	}
	wg.Wait()
	return time.Since(start), all
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

type storeBench struct {
	store durable.Store
	next  atomic.Int64
}

func newStoreBench(b *testing.B) *storeBench {
	s, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "store.db"), nil)
	require.NoError(b, err)
	return &storeBench{store: s}
}

func (s *storeBench) close(b *testing.B) { require.NoError(b, s.store.Close()) }

func (s *storeBench) turn(conversation int, commit func(func() error)) {
	for _, batch := range turnBatches(durable.ConversationID(1<<40+conversation), func() int64 { return s.next.Add(1) }) {
		commit(func() error {
			_, err := s.store.Commit(context.Background(), &batch)
			return err
		})
	}
}

var (
	benchTime   = time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	benchInput  = json.RawMessage(`{"prompt":"` + strings.Repeat("word ", 20) + `"}`)
	benchState  = json.RawMessage(`{"phase":"tools","cutoff":123456,"model":{"provider":"p","id":"m"},"inputs":[1234],"options":{"outputTokens":32000}}`)
	benchUsage  = json.RawMessage(`{"models":{"p/m":{"input":1200,"output":400,"cacheRead":9000,"cacheWrite":100,"reasoning":0,"total":10700,"cost":{"input":0.1,"output":0.2,"cacheRead":0.01,"cacheWrite":0.01,"total":0.32}}},"tools":{}}`)
	benchAnswer = strings.Repeat("An answer of a few sentences. ", 20)
	benchOutput = strings.Repeat("output of a tool\n", 30)
)

// turnBatches are the commits of a turn with one tool call.
func turnBatches(c durable.ConversationID, id func() int64) []durable.Batch {
	fence := durable.Fence{Tree: c}
	usage := &model.Usage{Input: 1200, Output: 400, Total: 1600}
	submission := durable.SubmissionRecord{
		ID: durable.SubmissionID(id()), ConversationID: c, RequestID: fmt.Sprintf("request-%d", id()),
		Type: durable.SubmissionInput, Status: durable.SubmissionPlaced, ContentHash: make([]byte, 32), CreatedAt: benchTime,
	}
	user := durable.Entry{
		ID: durable.EntryID(id()), ConversationID: c, Kind: durable.KindUser,
		Model: []model.Message{model.UserMessage(strings.Repeat("Please do this. ", 10), benchTime)},
	}
	generation := durable.TaskRecord{
		ID: durable.TaskID(id()), ConversationID: c, TreeID: c, Kind: "pi.generation", Version: 1, Input: benchInput,
		CreatedAt: benchTime, State: durable.TaskState{Status: durable.TaskRunning, Checkpoint: benchState},
	}
	waiting := generation
	call := durable.Entry{
		ID: durable.EntryID(id()), ConversationID: c, Kind: durable.KindAssistant, ByTaskID: generation.ID,
		Model: []model.Message{{
			Role: model.RoleAssistant, Provider: "p", Model: "m", StopReason: model.StopToolUse, Timestamp: benchTime, Usage: usage,
			Content: []model.Block{model.Text("I look."), {Type: model.BlockToolCall, ID: "call_1", Name: "bash", Arguments: benchInput}},
		}},
	}
	tool := durable.TaskRecord{
		ID: durable.TaskID(id()), ConversationID: c, TreeID: c, Kind: "pi.tool", Version: 1, Input: benchInput, Owner: generation.ID,
		CreatedAt: benchTime, State: durable.TaskState{Status: durable.TaskPending, Checkpoint: benchState},
	}
	waiting.State = durable.TaskState{
		Status: durable.TaskWaiting, Checkpoint: benchState, Wait: &durable.Wait{On: []durable.TaskID{tool.ID}, Since: benchTime},
	}
	running, ended := tool, tool
	running.State.Status = durable.TaskRunning
	ended.State = durable.TaskState{
		Status: durable.TaskTerminal, Outcome: &durable.Outcome{Status: durable.OutcomeCompleted, Result: benchState},
	}
	ended.EndedAt = &benchTime
	result := durable.Entry{
		ID: durable.EntryID(id()), ConversationID: c, Kind: durable.KindToolResult, ByTaskID: tool.ID,
		Model: []model.Message{{
			Role: model.RoleToolResult, ToolCallID: "call_1", ToolName: "bash", Timestamp: benchTime, Content: []model.Block{model.Text(benchOutput)},
		}},
	}
	answer := durable.Entry{
		ID: durable.EntryID(id()), ConversationID: c, Kind: durable.KindAssistant, ByTaskID: generation.ID,
		Model: []model.Message{{
			Role: model.RoleAssistant, Provider: "p", Model: "m", StopReason: model.StopEnd, Timestamp: benchTime, Usage: usage,
			Content: []model.Block{model.Text(benchAnswer)},
		}},
	}
	answered := generation
	answered.State = ended.State
	answered.EndedAt = &benchTime
	settled := submission
	settled.Status, settled.AnswerEntryID, settled.SettledAt = durable.SubmissionDone, answer.ID, &benchTime
	document := durable.DocumentWrite{Record: durable.DocRecord{
		DocKey:  durable.DocKey{Scope: durable.ScopeConversation, Owner: int64(c), Kind: "pi.usage"},
		Version: 1, Value: benchUsage,
	}}
	return []durable.Batch{
		{Fence: fence, Submissions: []durable.SubmissionRecord{submission}, Entries: []durable.Entry{user}, Tasks: []durable.TaskRecord{generation}},
		{Fence: fence, Entries: []durable.Entry{call}, Tasks: []durable.TaskRecord{waiting, tool}},
		{Fence: fence, Tasks: []durable.TaskRecord{running}},
		{Fence: fence, Entries: []durable.Entry{result}, Tasks: []durable.TaskRecord{ended, generation}},
		{
			Fence: fence, Entries: []durable.Entry{answer}, Tasks: []durable.TaskRecord{answered},
			Submissions: []durable.SubmissionRecord{settled}, Documents: []durable.DocumentWrite{document},
		},
	}
}

// floorBench appends rows, and does nothing else.
type floorBench struct {
	queue   chan *floorBatch
	stopped chan struct{}
	db      *sql.DB
	conn    *sql.Conn

	begin, insert, commit *sql.Stmt

	turns [][][]byte // the records of each batch
}

type floorBatch struct {
	conversation int
	records      [][]byte
	done         chan error
}

func newFloorBench(b *testing.B) *floorBench {
	f := &floorBench{queue: make(chan *floorBatch, 1024)}
	n := int64(1 << 20)
	for _, batch := range turnBatches(1<<40, func() int64 { n++; return n }) {
		var records [][]byte
		add := func(v any) {
			text, err := json.Marshal(v)
			require.NoError(b, err)
			records = append(records, text)
		}
		for _, v := range batch.Submissions {
			add(v)
		}
		for _, v := range batch.Entries {
			add(v)
		}
		for _, v := range batch.Tasks {
			add(v)
		}
		for _, v := range batch.Documents {
			records = append(records, v.Record.Value)
		}
		f.turns = append(f.turns, records)
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "floor.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=wal_autocheckpoint(16000)&_pragma=cache_size(-8000)")
	require.NoError(b, err)
	conn, err := db.Conn(b.Context())
	require.NoError(b, err)
	for _, text := range []string{
		"CREATE TABLE rows (id INTEGER PRIMARY KEY, conversation_id INTEGER NOT NULL, record TEXT NOT NULL)",
		"CREATE INDEX rows_conversation ON rows (conversation_id)",
	} {
		_, err := conn.ExecContext(b.Context(), text)
		require.NoError(b, err)
	}
	var stmts []*sql.Stmt
	for _, text := range []string{"BEGIN IMMEDIATE", "INSERT INTO rows (conversation_id, record) VALUES (?, ?)", "COMMIT"} {
		st, err := conn.PrepareContext(b.Context(), text) //nolint:sqlclosecheck // it ends with its connection
		require.NoError(b, err)
		stmts = append(stmts, st)
	}
	f.db, f.conn, f.stopped = db, conn, make(chan struct{})
	f.begin, f.insert, f.commit = stmts[0], stmts[1], stmts[2]
	go func() {
		defer close(f.stopped)
		f.run()
	}()
	return f
}

func (f *floorBench) close(b *testing.B) {
	close(f.queue)
	<-f.stopped
	require.NoError(b, f.conn.Close())
	require.NoError(b, f.db.Close())
}

func (f *floorBench) run() {
	for first := range f.queue {
		group := []*floorBatch{first}
		for more := true; more; {
			select {
			case next, ok := <-f.queue:
				if more = ok; ok {
					group = append(group, next)
				}
			default:
				more = false
			}
		}
		err := f.write(group)
		for _, batch := range group {
			batch.done <- err
		}
	}
}

func (f *floorBench) write(group []*floorBatch) error {
	ctx := context.Background()
	if _, err := f.begin.ExecContext(ctx); err != nil {
		return err
	}
	for _, batch := range group {
		for _, record := range batch.records {
			if _, err := f.insert.ExecContext(ctx, batch.conversation, string(record)); err != nil {
				return err
			}
		}
	}
	_, err := f.commit.ExecContext(ctx)
	return err
}

func (f *floorBench) turn(conversation int, commit func(func() error)) {
	for _, records := range f.turns {
		commit(func() error {
			batch := &floorBatch{conversation, records, make(chan error, 1)}
			f.queue <- batch
			return <-batch.done
		})
	}
}
