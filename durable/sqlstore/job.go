package sqlstore

import (
	"sync/atomic"

	"github.com/wp-durable/wp-durable/durable"
)

// job is a batch on its way through the writer.
type job struct {
	rows     []row
	size     int  // about how many bytes the rows hold
	internal bool // no batch of the caller: it gets no number

	state atomic.Int32 // jobWaiting, then one of the others for ever
	done  chan struct{}
	// Set before done is closed.
	seq durable.Seq
	err error
}

const (
	jobWaiting   int32 = iota
	jobTaken           // the writer answers it
	jobWithdrawn       // its caller has left, the writer drops it
)

func newJob(rows []row, size int) *job {
	return &job{rows: rows, size: size, done: make(chan struct{})}
}

func (j *job) take() bool     { return j.state.CompareAndSwap(jobWaiting, jobTaken) }
func (j *job) withdraw() bool { return j.state.CompareAndSwap(jobWaiting, jobWithdrawn) }

func (j *job) finish(err error) {
	j.err = err
	close(j.done)
}
