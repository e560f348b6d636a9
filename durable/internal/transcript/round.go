package transcript

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strconv"

	"github.com/wp-durable/wp-durable/durable/model"
)

// state is what was derived from the active items. Assistant messages are
// counted as they are met; at is that number, the left-out ones included.
type state struct {
	out     list[model.Message]
	settled int // how many of out stay; a running round was written behind them
	spoken
	round *round // the last assistant message, while calls of it are open
	next  int    // the number of the next assistant message
	stale int64  // thinking of items below this id is bound to what is gone

	used       table[string, int] // ids in out, with the last suffix given to each
	latest     table[string, int] // stored call id: number of the newest message with it
	unanswered table[callKey, []int]

	late  map[int][]lateResult // of the first walk, by number; nil but in a second one
	found []lateResult         // results whose round was given up before
}

// spoken is what matters of the messages so far for the next one.
type spoken struct {
	last     model.Role // of the last message that is not a system message
	system   model.System
	baseline bool
}

// round is an assistant message with calls, and what came after it.
type round struct {
	at      int
	message model.Message
	calls   []call
	held    []model.Message // said before the results were complete
}

type call struct {
	block  model.Block    // as stored
	id     string         // as sent
	result *model.Message // nil while missing
}

// callKey names the calls of one message that share a stored id.
type callKey struct {
	at int
	id string
}

type lateResult struct {
	at, call int
	item     int64
	message  model.Message
}

func (r *round) clone() *round {
	if r == nil {
		return nil
	}
	k := *r
	k.calls, k.held = slices.Clone(r.calls), slices.Clone(r.held)
	return &k
}

func (r *round) complete() bool {
	return !slices.ContainsFunc(r.calls, func(k call) bool { return k.result == nil })
}

// process derives the next message of the active items.
func (c *Context) process(item int64, m model.Message) {
	c.out.truncate(c.settled)
	switch m.Role {
	case model.RoleAssistant:
		c.answer(item, m)
	case model.RoleToolResult:
		c.result(item, m)
	default:
		if c.round != nil {
			c.round.held = append(c.round.held, m)
		} else {
			c.emit(m)
		}
	}
	c.settled = len(c.out.s)
}

// answer takes an assistant message. It ends a round that is still open: what
// is missing now stays missing, unless a late result is known.
func (c *Context) answer(item int64, m model.Message) {
	at := c.next
	c.next++
	for _, b := range m.Content {
		if b.Type == model.BlockToolCall {
			c.latest.set(b.ID, at)
		}
	}
	switch m.StopReason {
	case model.StopAborted, model.StopError, model.StopDeferred:
		return // latest has its calls, so that their results are dropped too
	}
	c.endRound()
	if item < c.stale {
		m.Content = cleanBlocks(m.Content, func(b *model.Block) (bool, bool) {
			return false, b.Type != model.BlockThinking
		})
	}
	r := &round{at: at, message: m}
	m.Content = cleanBlocks(m.Content, func(b *model.Block) (changed, keep bool) {
		if b.Type != model.BlockToolCall {
			return false, true
		}
		k := call{block: *b, id: c.unique(b.ID)}
		r.calls = append(r.calls, k)
		if k.id == b.ID {
			return false, true
		}
		b.ID, b.Raw = k.id, ""
		return true, true
	})
	r.message.Content = m.Content
	if len(r.calls) == 0 {
		c.emit(m)
		return
	}
	c.round = r
	for _, l := range c.late[at] {
		r.calls[l.call].result = &l.message
		c.stale = max(c.stale, l.item)
	}
	if r.complete() {
		c.endRound()
	}
}

