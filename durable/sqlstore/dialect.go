package sqlstore

import "github.com/uptrace/bun/schema"

// dialect is everything in which the databases differ. The queries of this
// package are written for all of them.
type dialect interface {
	// kind is the name of the database for people.
	kind() string
	// schema is the database for bun, which builds the reads.
	schema() schema.Dialect
	// begin is the statement that begins a transaction and takes the right to
	// write, so that what it reads stays true until it commits.
	begin() string
	// statement returns one of the write statements for this database. They are
	// written with ? for arguments.
	statement(query string) string
	// classify says what an error means for the batch that met it.
	classify(err error) class
}

// class is what an error means.
type class int

const (
	// classRejected: the batch cannot be written, and surely was not.
	classRejected class = iota
	// classFull: the same, because there is no room.
	classFull
	// classBroken: the database can no longer be trusted.
	classBroken
	// classCorrupt: the database is damaged. It is broken, too.
	classCorrupt
	// classUnknown: none of these; what it means depends on where it happened.
	classUnknown
)

// upkeep is work on the database that the writer does between two groups.
type upkeep interface {
	// tick runs after a group was committed. An error fails the store.
	tick() error
	// stop ends what runs in the background and, when final, leaves the
	// database tidy. The writer calls it last.
	stop(final bool) error
}
