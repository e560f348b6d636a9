package tools

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
)

//go:embed edit.md
var editText string

const (
	// editBytes bounds the files that can be edited; edit holds them whole.
	editBytes = 10 << 20
	// shownDiff bounds the diff that the model reads.
	shownDiff = 32 << 10
)

type editArgs struct {
	Path  string     `json:"path" jsonschema:"path of the file, relative to the work folder"`
	Edits []textEdit `json:"edits" jsonschema:"the changes"`
}

type textEdit struct {
	OldText string `json:"oldText" jsonschema:"text that is in the file exactly once"`
	NewText string `json:"newText" jsonschema:"text to put in its place"`
}

func newEdit() *durable.Tool {
	return durable.NewTool(durable.ToolSpec{
		Name: "edit", Title: "Edit a file", Description: strings.TrimSpace(editText), Prepare: prepareEdit,
	}, func(ctx context.Context, call *durable.ToolCall, args editArgs) (durable.ToolResult, error) {
		e, err := call.Env(ctx)
		if err != nil {
			return durable.ToolResult{}, err
		}
		return runEdit(ctx, e, args)
	})
}

// runEdit changes a file (S5.4).
func runEdit(ctx context.Context, e env.Environment, args editArgs) (durable.ToolResult, error) {
	unlock, err := locks.lock(ctx, e, args.Path)
	if err != nil {
		return durable.ToolResult{}, err
	}
	defer unlock()
	r, err := e.Open(ctx, args.Path)
	if err != nil {
		return failed(ctx, err, hint(ctx, e, args.Path, code(err)))
	}
	b, err := io.ReadAll(io.LimitReader(contextReader{ctx, r}, editBytes+1))
	_ = r.Close()
	if err != nil {
		return failed(ctx, err, "")
	}
	if len(b) > editBytes {
		return durable.ErrorResult(fmt.Sprintf("%s has more than %s, too much for edit; change it with a command", args.Path, size(editBytes))), nil
	}
	old := string(b)
	text, problems := applyEdits(old, args.Edits)
	if len(problems) > 0 {
		return durable.ErrorResult(fmt.Sprintf("Nothing was changed in %s.\n%s", args.Path, strings.Join(problems, "\n"))), nil
	}
	if err := e.Write(ctx, args.Path, strings.NewReader(text), env.WriteOptions{}); err != nil {
		return failed(ctx, err, "")
	}
	d := fileDetails{Path: args.Path, Bytes: int64(len(text)), Lines: countLines(text)}
	d.setDiff(old, text)
	result := durable.TextResult(fmt.Sprintf("Edited %s: %s.\n%s",
		args.Path, count(int64(len(args.Edits)), "replacement"), cutDiff(d.Diff, shownDiff)))
	result.Details = details(d)
	return result, nil
}

const bom = "\uFEFF"

// source is a file's content, as it is and as oldText is matched with it:
// without a byte order mark, its lines ending with LF.
type source struct {
	raw   string // without the mark
	text  string
	bom   bool
	crs   []int // positions in text of newlines that are CRLF in raw
	lines int   // newlines in text
}

func newSource(content string) *source {
	s := &source{}
	s.raw, s.bom = strings.CutPrefix(content, bom)
	var b strings.Builder
	b.Grow(len(s.raw))
	for line := range strings.SplitAfterSeq(s.raw, "\n") {
		if rest, ok := strings.CutSuffix(line, "\r\n"); ok {
			b.WriteString(rest)
			s.crs = append(s.crs, b.Len())
			line = "\n"
		}
		b.WriteString(line)
	}
	s.text = b.String()
	s.lines = strings.Count(s.text, "\n")
	return s
}

// rawIndex is the position in raw of a position in text; that of a newline is
// the one of its CR.
func (s *source) rawIndex(i int) int {
	before, _ := slices.BinarySearch(s.crs, i)
	return i + before
}

// lineEnds writes text with the line ends that most lines of the file have.
func (s *source) lineEnds(text string) string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if 2*len(s.crs) > s.lines {
		text = strings.ReplaceAll(text, "\n", "\r\n")
	}
	return text
}