// result takes a tool result: it belongs to the newest message with a call of
// that id, and there to the first call that has none.
func (c *Context) result(item int64, m model.Message) {
	at, ok := c.latest.get(m.ToolCallID)
	if !ok {
		return
	}
	if r := c.round; r != nil && r.at == at {
		for i := range r.calls {
			if r.calls[i].result == nil && r.calls[i].block.ID == m.ToolCallID {
				r.calls[i].result = &m
				break
			}
		}
		if r.complete() {
			c.endRound()
		}
		return
	}
	if c.late != nil {
		return // the first walk has placed it
	}
	key := callKey{at, m.ToolCallID}
	if open, _ := c.unanswered.get(key); len(open) > 0 {
		c.found = append(c.found, lateResult{at: at, call: open[0], item: item, message: m})
		c.unanswered.set(key, open[1:])
	}
}

// endRound writes the open round, if any, for good.
func (c *Context) endRound() {
	r := c.round
	if r == nil {
		return
	}
	c.round = nil
	c.write(r)
	for i, k := range r.calls {
		if k.result == nil {
			key := callKey{r.at, k.block.ID}
			open, _ := c.unanswered.get(key)
			c.unanswered.set(key, append(open, i))
		}
	}
}

// write appends a round to out: the message, its results in call order, then
// what was said meanwhile.
func (c *Context) write(r *round) {
	c.emit(r.message)
	for _, k := range r.calls {
		m := model.Message{
			Role: model.RoleToolResult, Content: missingResult, IsError: true,
			Timestamp: r.message.Timestamp,
		}
		if k.result != nil {
			m = *k.result
		}
		m.ToolCallID, m.ToolName = k.id, k.block.Name
		c.emit(m)
	}
	for _, m := range r.held {
		c.emit(m)
	}
}

var (
	missingResult = []model.Block{model.Text(MissingResult)}
	continued     = model.Message{Role: model.RoleUser, Content: []model.Block{model.Text(Continued)}}
)

// emit appends a message to out.
func (c *Context) emit(m model.Message) {
	if m.Role == model.RoleSystem {
		if c.hear(&m) {
			c.out.append(m)
		}
		return
	}
	if m.Role == model.RoleAssistant && needsUser(c.last) {
		c.out.append(continued)
	}
	c.out.append(m)
	c.last = m.Role
}

// needsUser reports whether a user message must come next after one of role
// last, empty for none.
func needsUser(last model.Role) bool { return last != model.RoleUser && last != model.RoleToolResult }

// hear takes a system message and reports whether the model is shown it.
// Without a baseline a change changes nothing.
func (s *spoken) hear(m *model.Message) bool {
	if !s.baseline && !m.Baseline {
		return false
	}
	nothing := len(m.Sections)+len(m.ToolsAdded)+len(s.system.Sections)+len(s.system.Tools) == 0
	s.baseline = true
	s.system.Apply(m)
	return !m.Baseline || !nothing
}

// afterRound returns what will have been said when the open round is written.
func (c *Context) afterRound() spoken {
	s := c.spoken
	if c.round != nil {
		for i := range c.round.held {
			if m := &c.round.held[i]; m.Role == model.RoleSystem {
				s.hear(m)
			}
		}
	}
	return s
}

// unique returns the id under which the next call with the stored id is sent:
// the id itself, or one told apart from all that came before.
func (c *Context) unique(id string) string {
	base := id
	if !sendable(id) {
		base = hashedID(id)
	}
	n, ok := c.used.get(base)
	if !ok {
		c.used.set(base, 1)
		return base
	}
	stem := base
	if len(stem) > maxID-16 {
		stem = hashedID(id)
	}
	for {
		n++
		next := stem + "_" + strconv.Itoa(n)
		if _, taken := c.used.get(next); !taken {
			c.used.set(base, n)
			c.used.set(next, 1)
			return next
		}
	}
}

const maxID = 64 // the longest call id that every provider takes

// hashedID returns an id that every provider takes, the same for the same id.
func hashedID(id string) string {
	sum := sha256.Sum256([]byte(id))
	return "call_" + hex.EncodeToString(sum[:12])
}

// sendable reports whether an id can be sent at all: the model that made it
// takes it back. Others may want less, see [ForModel].
func sendable(id string) bool {
	for i := 0; i < len(id); i++ {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return id != "" && len(id) <= 256
}
