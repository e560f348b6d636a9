package env_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable/env"
)

func TestOutput_Text(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"plain text stays", "a\tb\nc", "a\tb\nc"},
		{"control characters go", "a\x00\x07\x1b[31mb\x7f\u0085c", "a[31mbc"},
		{"invalid UTF-8 goes", "a\xffb\xe2\x82c\xed\xa0\x80d", "abcd"},
		{"the replacement character is text", "a\uFFFDb", "a\uFFFDb"},
		{"CRLF becomes a newline", "a\r\nb\r\r\nc\r\n", "a\nb\nc\n"},
		{"a lone carriage return begins a row", "10%\r20%\r\r30%\nok", "10%\n20%\n30%\nok"},
		{"one at the start of a row is dropped", "\rno\n\rno\n", "no\nno\n"},
		{"one at the end waits for what follows", "10%\r", "10%"},
		{"an incomplete sequence at the end waits", "a\xe2\x82", "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := env.NewOutput(nil)
			_, err := o.Write([]byte(tc.in))
			require.NoError(t, err)
			require.Equal(t, tc.want, o.String())
			require.Equal(t, tc.want, string(o.Bytes()))
			require.Equal(t, tc.want, env.CleanText(tc.in))
			require.False(t, o.Truncated())
			require.EqualValues(t, len(tc.in), o.Counts().Bytes)
		})
	}
}

func TestOutput_Bounds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		opts env.OutputOptions
		in   string
		want string
		cut  int64 // skipped bytes
		gone int64 // skipped lines
	}{
		{"tail fits exactly", env.OutputOptions{MaxBytes: 4}, "a\nb\n", "a\nb\n", 0, 0},
		{"tail drops whole lines", env.OutputOptions{MaxBytes: 5}, "aa\nbb\ncc", "bb\ncc", 3, 1},
		{"tail drops a line that does not fit whole", env.OutputOptions{MaxBytes: 4}, "aa\nbb\ncc", "cc", 6, 2},
		{"tail cuts a line over the bound", env.OutputOptions{MaxBytes: 4}, "x\nabcdefgh", "efgh", 6, 1},
		{"tail cuts a terminated line over the bound", env.OutputOptions{MaxBytes: 4}, "abcdefg\n", "efg\n", 4, 0},
		{"tail cuts at a character", env.OutputOptions{MaxBytes: 4}, "ab€€", "€", 5, 0},
		{"tail keeps lines", env.OutputOptions{MaxLines: 2}, "a\nb\nc\n", "b\nc\n", 2, 1},
		{"tail counts an open line", env.OutputOptions{MaxLines: 2}, "a\nb\nc", "b\nc", 2, 1},
		{"head fits exactly", env.OutputOptions{MaxBytes: 4, KeepHead: true}, "a\nb\n", "a\nb\n", 0, 0},
		{"head drops whole lines", env.OutputOptions{MaxBytes: 5, KeepHead: true}, "aa\nbb\ncc", "aa\n", 5, 2},
		{"head cuts a line over the bound", env.OutputOptions{MaxBytes: 4, KeepHead: true}, "abcdefgh\nx", "abcd", 6, 1},
		{"head cuts at a character", env.OutputOptions{MaxBytes: 4, KeepHead: true}, "ab€€", "ab", 4, 0},
		{"head keeps lines", env.OutputOptions{MaxLines: 2, KeepHead: true}, "a\nb\nc", "a\nb\n", 1, 1},
		{"head with its last line full stays open", env.OutputOptions{MaxLines: 2, KeepHead: true}, "a\nb\n", "a\nb\n", 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			o := env.NewOutput(&tc.opts)
			_, err := o.Write([]byte(tc.in))
			require.NoError(t, err)
			require.Equal(t, tc.want, o.String())
			c := o.Counts()
			require.EqualValues(t, len(tc.in), c.Bytes)
			require.Equal(t, tc.gone, c.SkippedLines)
			require.Equal(t, tc.cut > 0, o.Truncated())
			require.Equal(t, tc.cut, c.SkippedBytes)
		})
	}
}

