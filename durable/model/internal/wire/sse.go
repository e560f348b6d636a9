package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxEventSize bounds one event, so that a server without line ends cannot
// fill the memory.
const maxEventSize = 64 << 20

// ErrEventTooLarge is returned by [Reader.Next] for an event of more than
// 64 MiB.
var ErrEventTooLarge = errors.New("event is larger than the limit")

// Event is one server-sent event.
type Event struct {
	Type string // the event field, "" when there was none
	Data []byte // the data lines, joined by \n; never empty; valid until the next call
}

// Reader reads server-sent events. It is not safe for concurrent use.
//
// An event is returned as soon as the blank line that ends it was read; one
// that the end of the input cuts off is dropped, as the standard says. Events
// without data, comments and the fields id and retry are skipped.
type Reader struct {
	src io.Reader
	max int

	buf        []byte // read from src, of it buf[pos:] not yet used
	pos        int
	line       []byte // the line so far, when it spans reads
	data       []byte
	event      string
	hasData    bool
	skipLF     bool // the last line ended in CR, a following LF belongs to it
	pastBOM    bool
	err        error // what src ended with
	readBuffer [32 << 10]byte
}

// NewReader returns a Reader on src.
func NewReader(src io.Reader) *Reader { return &Reader{src: src, max: maxEventSize} }

// Next returns the next event, or io.EOF at the end of the input, or the error
// of the input, or [ErrEventTooLarge].
func (r *Reader) Next() (Event, error) {
	r.data, r.event, r.hasData = r.data[:0], "", false
	for {
		line, err := r.readLine()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if r.hasData && len(r.data) > 0 {
				return Event{Type: r.event, Data: r.data}, nil
			}
			r.data, r.event, r.hasData = r.data[:0], "", false
			continue
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "data":
			if len(r.data)+len(value) > r.max {
				return Event{}, r.fail(r.tooLarge())
			}
			if r.hasData {
				r.data = append(r.data, '\n')
			}
			r.data = append(r.data, value...)
			r.hasData = true
		case "event":
			r.event = string(value)
		}
	}
}

// readLine returns the next line without its end. It is valid until the next
// call.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		if r.pos == len(r.buf) {
			if err := r.fill(); err != nil {
				return nil, err
			}
		}
		if r.skipLF {
			r.skipLF = false
			if r.buf[r.pos] == '\n' {
				r.pos++
				continue
			}
		}
		rest := r.buf[r.pos:]
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			end = len(rest)
		}
		if cr := bytes.IndexByte(rest[:end], '\r'); cr >= 0 {
			end = cr
		}
		if len(r.line)+end > r.max {
			return nil, r.fail(r.tooLarge())
		}
		if end == len(rest) {
			r.line = append(r.line, rest...)
			r.pos = len(r.buf)
			continue
		}
		r.skipLF = rest[end] == '\r'
		r.pos += end + 1
		line := rest[:end]
		if len(r.line) > 0 {
			r.line = append(r.line, line...)
			line = r.line
		}
		if !r.pastBOM {
			r.pastBOM = true
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		return line, nil
	}
}

// fill reads at least one byte.
func (r *Reader) fill() error {
	for r.err == nil {
		n, err := r.src.Read(r.readBuffer[:])
		r.err = err
		r.buf, r.pos = r.readBuffer[:n], 0
		if n > 0 {
			return nil
		}
	}
	return r.err
}

func (r *Reader) fail(err error) error {
	r.err, r.buf, r.pos = err, nil, 0
	return err
}

func (r *Reader) tooLarge() error {
	return fmt.Errorf("%w of %d bytes", ErrEventTooLarge, r.max)
}
