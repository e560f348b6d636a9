package secrets

import (
	"io"
	"sync"
)

// Stream masks one text that comes in pieces. It is not safe for concurrent
// use.
type Stream struct {
	r *Redactor
	k masker
}

// Stream returns a masker for a text that comes in pieces.
func (r *Redactor) Stream() *Stream { return &Stream{r: r} }

// Next takes the next piece and returns what may be shown now. A piece, or the
// end of one, that may be the beginning of a secret is held back until it is
// known.
func (s *Stream) Next(piece string) string {
	m := s.r.load()
	if m == nil {
		return piece
	}
	return string(s.k.next(m, nil, []byte(piece), false))
}

// End returns what was held back: the text is over. The stream may be used for
// another text.
func (s *Stream) End() string {
	m := s.r.load()
	if m == nil || len(s.k.held) == 0 {
		s.k = masker{}
		return ""
	}
	rest := string(s.k.next(m, nil, nil, true))
	s.k = masker{}
	return rest
}

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
