package tools

import (
	"fmt"
	"slices"
	"strings"
)

// maxEdits bounds the search for a smallest difference; behind it the whole
// range between the first and the last difference counts as changed.
const maxEdits = 1000

// contextLines is how many unchanged lines stand around a change.
const contextLines = 3

// change is a line of a comparison.
type change struct {
	op   byte // ' ', '-' or '+'
	line string
}

// comparison is the difference of two texts by lines.
type comparison struct {
	changes        []change
	added, removed int
	first          int // first changed line of the new text, 0 for none
}

// diff compares two texts by lines, without regard to CRLF or LF.
func diff(old, text string) *comparison {
	a, b := splitLines(old), splitLines(text)
	prefix := 0
	for prefix < min(len(a), len(b)) && a[prefix] == b[prefix] {
		prefix++
	}
	suffix := 0
	for suffix < min(len(a), len(b))-prefix && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	c := &comparison{}
	add := func(op byte, lines []string) {
		for _, l := range lines {
			c.changes = append(c.changes, change{op, l})
		}
	}
	add(' ', a[:prefix])
	c.changes = append(c.changes, shortest(a[prefix:len(a)-suffix], b[prefix:len(b)-suffix])...)
	add(' ', a[len(a)-suffix:])
	line := 1
	for _, ch := range c.changes {
		if ch.op != ' ' && c.first == 0 {
			c.first = line
		}
		switch ch.op {
		case '+':
			c.added++
			line++
		case '-':
			c.removed++
		default:
			line++
		}
	}
	return c
}

// splitLines splits a text into its lines; one without a newline at the end is
// told from one with.
func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n")
	last := len(lines) - 1
	if lines[last] == "" {
		return lines[:last]
	}
	lines[last] += noNewline
	return lines
}

const noNewline = "\n\\ No newline at end of file"

// shortest finds a shortest way from a to b: the greedy search of Myers, where
// ends[k] is how far in a the best way with x-y = k has come.
func shortest(a, b []string) []change {
	limit := min(len(a)+len(b), maxEdits)
	ends := make([]int, 2*limit+3)
	at := func(k int) *int { return &ends[k+limit+1] }
	var trace [][]int // ends before each step, from k = -d to d
	for d := 0; d <= limit; d++ {
		trace = append(trace, slices.Clone(ends[limit+1-d-1:limit+1+d+2]))
		for k := -d; k <= d; k += 2 {
			x := 0
			if k == -d || k != d && *at(k - 1) < *at(k + 1) {
				x = *at(k + 1)
			} else {
				x = *at(k - 1) + 1
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			*at(k) = x
			if x >= len(a) && x-k >= len(b) {
				return walkBack(a, b, trace)
			}
		}
	}
	var all []change
	for _, l := range a {
		all = append(all, change{'-', l})
	}
	for _, l := range b {
		all = append(all, change{'+', l})
	}
	return all
}

// walkBack follows the trace of a search from the ends of both texts.
func walkBack(a, b []string, trace [][]int) []change {
	var back []change
	x, y := len(a), len(b)
	for d := len(trace) - 1; d >= 0; d-- {
		ends := trace[d]
		at := func(k int) int { return ends[k+d+1] }
		k := x - y
		from := k - 1
		if k == -d || k != d && at(k-1) < at(k+1) {
			from = k + 1
		}
		fromX := at(from)
		fromY := fromX - from
		if d == 0 {
			fromX, fromY = 0, 0
		}
		for x > fromX && y > fromY {
			x, y = x-1, y-1
			back = append(back, change{' ', a[x]})
		}
		switch {
		case d == 0:
		case from == k+1:
			y--
			back = append(back, change{'+', b[y]})
		default:
			x--
			back = append(back, change{'-', a[x]})
		}
	}
	slices.Reverse(back)
	return back
}

// unified writes the comparison as a unified diff of the file at path, empty
// when nothing differs.
func (c *comparison) unified(path string, created bool) string {
	if c.added+c.removed == 0 {
		return ""
	}
	var b strings.Builder
	from := "a/" + path
	if created {
		from = "/dev/null"
	}
	fmt.Fprintf(&b, "--- %s\n+++ b/%s\n", from, path)
	oldLine, newLine := 1, 1
	for i := 0; i < len(c.changes); {
		if c.changes[i].op == ' ' {
			i++
			oldLine, newLine = oldLine+1, newLine+1
			continue
		}
		// the hunk goes on while changes are near each other
		start := max(0, i-contextLines)
		end, quiet := i, 0
		for j := i; j < len(c.changes) && quiet <= 2*contextLines; j++ {
			if c.changes[j].op == ' ' {
				quiet++
			} else {
				quiet, end = 0, j+1
			}
		}
		stop := min(end+contextLines, len(c.changes))
		c.hunk(&b, c.changes[start:stop], oldLine-(i-start), newLine-(i-start))
		for _, ch := range c.changes[i:stop] {
			if ch.op != '+' {
				oldLine++
			}
			if ch.op != '-' {
				newLine++
			}
		}
		i = stop
	}
	return b.String()
}

func (c *comparison) hunk(b *strings.Builder, changes []change, oldLine, newLine int) {
	olds, news := 0, 0
	for _, ch := range changes {
		if ch.op != '+' {
			olds++
		}
		if ch.op != '-' {
			news++
		}
	}
	span := func(line, n int) string {
		switch n {
		case 0:
			return fmt.Sprintf("%d,0", line-1)
		case 1:
			return fmt.Sprint(line)
		}
		return fmt.Sprintf("%d,%d", line, n)
	}
	fmt.Fprintf(b, "@@ -%s +%s @@\n", span(oldLine, olds), span(newLine, news))
	for _, ch := range changes {
		b.WriteByte(ch.op)
		b.WriteString(ch.line)
		b.WriteByte('\n')
	}
}
