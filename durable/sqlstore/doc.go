// Package sqlstore is a [durable.Store] over database/sql: one set of queries,
// and a small dialect per database that holds every difference. The packages
// below it, sqlite for instance, open a database with its driver, so that a
// program links only the driver it uses.
//
// It imports package durable for records, interfaces and errors only, and no
// database driver; package durable never imports it.
//
// # How a batch is written
//
// The goroutine that calls Commit turns the batch into rows, JSON included,
// and puts it into a queue. One goroutine, the writer, owns the one connection
// that writes. It takes all batches that wait, up to a bound, writes them in
// one transaction and commits it: one flush to the disk for all of them. While
// the disk is busy the next group collects, so nothing ever waits for a timer.
// Rows go through prepared statements; bun row by row would halve the speed
// (E4.4, E4.5).
//
// A batch that lost against another, with a *durable.ConflictError, gets its
// answer when the group is committed; the others are stored. A batch that fails
// otherwise is tried again alone afterwards: only what fails alone is rejected.
// What a failed batch has written is undone to its savepoint. Savepoints cost a
// sixth of the writing, because SQLite copies the pages that are changed below
// one, so a group gets them only when a batch has failed: nothing of it is
// stored then, and it is written again with one for each batch. Some failures,
// a full disk above all, end the whole transaction; then undoing to the
// savepoint fails, nothing of the group counts, and each of its batches is
// tried alone.
//
// A transaction that cannot be committed is rolled back and its batches are
// tried alone, when the database says that it surely was not applied (a full
// disk). An I/O error is different: after a failed flush nobody knows what the
// disk holds, and reading the file shows the cache, not the disk. The store
// fails: every call from then on returns durable.ErrStoreFailed, and the
// channel of [Store.Failed] is closed. Only a new process reads what is really
// there.
//
// # How it is read
//
// Reads use a pool of their own, of connections that cannot write. Each read
// is one statement and sees one state of the database.
package sqlstore
