package sqlstore

import "database/sql/driver"

// statementID names a prepared statement of the writer.
type statementID int

const (
	begin statementID = iota
	commit
	rollback
	savepoint
	undo // to the savepoint
	release
	allocateIDs
	insertConversation
	insertClaim
	selectClaim
	insertEntry
	putLiveTask
	putTerminalTask
	replaceTask
	insertPartial
	deletePartial
	putOpenSubmission
	putSettledSubmission
	replaceSubmission
	selectDocument
	putDocument
	putVersion
	deleteDocument
	deleteHistory
	buryDocument
	deleteTaskDocuments
	statementCount
)

// statements are the texts, begin excepted.
var statements = [statementCount]string{
	commit:    "COMMIT",
	rollback:  "ROLLBACK",
	savepoint: "SAVEPOINT batch",
	undo:      "ROLLBACK TO batch",
	release:   "RELEASE batch",

	allocateIDs: `UPDATE store SET next_id = next_id + ? WHERE id = 1 RETURNING next_id`,

	insertConversation: `INSERT INTO conversations (id, tree_id, parent_id, created_at, record) VALUES (?, ?, ?, ?, ?)`,
	insertClaim:        `INSERT INTO claims (scope, key, value) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
	selectClaim:        `SELECT value FROM claims WHERE scope = ? AND key = ?`,
	insertEntry:        `INSERT INTO entries (id, conversation_id, head, record) VALUES (?, ?, ?, ?)`,

	// A task changes often while it lives and ends once. The statement for a
	// live one leaves the indexes alone; what it cannot store, because the
	// stored one is terminal or of another tree, is replaced.
	putLiveTask: `INSERT INTO tasks (id, conversation_id, tree_id, live, record) VALUES (?, ?, ?, 1, ?)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record
		WHERE tasks.live = 1 AND tasks.tree_id = excluded.tree_id AND tasks.conversation_id = excluded.conversation_id`,
	putTerminalTask: `INSERT INTO tasks (id, conversation_id, tree_id, live, record) VALUES (?, ?, ?, NULL, ?)
		ON CONFLICT (id) DO UPDATE SET live = NULL, record = excluded.record
		WHERE tasks.tree_id = excluded.tree_id AND tasks.conversation_id = excluded.conversation_id`,
	replaceTask: `UPDATE tasks SET conversation_id = ?, tree_id = ?, live = ?, record = ? WHERE id = ?`,

	insertPartial: `INSERT INTO partials (task_id, data) VALUES (?, ?)`,
	deletePartial: `DELETE FROM partials WHERE task_id = ?`,

	// Submissions likewise.
	putOpenSubmission: `INSERT INTO submissions (id, conversation_id, request_id, open, record) VALUES (?, ?, ?, 1, ?)
		ON CONFLICT (id) DO UPDATE SET record = excluded.record
		WHERE submissions.open = 1 AND submissions.conversation_id = excluded.conversation_id
			AND submissions.request_id IS NOT DISTINCT FROM excluded.request_id`,
	putSettledSubmission: `INSERT INTO submissions (id, conversation_id, request_id, open, record) VALUES (?, ?, ?, NULL, ?)
		ON CONFLICT (id) DO UPDATE SET open = NULL, record = excluded.record
		WHERE submissions.conversation_id = excluded.conversation_id
			AND submissions.request_id IS NOT DISTINCT FROM excluded.request_id`,
	replaceSubmission: `UPDATE submissions SET conversation_id = ?, request_id = ?, open = ?, record = ? WHERE id = ?`,

	selectDocument: `SELECT version, revision, value FROM documents
		WHERE scope = ? AND owner = ? AND kind = ? AND key = ? AND at = 0`,
	putDocument: `INSERT INTO documents (scope, owner, kind, key, at, version, revision, value) VALUES (?, ?, ?, ?, 0, ?, 1, ?)
		ON CONFLICT (scope, owner, kind, key, at) DO UPDATE
		SET version = excluded.version, revision = documents.revision + 1, value = excluded.value`,
	putVersion: `INSERT INTO documents (scope, owner, kind, key, at, version, revision, value)
		SELECT scope, owner, kind, key, ?, version, revision, value FROM documents
		WHERE scope = ? AND owner = ? AND kind = ? AND key = ? AND at = 0
		ON CONFLICT (scope, owner, kind, key, at) DO UPDATE
		SET version = excluded.version, revision = excluded.revision, value = excluded.value`,
	deleteDocument: `DELETE FROM documents WHERE scope = ? AND owner = ? AND kind = ? AND key = ?`,
	deleteHistory:  `DELETE FROM documents WHERE scope = ? AND owner = ? AND kind = ? AND key = ? AND at > 0`,
	buryDocument: `UPDATE documents SET value = NULL, revision = revision + 1
		WHERE scope = ? AND owner = ? AND kind = ? AND key = ? AND at = 0 AND value IS NOT NULL`,
	deleteTaskDocuments: `DELETE FROM documents WHERE scope = 'task' AND owner = ?`,
}

// prepare prepares every statement of the writer.
func prepare(s *session, d dialect) error {
	for id, text := range statements {
		if statementID(id) == begin {
			text = d.begin()
		}
		if err := s.prepare(d.statement(text)); err != nil {
			return err
		}
	}
	return nil
}

// tx is the writer's transaction as rows see it.
type tx struct {
	session *session
	rows    int64 // written so far
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(id statementID, args ...any) (int64, error) {
	return t.session.exec(int(id), args)
}

// query runs a statement that returns one row, or sql.ErrNoRows.
func (t *tx) query(id statementID, dest []driver.Value, args ...any) error {
	return t.session.query(int(id), dest, args)
}
