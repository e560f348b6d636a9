package durable

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// The bounds of what a conversation remembers for readers that come back.
const (
	ringEvents = 1024
	ringBytes  = 1 << 20
)

// hub keeps the last events of a conversation that somebody watches, or has
// watched. Readers take from it at their own pace; one that has fallen out of
// it takes a snapshot. It never waits for a reader (E17.4).
type hub struct {
	mu    sync.Mutex
	ring  []Event
	bytes int
	// The ring holds every event after number base, up to number last.
	base, last uint64
	wake       chan struct{} // closed and renewed at every event, nil when nobody waits
	readers    int
}

// publish hands an event to the readers of a conversation, if it has or had
// any. data is a value of the type's payload. The caller holds the tree's mu.
func (c *conversation) publish(e *Engine, kind EventType, data any) {
	if c == nil || c.hub == nil {
		return
	}
	n := e.events.Add(1)
	c.hub.add(Event{ID: e.boot + "-" + strconv.FormatUint(n, 10), Type: kind, Data: data, n: n, size: eventSize(data)})
}

func (h *hub) add(ev Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring = append(h.ring, ev)
	h.bytes += ev.size
	h.last = ev.n
	drop := 0
	for len(h.ring)-drop > ringEvents || h.bytes > ringBytes && len(h.ring)-drop > 1 {
		h.bytes -= h.ring[drop].size
		h.base = h.ring[drop].n
		h.ring[drop] = Event{}
		drop++
	}
	h.ring = h.ring[drop:]
	h.signal()
}

// reset forgets the events: what they said may not be stored.
func (h *hub) reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ring, h.bytes, h.base, h.last = nil, 0, 0, 0
	h.signal()
}

func (h *hub) signal() {
	if h.wake != nil {
		close(h.wake)
		h.wake = nil
	}
}

func (h *hub) watched() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readers > 0
}

// position returns the number of the newest event, from which a reader that
// has just taken a snapshot goes on. fresh numbers a ring without events.
func (h *hub) position(fresh func() uint64) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last == 0 {
		h.base = fresh()
		h.last = h.base
	}
	return h.last
}

// after returns the events behind number n, or ok false when some of them have
// left the ring or n is no place in it. With no events it returns a channel
// that is closed at the next one.
func (h *hub) after(n uint64) (events []Event, wake <-chan struct{}, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case n == 0 || h.last == 0:
		return nil, nil, false
	case n == h.last:
		if h.wake == nil {
			h.wake = make(chan struct{})
		}
		return nil, h.wake, true
	case n == h.base:
		return slices.Clone(h.ring), nil, true
	}
	i, found := slices.BinarySearchFunc(h.ring, n, func(ev Event, n uint64) int { return cmp.Compare(ev.n, n) })
	if !found {
		return nil, nil, false
	}
	return slices.Clone(h.ring[i+1:]), nil, true
}

func (h *hub) join(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers += n
}

// eventNumber reads an event id of this engine; 0 for any other.
func (e *Engine) eventNumber(id string) uint64 {
	rest, ok := strings.CutPrefix(id, e.boot+"-")
	if !ok {
		return 0
	}
	n, err := strconv.ParseUint(rest, 10, 64)
	if err != nil || fmt.Sprint(n) != rest {
		return 0
	}
	return n
}

// eventSize is about how much memory an event holds.
func eventSize(data any) int {
	const base = 200
	switch d := data.(type) {
	case MessageEvent:
		if d.Delta != nil {
			return base + len(d.Text)
		}
	case ToolEvent:
		n := base + len(d.Delta) + len(d.Arguments)
		if d.Result != nil {
			n += messageSize(d.Result.Content)
		}
		return n
	case EntryEvent:
		n := base + len(d.Entry.Data)
		for i := range d.Entry.Model {
			n += messageSize(d.Entry.Model[i].Content)
		}
		return n
	case DocEvent:
		return base + len(d.Value)
	case InboxEvent:
		return base + 8*len(d.Queued)
	case RunEvent:
		return base + 8*len(d.SubmissionIDs)
	case SubmissionEvent:
		return base + len(d.Submission.HostData) + len(d.Submission.Detail)
	case TaskFailedEvent:
		n := base + len(d.Outcome.Result)
		if d.Outcome.Error != nil {
			n += len(d.Outcome.Error.Message) + len(d.Outcome.Error.Detail)
		}
		return n
	}
	return base
}
