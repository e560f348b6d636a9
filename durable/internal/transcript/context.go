package transcript

import (
	"sort"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Item is what the context needs to know of one entry.
type Item struct {
	ID       int64
	Messages []model.Message
	// Head, when not 0, makes the item the beginning: its own messages come
	// first, then the items from Head on. A head that keeps what precedes it
	// sums up what comes before Head, and with it any older such head.
	Head  int64
	Edits []Edit
}

// Edit changes what the model sees of an earlier item.
type Edit struct {
	Target   int64 // an id below the item's own; others are ignored
	Omit     bool
	Messages []model.Message // stand in for the target's when not Omit
}

// Context derives the messages of one conversation. Make one with [New].
//
// It is not safe for concurrent use, [Context.Clone] included; a clone and its
// original may be used at the same time. What it was given must not be
// modified afterwards, and what it returns is shared and read-only.
type Context struct {
	items list[entry]
	edits table[int64, edit] // the newest, by target
	head  int                // index of the newest head in items, -1 for none
	dirty bool               // state does not stand for items: rebuild first
	state
}

// entry is an item as it is kept, its messages cleaned.
type entry struct {
	id, head int64
	messages []model.Message
}

type edit struct {
	by       int64 // the item that holds it
	messages []model.Message
}

// New returns an empty context.
func New() *Context { return &Context{head: -1} }

// Append adds the next item; ids increase. It costs time in the size of the
// item. A head, an edit of an item in use and a result that comes after
// another assistant message make the next derivation start anew.
func (c *Context) Append(it Item) {
	e := entry{id: it.ID, head: it.Head, messages: cleanMessages(it.Messages)}
	c.items.append(e)
	for _, ed := range it.Edits {
		if ed.Target >= it.ID {
			continue
		}
		v := edit{by: it.ID}
		if !ed.Omit {
			v.messages = cleanMessages(ed.Messages)
		}
		c.edits.set(ed.Target, v)
		c.dirty = c.dirty || c.inUse(ed.Target)
	}
	switch {
	case it.Head != 0:
		c.head = len(c.items.s) - 1
		c.dirty = true
	case !c.dirty:
		c.add(e)
		c.dirty = len(c.found) > 0
	}
}

// inUse reports whether an item of that id is among the active ones.
func (c *Context) inUse(id int64) bool {
	if c.head < 0 {
		return true
	}
	h := c.items.s[c.head]
	return id == h.id || id >= h.head
}

// add derives the messages of one item, or of the edit that stands in for it.
func (c *Context) add(e entry) {
	messages := e.messages
	ed, edited := c.edits.get(e.id)
	if edited {
		messages = ed.messages
	}
	for _, m := range messages {
		c.process(e.id, m)
	}
	if edited {
		c.stale = max(c.stale, ed.by)
	}
}

// refresh makes state stand for items. A result that comes after its round was
// given up has its place further up, so that a second walk knows it when the
// call is met.
func (c *Context) refresh() {
	if !c.dirty {
		return
	}
	c.state = state{}
	c.walk()
	if len(c.found) > 0 {
		late := map[int][]lateResult{}
		for _, l := range c.found {
			late[l.at] = append(late[l.at], l)
		}
		c.state = state{late: late}
		c.walk()
		c.late = nil
	}
	c.dirty = false
}

// walk derives all active items.
func (c *Context) walk() {
	items := c.items.s
	if c.head < 0 {
		for _, e := range items {
			c.add(e)
		}
		return
	}
	h := items[c.head]
	from := min(h.head, h.id)
	if from < h.id {
		c.stale = h.id // what is kept was written behind something else
	}
	c.add(h)
	start := sort.Search(len(items), func(i int) bool { return items[i].id >= from })
	for i := start; i < len(items); i++ {
		e := items[i]
		summedUp := e.head != 0 && e.head < e.id && e.id > from
		if i == c.head || i < c.head && summedUp {
			continue
		}
		c.add(e)
	}
}

// Messages returns what the next request may send: every call has its result,
// those that are still missing too. Appending to the slice never changes c,
// and c never changes the slice. It costs what changed since the last call.
func (c *Context) Messages() []model.Message {
	c.refresh()
	if c.round != nil && len(c.out.s) == c.settled {
		before := c.spoken
		c.write(c.round)
		c.spoken = before
	}
	return c.out.view()
}

// System returns what the system messages amount to: the newest baseline and
// the changes after it.
func (c *Context) System() model.System {
	c.refresh()
	return c.afterRound().system
}

// HasBaseline reports whether the model has been shown a complete system
// prompt. It is false at first, and when a head has cut it away.
func (c *Context) HasBaseline() bool {
	c.refresh()
	return c.afterRound().baseline
}

// OpenCalls returns the calls of the last assistant message that have no
// result yet, in order, by the ids under which their results are expected.
func (c *Context) OpenCalls() []model.Block {
	c.refresh()
	if c.round == nil {
		return nil
	}
	var open []model.Block
	for _, call := range c.round.calls {
		if call.result == nil {
			open = append(open, call.block)
		}
	}
	return open
}

// Clone returns an independent copy, in constant time but for the running
// round. Whichever of the two is appended to first goes on as cheaply as
// before; the other one copies its messages once.
func (c *Context) Clone() *Context {
	k := *c
	k.edits = c.edits.fork()
	k.used = c.used.fork()
	k.latest = c.latest.fork()
	k.unanswered = c.unanswered.fork()
	k.round = c.round.clone()
	return &k
}
