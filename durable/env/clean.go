package env

import (
	"unicode"
	"unicode/utf8"
)

// CleanText returns s without invalid UTF-8 and without control characters
// other than tab and newline. Carriage returns are treated as [Output] does.
func CleanText(s string) string {
	var c cleaner
	return string(c.clean(make([]byte, 0, len(s)), []byte(s)))
}

// cleaner turns what a program prints into text, piece by piece: the result
// does not depend on where the pieces are cut. The zero value is ready.
//
// A carriage return before a newline, or at the start of a row, is dropped; any
// other one begins a new row, so that the states of a progress line stand below
// each other instead of running together. It is written only once something
// follows it.
type cleaner struct {
	pending []byte // the beginning of a UTF-8 sequence that is not complete
	row     bool   // the current row has a character
	cr      bool   // a carriage return waits for what follows
}

// clean appends the text of src to dst.
func (c *cleaner) clean(dst, src []byte) []byte {
	if len(c.pending) > 0 {
		src = append(c.pending, src...)
		c.pending = nil
	}
	for len(src) > 0 {
		if !utf8.FullRune(src) {
			c.pending = append([]byte(nil), src...)
			break
		}
		r, n := utf8.DecodeRune(src)
		char := src[:n]
		src = src[n:]
		switch {
		case r == '\n':
			dst = append(dst, '\n')
			c.row, c.cr = false, false
		case r == '\r':
			c.cr = c.row
		case r == utf8.RuneError && n == 1:
		case unicode.IsControl(r) && r != '\t':
		default:
			if c.cr {
				dst = append(dst, '\n')
				c.cr = false
			}
			dst = append(dst, char...)
			c.row = true
		}
	}
	return dst
}
