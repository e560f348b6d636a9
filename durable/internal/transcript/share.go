package transcript

import "sync/atomic"

// list is an append-only slice that can be copied in constant time: copies
// share one array, and whoever appends first behind the common part takes the
// room there; the others move to an array of their own. The elements of a
// slice that was handed out are never written again.
type list[T any] struct {
	s     []T
	taken *atomic.Int64 // elements of s's array in use by any copy
}

func (l *list[T]) append(v T) {
	n := len(l.s)
	if n < cap(l.s) && l.taken.CompareAndSwap(int64(n), int64(n)+1) {
		l.s = append(l.s, v)
		return
	}
	grown := make([]T, n, max(8, 2*n))
	copy(grown, l.s)
	l.s = append(grown, v)
	l.taken = new(atomic.Int64)
	l.taken.Store(int64(n) + 1)
}

// truncate forgets the elements from n on; others may still hold them.
func (l *list[T]) truncate(n int) { l.s = l.s[:n] }

// view returns the elements. Appending to what it returns never writes into l.
func (l *list[T]) view() []T { return l.s[:len(l.s):len(l.s)] }

// table is a map that can be forked in amortised logarithmic time: forks share
// frozen layers, each at least twice as large as the one above it.
type table[K comparable, V any] struct {
	own  map[K]V
	base *layer[K, V]
}

type layer[K comparable, V any] struct {
	m    map[K]V
	next *layer[K, V]
}

func (t *table[K, V]) get(k K) (V, bool) {
	if v, ok := t.own[k]; ok {
		return v, true
	}
	for l := t.base; l != nil; l = l.next {
		if v, ok := l.m[k]; ok {
			return v, true
		}
	}
	var zero V
	return zero, false
}

func (t *table[K, V]) set(k K, v V) {
	if t.own == nil {
		t.own = map[K]V{}
	}
	t.own[k] = v
}

// fork returns an independent copy and freezes what t holds so far.
func (t *table[K, V]) fork() table[K, V] {
	if len(t.own) > 0 {
		top := &layer[K, V]{m: t.own, next: t.base}
		for top.next != nil && len(top.next.m) < 2*len(top.m) {
			top = merge(top, top.next)
		}
		t.own, t.base = nil, top
	}
	return table[K, V]{base: t.base}
}

func merge[K comparable, V any](upper, lower *layer[K, V]) *layer[K, V] {
	m := make(map[K]V, len(upper.m)+len(lower.m))
	for k, v := range lower.m {
		m[k] = v
	}
	for k, v := range upper.m {
		m[k] = v
	}
	return &layer[K, V]{m: m, next: lower.next}
}
