// Package sqlite opens an SQLite database as a [durable.Store], with the pure
// Go driver modernc.org/sqlite.
//
// One process has a database open at a time, kept by an operating system lock
// on the file <database>.lock, which the system drops when the process ends,
// however it ends. The lock file stays. The database, its -wal, -shm and lock
// files are readable by their owner only. While a store is open, no other code
// of the process may open these files: closing a file drops the locks that
// SQLite has on it.
//
// The package imports package durable for errors only, and package durable
// never imports it.
package sqlite
