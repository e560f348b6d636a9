package env

import (
	"bytes"
	"cmp"
	"unicode/utf8"
)

// The default bounds of an [Output].
const (
	DefaultOutputBytes = 50 << 10
	DefaultOutputLines = 2000
)

// OutputOptions bound an [Output]. Every zero field has the default it names.
type OutputOptions struct {
	// MaxBytes is the most that is kept, counted as it was printed. Default:
	// DefaultOutputBytes.
	MaxBytes int
	// MaxLines is the most lines that are kept. Default: DefaultOutputLines.
	MaxLines int
	// KeepHead keeps the beginning instead of the end.
	KeepHead bool
}

// Output is a bounded window on what a command prints (E10.3): its end, or its
// beginning, in whole lines, as text that a model can be given. Only a line
// that alone is over the bound is cut. It also counts everything, whatever was
// kept.
//
// A line ends at a newline. Bytes are counted as printed; the text holds no
// invalid UTF-8 and no control characters other than tab and newline, so it may
// be shorter than the bound. CRLF becomes a newline, and a lone carriage
// return, with which programs rewrite a progress line, begins a new row of the
// same line.
//
// How the input is split over calls never matters. Where an environment leaves
// out what the window can no longer show, it tells the counts by [Output.Skip]:
// when what follows the last skip is at least [Output.Window] bytes, less what
// a cut at a character takes, text and counts equal those of a full transfer
// (E10.7).
//
// An Output must not be used by several goroutines at once.
type Output struct {
	maxBytes int
	maxLines int
	head     bool

	// buf is printed bytes as they came, beginning at position start of all.
	// Tail: the last ones, at least maxBytes when there were as many since
	// the last skip. Head: what is kept.
	buf    []byte
	start  int64
	whole  bool  // buf begins at the start of a line
	full   bool  // head: no more is kept
	heads  int   // head: newlines in buf
	bytes  int64 // printed in all
	breaks int64 // newlines printed in all
	open   bool  // the last byte printed is not a newline

	delta cleaner // behind the text that TakeDelta has returned
	taken int64   // position up to which it has
	given int     // bytes it has returned since its last reset
	stale bool    // what it has returned is no longer part of the text
}

// NewOutput makes an empty Output; opts may be nil.
func NewOutput(opts *OutputOptions) *Output {
	var c OutputOptions
	if opts != nil {
		c = *opts
	}
	return &Output{
		maxBytes: cmp.Or(max(c.MaxBytes, 0), DefaultOutputBytes),
		maxLines: cmp.Or(max(c.MaxLines, 0), DefaultOutputLines),
		head:     c.KeepHead,
		whole:    true,
	}
}

// OutputCounts says how much was printed and how much of it the text leaves
// out. A last line without a newline is a line.
type OutputCounts struct {
	Bytes, Lines               int64
	SkippedBytes, SkippedLines int64
}

// Write adds output. It keeps no reference to p and never fails.
func (o *Output) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	o.bytes += int64(len(p))
	o.breaks += int64(bytes.Count(p, newline))
	o.open = p[len(p)-1] != '\n'
	if o.head {
		o.writeHead(p)
	} else {
		o.writeTail(p)
	}
	return len(p), nil
}

// Receive adds what an environment reports; it is made to be the Output
// function of an [ExecRequest].
func (o *Output) Receive(_ Stream, text string, skippedBytes, skippedLines int64) {
	o.Skip(skippedBytes, skippedLines)
	_, _ = o.Write([]byte(text))
}

// Skip counts output that was left out at this point.
func (o *Output) Skip(skippedBytes, skippedLines int64) {
	if skippedBytes <= 0 {
		return
	}
	o.bytes += skippedBytes
	o.breaks += max(skippedLines, 0)
	o.open = false
	if o.head {
		o.closeHead()
		return
	}
	o.buf, o.start, o.whole = o.buf[:0], o.bytes, false
	o.stale = true
}

// Window is the Window to give an [ExecRequest] whose output comes here, 0 for
// all of it. It is a little more than the bound: one byte to see whether the
// text begins at the start of a line, and room for a cut at a character.
func (o *Output) Window() int {
	if o.head {
		return 0
	}
	return o.maxBytes + utf8.UTFMax
}

// String returns the kept text.
func (o *Output) String() string {
	var c cleaner
	return string(c.clean(nil, o.kept()))
}

