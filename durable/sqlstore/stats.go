package sqlstore

import "sync/atomic"

// Stats counts what a store has written since it was opened.
type Stats struct {
	Commits     uint64 `json:"commits"`     // transactions, each with one flush to the disk
	Groups      uint64 `json:"groups"`      // groups of batches that the writer took together
	Batches     uint64 `json:"batches"`     // batches that were stored
	Rows        uint64 `json:"rows"`        // records in them
	Rejected    uint64 `json:"rejected"`    // batches that were not
	Checkpoints uint64 `json:"checkpoints"` // times the log was copied into the database
}

type counters struct {
	commits, groups, batches, rows, rejected, checkpoints atomic.Uint64
}

func (c *counters) stats() Stats {
	return Stats{
		Commits: c.commits.Load(), Groups: c.groups.Load(), Batches: c.batches.Load(),
		Rows: c.rows.Load(), Rejected: c.rejected.Load(), Checkpoints: c.checkpoints.Load(),
	}
}