func TestOutput_Defaults(t *testing.T) {
	t.Parallel()
	o := env.NewOutput(nil)
	for i := range 3000 {
		_, err := fmt.Fprintf(o, "line %d\n", i)
		require.NoError(t, err)
	}
	require.Equal(t, env.OutputCounts{Bytes: 28890, Lines: 3000, SkippedBytes: 8890, SkippedLines: 1000}, o.Counts())
	o = env.NewOutput(nil)
	_, err := o.Write(bytes.Repeat([]byte("123456789\n"), 20000))
	require.NoError(t, err)
	require.Len(t, o.String(), 20000)
	o = env.NewOutput(nil)
	_, err = o.Write(bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 20000))
	require.NoError(t, err)
	require.Len(t, o.String(), 50<<10/100*100)
}

// printed generates what a program may print: lines, long and short, split and
// broken sequences, carriage returns.
func printed() *rapid.Generator[[]byte] {
	piece := rapid.SampledFrom([]string{
		"a", "bc", "\n", "\n", "\r\n", "\r", "€", "😀", "é", "\xe2\x82", "\xff", "\x80", "\xf0\x9f", "\x00", "\x1b[1m", "\t", "\u0085",
	})
	return rapid.Custom(func(t *rapid.T) []byte {
		return []byte(strings.Join(rapid.SliceOfN(piece, 0, 60).Draw(t, "pieces"), ""))
	})
}

func options() *rapid.Generator[env.OutputOptions] {
	return rapid.Custom(func(t *rapid.T) env.OutputOptions {
		return env.OutputOptions{
			MaxBytes: rapid.IntRange(1, 40).Draw(t, "maxBytes"),
			MaxLines: rapid.IntRange(1, 6).Draw(t, "maxLines"),
			KeepHead: rapid.Bool().Draw(t, "keepHead"),
		}
	})
}

// pieces cuts p at random places.
func pieces(t *rapid.T, p []byte) [][]byte {
	var out [][]byte
	for len(p) > 0 {
		n := rapid.IntRange(1, len(p)).Draw(t, "piece")
		out = append(out, p[:n])
		p = p[n:]
	}
	return out
}

// lines counts as a person does: a last line without a newline is a line.
func lines(p []byte) int64 {
	n := int64(bytes.Count(p, []byte("\n")))
	if len(p) > 0 && p[len(p)-1] != '\n' {
		n++
	}
	return n
}

// window is the meaning of the bounds, on the whole of what was printed.
func window(opts env.OutputOptions, p []byte) []byte {
	fits := func(q []byte) bool { return len(q) <= opts.MaxBytes && lines(q) <= int64(opts.MaxLines) }
	if fits(p) {
		return p
	}
	all := bytes.SplitAfter(p, []byte("\n"))
	if len(all[len(all)-1]) == 0 {
		all = all[:len(all)-1]
	}
	if opts.KeepHead {
		for n := len(all) - 1; n > 0; n-- {
			if q := bytes.Join(all[:n], nil); fits(q) {
				return q
			}
		}
		return all[0][:min(len(all[0]), opts.MaxBytes)]
	}
	for n := 1; n < len(all); n++ {
		if q := bytes.Join(all[n:], nil); fits(q) {
			return q
		}
	}
	last := all[len(all)-1]
	last = last[max(len(last)-opts.MaxBytes, 0):]
	for i := 0; i < 3 && len(last) > 0 && !utf8.RuneStart(last[0]); i++ {
		last = last[1:]
	}
	return last
}

// (E10.3): the text and the counts are what the bounds say, for every split.
func TestOutput_Split(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, opts := printed().Draw(t, "printed"), options().Draw(t, "options")
		o := env.NewOutput(&opts)
		for _, q := range pieces(t, p) {
			_, err := o.Write(q)
			require.NoError(t, err)
		}
		kept := window(opts, p)
		require.Equal(t, env.CleanText(string(kept)), o.String())
		require.True(t, utf8.ValidString(o.String()))
		for _, r := range o.String() {
			require.False(t, unicode.IsControl(r) && r != '\n' && r != '\t', "control character %q", r)
		}
		c := o.Counts()
		require.EqualValues(t, len(p), c.Bytes)
		require.Equal(t, lines(p), c.Lines)
		require.Equal(t, lines(p)-lines(kept), c.SkippedLines)
		require.EqualValues(t, len(p)-len(kept), c.SkippedBytes)
		require.Equal(t, c.SkippedBytes > 0, o.Truncated())
	})
}

