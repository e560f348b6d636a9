// Package line provides the lock that puts the commits of one tree in order.
// It depends on nothing of this module.
package line

import (
	"context"
	"sync"
)

// Line is a mutual exclusion that is handed on in the order of asking and can
// be given up while queued. The zero Line is free.
type Line struct {
	mu    sync.Mutex
	held  bool
	queue []chan struct{} // closed when the line is handed to its owner
}

// Lock waits for the line. When ctx ends first it returns the context's cause
// and the caller does not hold the line.
func (l *Line) Lock(ctx context.Context) error {
	l.mu.Lock()
	if !l.held {
		l.held = true
		l.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	l.queue = append(l.queue, turn)
	l.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	for i, w := range l.queue {
		if w == turn {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			l.mu.Unlock()
			return context.Cause(ctx)
		}
	}
	l.mu.Unlock()
	// The line was handed over at the same moment: pass it on.
	l.Unlock()
	return context.Cause(ctx)
}

// Unlock hands the line to the one that waits longest.
func (l *Line) Unlock() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.held {
		panic("line: unlock of a free line")
	}
	if len(l.queue) == 0 {
		l.held = false
		return
	}
	next := l.queue[0]
	l.queue[0] = nil
	l.queue = l.queue[1:]
	close(next)
}
