package secrets

import (
	"bytes"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	// MinLength is the least length of a secret in bytes. Shorter ones would
	// be found in ordinary text.
	MinLength = 8
	// Mask is what stands in place of a secret.
	Mask = "[redacted]"
)

// Redactor masks secrets in text. A nil *Redactor knows none. Its methods may
// be called concurrently; a secret added while a text is masked may be missed
// in that text.
type Redactor struct {
	matcher atomic.Pointer[matcher] // nil while there are no secrets

	mu    sync.Mutex // serialises Add
	known []string
}

// NewRedactor returns a redactor that knows no secret yet.
func NewRedactor() *Redactor { return &Redactor{} }

// Add makes the redactor know values. Empty values are ignored. One shorter
// than [MinLength] is an error that has name but not the value; then none is
// added.
func (r *Redactor) Add(name string, values ...string) error {
	for _, v := range values {
		if v != "" && len(v) < MinLength {
			return fmt.Errorf("%s: a secret has at least %d bytes, this one has %d", name, MinLength, len(v))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range values {
		if v != "" && !slices.Contains(r.known, v) {
			r.known = append(r.known, v)
		}
	}
	if len(r.known) == 0 {
		return nil
	}
	var patterns []pattern
	for _, v := range r.known {
		patterns = append(patterns, variants(v)...)
	}
	r.matcher.Store(newMatcher(patterns))
	return nil
}

func (r *Redactor) load() *matcher {
	if r == nil {
		return nil
	}
	return r.matcher.Load()
}

// String returns s with all secrets masked.
func (r *Redactor) String(s string) string {
	m := r.load()
	if m == nil || len(s) < MinLength {
		return s
	}
	if masked, found := m.mask(view(s)); found {
		return string(masked)
	}
	return s
}

// Bytes returns b with all secrets masked: b itself when there are none, else
// a copy.
func (r *Redactor) Bytes(b []byte) []byte {
	m := r.load()
	if m == nil {
		return b
	}
	if masked, found := m.mask(b); found {
		return masked
	}
	return b
}

// block is how much of a long text is looked at together.
const block = 32 << 10

// mask returns text with all secrets masked, and whether there were any.
func (m *matcher) mask(text []byte) (masked []byte, found bool) {
	if len(text) <= block || bytes.IndexByte(text, '%') < 0 {
		spans, _ := m.find(text, true)
		if len(spans) == 0 {
			return nil, false
		}
		var k masker
		return k.write(nil, text, spans, len(text)), true
	}
	var k masker
	dst := make([]byte, 0, len(text))
	for len(text) > block {
		dst = k.next(m, dst, text[:block], false)
		text = text[block:]
	}
	dst = k.next(m, dst, text, true)
	return dst, k.found
}