// (E10.7): an environment that leaves out what the window cannot show, cutting
// at a character, gives the same text and counts as one that sends all.
func TestOutput_SkippedEqualsFull(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, opts := printed().Draw(t, "printed"), options().Draw(t, "options")
		opts.KeepHead = false
		opts.MaxBytes = min(opts.MaxBytes, 12)
		full, part := env.NewOutput(&opts), env.NewOutput(&opts)
		_, err := full.Write(p)
		require.NoError(t, err)
		for _, batch := range pieces(t, p) {
			from := max(0, len(batch)-part.Window())
			for i := 0; i < utf8.UTFMax-1 && from > 0 && !utf8.RuneStart(batch[from]); i++ {
				from++
			}
			skipped := batch[:from]
			part.Receive(env.Stdout, string(batch[from:]), int64(from), int64(bytes.Count(skipped, []byte("\n"))))
		}
		require.Equal(t, full.String(), part.String())
		require.Equal(t, full.Counts(), part.Counts())
	})
}

func TestOutput_Skip(t *testing.T) {
	t.Parallel()
	t.Run("what stood before a gap is dropped from a tail", func(t *testing.T) {
		t.Parallel()
		o := env.NewOutput(nil)
		o.Receive(env.Stdout, "one\ntwo\n", 0, 0)
		o.Receive(env.Stderr, "ree\nfour\n", 100, 7)
		require.Equal(t, "four\n", o.String())
		require.Equal(t, env.OutputCounts{Bytes: 117, Lines: 11, SkippedBytes: 112, SkippedLines: 10}, o.Counts())
	})
	t.Run("nothing after a gap is kept in a head", func(t *testing.T) {
		t.Parallel()
		o := env.NewOutput(&env.OutputOptions{KeepHead: true})
		o.Receive(env.Stdout, "one\ntw", 0, 0)
		o.Receive(env.Stdout, "ree\nfour\n", 100, 7)
		require.Equal(t, "one\n", o.String())
		require.Equal(t, env.OutputCounts{Bytes: 115, Lines: 10, SkippedBytes: 111, SkippedLines: 9}, o.Counts())
	})
	t.Run("a head asks for all of it", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, env.NewOutput(&env.OutputOptions{KeepHead: true}).Window())
		require.Equal(t, 64<<10+4, env.NewOutput(&env.OutputOptions{MaxBytes: 64 << 10}).Window())
	})
}

// A reader of the deltas has a text that ends with the kept text, exactly it
// while nothing was cut, and the cost is linear.
func TestOutput_TakeDelta(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p, opts := printed().Draw(t, "printed"), options().Draw(t, "options")
		o := env.NewOutput(&opts)
		var reader string
		var cost int
		take := func() {
			delta, reset := o.TakeDelta()
			if reset {
				reader = ""
			}
			reader += delta
			cost += len(delta)
			if o.Truncated() {
				require.True(t, strings.HasSuffix(reader, o.String()), "%q ends with %q", reader, o.String())
			} else {
				require.Equal(t, o.String(), reader)
			}
			require.LessOrEqual(t, len(reader), 5*opts.MaxBytes+2*opts.MaxBytes)
		}
		for _, q := range pieces(t, p) {
			if rapid.IntRange(0, 9).Draw(t, "skip") == 0 {
				o.Skip(int64(rapid.IntRange(1, 50).Draw(t, "skipped")), 1)
			}
			_, err := o.Write(q)
			require.NoError(t, err)
			if rapid.Bool().Draw(t, "take") {
				take()
			}
		}
		take()
		require.LessOrEqual(t, cost, len(p)*4/3+opts.MaxBytes)
	})
}

func TestOutput_TakeDelta_Reset(t *testing.T) {
	t.Parallel()
	o := env.NewOutput(&env.OutputOptions{MaxBytes: 8})
	step := func(in, want string, wantReset bool) {
		t.Helper()
		_, err := o.Write([]byte(in))
		require.NoError(t, err)
		delta, reset := o.TakeDelta()
		require.Equal(t, want, delta)
		require.Equal(t, wantReset, reset)
	}
	step("one\n", "one\n", false)
	step("tw", "tw", false)
	step("o\n", "o\n", false)
	step("", "", false)
	step("a very long line\nend\n", "end\n", true)
	for range 6 {
		step("1234\n", "1234\n", false)
	}
	step("5678\n", "5678\n", true) // after four windows the reader starts anew
	step("9\n", "9\n", false)
}

// What a window costs does not depend on how much goes through it.
func BenchmarkOutput(b *testing.B) {
	line := []byte(strings.Repeat("x", 79) + "\n")
	o := env.NewOutput(nil)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		_, _ = o.Write(line)
	}
}
