// Package secrets keeps credentials out of everything that is shown or stored:
// [Capture] takes them out of the process environment at start, [Redactor]
// masks them in text (S1.3).
//
// # Masking
//
// A [Redactor] knows a set of values, each of at least [MinLength] bytes, and
// replaces them by [Mask] wherever they stand:
//
//   - as they are
//   - base64-encoded, standard or URL alphabet, alone or in the middle of
//     something longer, so at each of the three alignments, also broken into
//     lines
//   - URL-encoded, whichever of their bytes an encoder chose to escape
//   - as text of a JSON or Go string, with escapes
//
// Values that overlap are masked as one. The result does not depend on how a
// text was cut: what [Redactor.Writer] and [Redactor.Stream] pass on, joined,
// equals what [Redactor.String] makes of the whole. They hold text back only
// while it may be the beginning of a secret.
//
// Not recognised are values in other encodings (hexadecimal, compressed).
//
// This package depends on the standard library and golang.org/x/sys alone and
// knows nothing of the engine.
package secrets
