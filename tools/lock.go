package tools

import (
	"context"
	"path"
	"sync"

	"github.com/wp-durable/wp-durable/durable/env"
)

// locks serialises changes of one file (S5.4), whichever extension or engine
// of the program makes them.
var locks = lockSet{held: map[string]*fileLock{}}

type lockSet struct {
	mu   sync.Mutex
	held map[string]*fileLock
}

type fileLock struct {
	turn  chan struct{} // holds one element while the file is free
	users int           // who holds it or waits, guarded by lockSet.mu
}

// lock waits for its turn on the file at p of e, until ctx ends.
func (s *lockSet) lock(ctx context.Context, e env.Environment, p string) (unlock func(), err error) {
	if !path.IsAbs(p) {
		p = path.Join(e.WorkDir(), p)
	}
	key := e.ID() + "\x00" + path.Clean(p)
	s.mu.Lock()
	l := s.held[key]
	if l == nil {
		l = &fileLock{turn: make(chan struct{}, 1)}
		l.turn <- struct{}{}
		s.held[key] = l
	}
	l.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(s.held, key)
		}
	}
	select {
	case <-l.turn:
		return func() {
			l.turn <- struct{}{}
			leave()
		}, nil
	case <-ctx.Done():
		leave()
		return nil, context.Cause(ctx)
	}
}
