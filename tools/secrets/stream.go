package secrets

import (
	"io"
	"sync"
	"unsafe"
)

// Stream masks one text that comes in pieces. It is not safe for concurrent
// use.
type Stream struct {
	r     *Redactor
	k     masker
	found bool // in texts that are over
}

// Stream returns a masker for a text that comes in pieces.
func (r *Redactor) Stream() *Stream { return &Stream{r: r} }

// JSONStream returns a masker for JSON text that comes in pieces. It looks for
// secrets in what the strings mean, however they are escaped. What it passes
// on, joined, is JSON as the text is, unless a secret is a number in it or has
// quotes of it.
func (r *Redactor) JSONStream() *Stream { return &Stream{r: r, k: masker{json: true}} }

// Next takes the next piece and returns what may be shown now. A piece, or the
// end of one, that may be the beginning of a secret is held back until it is
// known.
func (s *Stream) Next(piece string) string {
	m := s.r.load()
	if m == nil {
		return piece
	}
	if len(s.k.held) == 0 && s.k.covered == 0 {
		// Nearly every piece can be shown as it is.
		if spans, limit := s.k.find(m, view(piece), false); len(spans) == 0 && limit == len(piece) {
			return piece
		}
	}
	return string(s.k.next(m, nil, []byte(piece), false))
}

// view returns the bytes of s without a copy, for looking only.
func view(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// End returns what was held back: the text is over. The stream may be used for
// another text.
func (s *Stream) End() string {
	m := s.r.load()
	k := s.k
	s.k = masker{json: k.json}
	var rest []byte
	if m != nil && len(k.held) > 0 {
		rest = k.next(m, nil, nil, true)
	}
	s.found = s.found || k.found
	return string(rest)
}

// Found reports whether a secret was masked so far, in any text.
func (s *Stream) Found() bool { return s.found || s.k.found }

// Writer masks what is written through it, also where a secret is split
// between writes. It is safe for concurrent use, but writes of several texts
// at once are one text.
type Writer struct {
	r *Redactor
	w io.Writer

	mu  sync.Mutex // guards the rest
	k   masker
	buf []byte
}

// Writer returns a writer that passes on to w.
func (r *Redactor) Writer(w io.Writer) *Writer { return &Writer{r: r, w: w} }

// Write passes p on, masked. The end of p is held back while it may be the
// beginning of a secret.
func (w *Writer) Write(p []byte) (int, error) {
	m := w.r.load()
	if m == nil {
		return w.w.Write(p)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = w.k.next(m, w.buf[:0], p, false)
	if len(w.buf) == 0 {
		return len(p), nil
	}
	if _, err := w.w.Write(w.buf); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Flush passes on what was held back: the text is over, or it must be shown
// now even if a secret that is split here would show. It does not close or
// flush the writer behind it.
func (w *Writer) Flush() error {
	m := w.r.load()
	w.mu.Lock()
	defer w.mu.Unlock()
	if m == nil || len(w.k.held) == 0 {
		return nil
	}
	w.buf = w.k.next(m, w.buf[:0], nil, true)
	w.k = masker{}
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buf)
	return err
}
