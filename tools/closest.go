package tools

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	// maxPlaces is how many places a message names.
	maxPlaces = 5
	// closestLines and closestBytes bound the text that a message shows.
	closestLines = 12
	closestBytes = 300
)

// places says where a text was found, for a message.
func (s *source) places(at []int) string {
	var lines []string
	for _, i := range at[:min(len(at), maxPlaces)] {
		lines = append(lines, fmt.Sprint(s.line(i)))
	}
	times := fmt.Sprintf("%d times, at lines %s", len(at), strings.Join(lines, ", "))
	if len(at) > maxPlaces {
		times = fmt.Sprintf("more than %d times, first at lines %s", maxPlaces, strings.Join(lines, ", "))
	}
	return times
}

var numbered = regexp.MustCompile(`(?m)^ *\d+\t`)

// explain helps with a text that is not in the file: what was done to it by
// mistake, or what in the file is closest to it.
func (s *source) explain(what string) string {
	if s.text == "" {
		return "The file is empty."
	}
	if plain := numbered.ReplaceAllString(what, ""); plain != what && strings.Contains(s.text, plain) {
		return "It has the line numbers that read shows; leave them out."
	}
	plain := strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\\`, `\`).Replace(what)
	if plain != what && strings.Contains(s.text, plain) {
		return `It has escapes, such as \n, for characters that the file has as themselves; write those.`
	}
	first, last, blanks := s.closest(what)
	if first == 0 {
		return "Nothing in it is like it; read the file again."
	}
	lines := strings.Split(s.text, "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "The closest text is at line %d", first)
	if blanks {
		b.WriteString(", and differs only in white space")
	}
	b.WriteString(":\n")
	for i := first; i <= min(last, first+closestLines-1); i++ {
		fmt.Fprintf(&b, "%6d\t%s\n", i, cut(lines[i-1], closestBytes))
	}
	if last >= first+closestLines {
		b.WriteString("…\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// closest finds the lines of the file that are most like what, counted from 1,
// 0 for none, and whether they differ from it in white space only. Lines that
// are equal but for white space show the place, the longer the better; when
// there are none it is the line that shares most with the longest one of what.
func (s *source) closest(what string) (first, last int, blanks bool) {
	lines := strings.Split(strings.TrimSuffix(s.text, "\n"), "\n")
	want := strings.Split(strings.Trim(what, "\n"), "\n")
	index := map[string][]int{} // of want, by squeezed line
	total, longest := 0, 0
	for j, w := range want {
		q := squeeze(w)
		total += len(q)
		if len(q) > len(squeeze(want[longest])) {
			longest = j
		}
		if q != "" && len(index[q]) < maxPlaces {
			index[q] = append(index[q], j)
		}
	}
	if total == 0 {
		return 0, 0, false
	}
	votes := map[int]int{} // by the line that what would begin at
	for i, l := range lines {
		q := squeeze(l)
		for _, j := range index[q] {
			votes[i-j] += len(q)
		}
	}
	start, best := 0, 0
	for at, v := range votes {
		if v > best || v == best && at < start {
			start, best = at, v
		}
	}
	if best*4 < total {
		i, score := mostShared(lines, squeeze(want[longest]))
		if score < 0.5 {
			return 0, 0, false
		}
		start, best = i-longest, 0
	}
	first, last = max(start, 0)+1, min(start+len(want), len(lines))
	same := func(w, l string) bool { return squeeze(w) == squeeze(l) }
	return first, last, best > 0 && slices.EqualFunc(want, lines[first-1:last], same)
}

// squeeze makes runs of white space one space.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }

// mostShared finds the line that has most of what's pairs of bytes, as a part
// of them.
func mostShared(lines []string, what string) (line int, score float64) {
	pairs := len(what) - 1
	if pairs < 1 {
		return 0, 0
	}
	count := make([]int32, 1<<16)
	for i := range pairs {
		count[pair(what, i)]++
	}
	left := slices.Clone(count)
	for n, l := range lines {
		l = l[:min(len(l), 10*len(what)+200)]
		shared := 0
		for i := 0; i+1 < len(l); i++ {
			if p := pair(l, i); left[p] > 0 {
				left[p]--
				shared++
			}
		}
		for i := 0; i+1 < len(l); i++ {
			p := pair(l, i)
			left[p] = count[p]
		}
		if part := float64(shared) / float64(pairs); part > score {
			line, score = n, part
		}
	}
	return line, score
}

func pair(s string, i int) uint16 { return uint16(s[i])<<8 | uint16(s[i+1]) }

// similarity is the part of their pairs of bytes that two words share, 0 to 1.
func similarity(a, b string) float64 {
	if a == b {
		return 1
	}
	if len(a) < 2 || len(b) < 2 {
		return 0
	}
	counts := map[uint16]int{}
	for i := range len(a) - 1 {
		counts[pair(a, i)]++
	}
	shared := 0
	for i := range len(b) - 1 {
		if p := pair(b, i); counts[p] > 0 {
			counts[p]--
			shared++
		}
	}
	return 2 * float64(shared) / float64(len(a)+len(b)-2)
}
