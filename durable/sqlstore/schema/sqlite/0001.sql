-- Records are JSON; a column beside them is there for an index. Names that hosts
-- choose are kept as bytes. Ids come from store.next_id.

CREATE TABLE store (
	id      INTEGER PRIMARY KEY CHECK (id = 1),
	next_id INTEGER NOT NULL
) STRICT;
INSERT INTO store (id, next_id) VALUES (1, 1);

CREATE TABLE conversations (
	id         INTEGER PRIMARY KEY,
	tree_id    INTEGER NOT NULL,
	parent_id  INTEGER,          -- the owner's conversation
	created_at INTEGER NOT NULL, -- nanoseconds since 1970
	record     TEXT NOT NULL
) STRICT;
CREATE INDEX conversations_tree ON conversations (tree_id);
CREATE INDEX conversations_created ON conversations (created_at);
CREATE INDEX conversations_parent ON conversations (parent_id, created_at) WHERE parent_id IS NOT NULL;

-- Entries are appended in the order of commits. With id as the primary key they
-- would not be: commits of many trees overtake each other, and every page would
-- be split in its middle.
CREATE TABLE entries (
	row             INTEGER PRIMARY KEY, -- the rowid
	id              INTEGER NOT NULL,
	conversation_id INTEGER NOT NULL,
	head            INTEGER,
	record          TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX entries_id ON entries (id);
CREATE INDEX entries_conversation ON entries (conversation_id, id);
CREATE INDEX entries_head ON entries (conversation_id, id) WHERE head IS NOT NULL;

CREATE TABLE tasks (
	id              INTEGER PRIMARY KEY,
	conversation_id INTEGER NOT NULL,
	tree_id         INTEGER NOT NULL,
	live            INTEGER, -- 1, or NULL when the task is terminal
	record          TEXT NOT NULL
) STRICT;
-- Only live tasks have an index: one of all would be written with every task,
-- on a page for every tree, and hardly be read.
CREATE INDEX tasks_live ON tasks (tree_id) WHERE live = 1;

CREATE TABLE partials (
	id      INTEGER PRIMARY KEY,
	task_id INTEGER NOT NULL,
	data    BLOB NOT NULL
) STRICT;
CREATE INDEX partials_task ON partials (task_id);

CREATE TABLE submissions (
	id              INTEGER PRIMARY KEY,
	conversation_id INTEGER NOT NULL,
	request_id      BLOB,
	open            INTEGER, -- 1, or NULL when the submission is settled
	record          TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX submissions_request ON submissions (conversation_id, request_id) WHERE request_id IS NOT NULL;
CREATE INDEX submissions_open ON submissions (conversation_id) WHERE open = 1;

-- A document's current value has at = 0; other rows are its history. A global
-- document that was deleted keeps its row, without a value, for its revision.
CREATE TABLE documents (
	id       INTEGER PRIMARY KEY,
	scope    TEXT NOT NULL,
	owner    INTEGER NOT NULL,
	kind     BLOB NOT NULL,
	key      BLOB NOT NULL,
	at       INTEGER NOT NULL,
	version  INTEGER NOT NULL,
	revision INTEGER NOT NULL,
	value    TEXT
) STRICT;
CREATE UNIQUE INDEX documents_key ON documents (scope, owner, kind, key, at);
CREATE INDEX documents_kind ON documents (scope, kind) WHERE at = 0;

CREATE TABLE claims (
	scope BLOB NOT NULL,
	key   BLOB NOT NULL,
	value INTEGER NOT NULL,
	PRIMARY KEY (scope, key)
) STRICT, WITHOUT ROWID;