func (s *source) line(i int) int { return strings.Count(s.text[:i], "\n") + 1 }

// find returns where what is in the text, at most limit places, also such that
// overlap.
func (s *source) find(what string, limit int) []int {
	var at []int
	for from := 0; len(at) < limit; {
		i := strings.Index(s.text[from:], what)
		if i < 0 {
			break
		}
		at = append(at, from+i)
		from += i + 1
	}
	return at
}

// applyEdits makes the changes, all or none; it returns what is wrong with
// them, in their order.
func applyEdits(content string, edits []textEdit) (text string, problems []string) {
	if len(edits) == 0 {
		return "", []string{"There are no edits."}
	}
	s := newSource(content)
	type place struct {
		from, to int // in s.text
		edit     int
	}
	places := make([]place, 0, len(edits))
	for i, edit := range edits {
		report := func(format string, args ...any) {
			if len(edits) > 1 {
				format = fmt.Sprintf("edits[%d]: ", i) + format
			}
			problems = append(problems, fmt.Sprintf(format, args...))
		}
		what := strings.ReplaceAll(strings.TrimPrefix(edit.OldText, bom), "\r\n", "\n")
		switch at := s.find(what, maxPlaces+1); {
		case what == "":
			report("oldText is empty.")
		case len(at) == 0:
			report("oldText is not in the file. %s", s.explain(what))
		case len(at) > 1:
			report("oldText is in the file %s; give more of the text around the place that is meant.", s.places(at))
		case what == strings.ReplaceAll(edit.NewText, "\r\n", "\n"):
			report("newText is the same as oldText.")
		default:
			places = append(places, place{at[0], at[0] + len(what), i})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.from, b.from) })
	for i := 1; i < len(places); i++ {
		if a, b := places[i-1], places[i]; b.from < a.to {
			problems = append(problems, fmt.Sprintf("edits[%d] and edits[%d] overlap at line %d; make one edit of them.",
				min(a.edit, b.edit), max(a.edit, b.edit), s.line(b.from)))
		}
	}
	if len(problems) > 0 {
		return "", problems
	}
	var out strings.Builder
	if s.bom {
		out.WriteString(bom)
	}
	done := 0
	for _, p := range places {
		from, to := s.rawIndex(p.from), s.rawIndex(p.to)
		out.WriteString(s.raw[done:from])
		out.WriteString(s.lineEnds(edits[p.edit].NewText))
		done = to
	}
	out.WriteString(s.raw[done:])
	return out.String(), nil
}

// prepareEdit repairs arguments: other names, edits in a string, a single edit
// instead of a list or beside the path.
func prepareEdit(raw json.RawMessage) json.RawMessage {
	return repair(raw, func(a arguments) {
		a.path()
		a.rename("edits", "changes", "replacements", "edit")
		edits := unquote(a["edits"])
		if edits == nil {
			one, err := json.Marshal(a)
			if err != nil {
				return
			}
			edits = one
		}
		if edits[0] == '{' {
			edits = slices.Concat(json.RawMessage("["), edits, json.RawMessage("]"))
		}
		var list []json.RawMessage
		if json.Unmarshal(edits, &list) == nil {
			for i := range list {
				list[i] = repair(list[i], func(a arguments) {
					a.rename("oldText", "old_text", "old_string", "oldString", "old_str", "oldStr", "old", "search")
					a.rename("newText", "new_text", "new_string", "newString", "new_str", "newStr", "new", "replace", "replacement")
					a.keep("oldText", "newText")
				})
			}
			a.set("edits", list)
		}
		a.keep("path", "edits")
	})
}

// unquote returns the JSON in a string of JSON, and other values as they are.
func unquote(v json.RawMessage) json.RawMessage {
	var s string
	if v != nil && json.Unmarshal(v, &s) == nil && json.Valid([]byte(s)) {
		return json.RawMessage(strings.TrimSpace(s))
	}
	return v
}