// Bytes returns the kept text in memory of the caller's own.
func (o *Output) Bytes() []byte {
	var c cleaner
	return c.clean(nil, o.kept())
}

// Truncated reports whether the text leaves out any of what was printed.
func (o *Output) Truncated() bool { return o.bytes > int64(len(o.kept())) }

// Counts returns the counts up to now.
func (o *Output) Counts() OutputCounts {
	kept := o.kept()
	c := OutputCounts{Bytes: o.bytes, Lines: o.breaks}
	if o.open {
		c.Lines++
	}
	c.SkippedBytes = c.Bytes - int64(len(kept))
	c.SkippedLines = max(c.Lines-int64(countLines(kept)), 0)
	return c
}

// TakeDelta returns text that was added since the last call, for readers that
// follow. With reset true, delta is the whole text as it is now and what was
// taken before must be thrown away. What a reader then has ends with
// [Output.String]; before that it may have up to about four windows of text
// that the window has left behind. Over any number of calls it returns at most
// a third more than was printed, and one window.
func (o *Output) TakeDelta() (delta string, reset bool) {
	end := o.start + int64(len(o.buf))
	if !o.stale && o.taken >= o.start && o.given < 4*o.maxBytes {
		text := o.delta.clean(nil, o.buf[o.taken-o.start:])
		o.taken = end
		o.given += len(text)
		return string(text), false
	}
	reset = o.given > 0
	o.delta = cleaner{}
	text := o.delta.clean(nil, o.kept())
	o.taken, o.given, o.stale = end, len(text), false
	return string(text), reset
}

var newline = []byte{'\n'}

// countLines counts the lines of p, a last one without a newline too.
func countLines(p []byte) int {
	n := bytes.Count(p, newline)
	if len(p) > 0 && p[len(p)-1] != '\n' {
		n++
	}
	return n
}

// kept returns the printed bytes that the text is made of, a part of buf. In
// the tail, its beginning only ever moves forward.
func (o *Output) kept() []byte {
	if o.head {
		return o.buf
	}
	p, whole := o.buf, o.whole
	if n := len(p) - o.maxBytes; n > 0 {
		whole = p[n-1] == '\n'
		p = p[n:]
	}
	if !whole {
		if i := bytes.IndexByte(p, '\n'); i >= 0 && i+1 < len(p) {
			p = p[i+1:]
		} else { // one line over the bound: cut at a character
			for i := 0; i < utf8.UTFMax-1 && len(p) > 0 && !utf8.RuneStart(p[0]); i++ {
				p = p[1:]
			}
		}
	}
	for n := countLines(p) - o.maxLines; n > 0; n-- {
		p = p[bytes.IndexByte(p, '\n')+1:]
	}
	return p
}

// writeTail appends p and forgets what no window can show any more, in one
// piece when it is as much as a window, so that each byte is moved once.
func (o *Output) writeTail(p []byte) {
	keep := o.maxBytes
	if n := len(p) - keep; n >= 0 {
		switch {
		case n > 0:
			o.whole = p[n-1] == '\n'
		case len(o.buf) > 0:
			o.whole = o.buf[len(o.buf)-1] == '\n'
		}
		o.start += int64(len(o.buf) + n)
		o.buf = append(o.buf[:0], p[n:]...)
		return
	}
	if n := len(o.buf) + len(p) - keep; n >= keep {
		o.whole = o.buf[n-1] == '\n'
		o.start += int64(n)
		o.buf = append(o.buf[:0], o.buf[n:]...)
	}
	o.buf = append(o.buf, p...)
}

// writeHead appends what of p still fits.
func (o *Output) writeHead(p []byte) {
	if o.full {
		return
	}
	fits := p[:min(len(p), o.maxBytes-len(o.buf))]
	for i, b := range fits {
		if o.heads == o.maxLines {
			fits = fits[:i]
			break
		}
		if b == '\n' {
			o.heads++
		}
	}
	o.buf = append(o.buf, fits...)
	if len(fits) < len(p) {
		o.closeHead()
	}
}

// closeHead keeps the whole lines that there are and no more after them.
func (o *Output) closeHead() {
	if o.full {
		return
	}
	o.full = true
	if i := bytes.LastIndexByte(o.buf, '\n'); i >= 0 {
		o.buf = o.buf[:i+1]
	}
	if o.taken > int64(len(o.buf)) {
		o.stale = true
	}
}
