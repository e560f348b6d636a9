package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
)

func editTest(t *testing.T, e env.Environment, path string, edits ...textEdit) durable.ToolResult {
	t.Helper()
	r, err := runEdit(t.Context(), e, editArgs{Path: path, Edits: edits})
	require.NoError(t, err)
	return r
}

// (S5.4)
func TestEdit_Changes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, before string
		edits        []textEdit
		after        string
	}{
		{"one", "a\nb\nc\n", []textEdit{{"b", "x"}}, "a\nx\nc\n"},
		{"several, in any order", "a\nb\nc\n", []textEdit{{"c", "z"}, {"a", "x"}}, "x\nb\nz\n"},
		{"against the file before the call", "a b", []textEdit{{"a", "b"}, {"b", "a"}}, "b a"},
		{"touching", "abcd", []textEdit{{"ab", "1"}, {"cd", "2"}}, "12"},
		{"delete", "a\nb\nc\n", []textEdit{{"b\n", ""}}, "a\nc\n"},
		{"all of it", "a\n", []textEdit{{"a\n", ""}}, ""},
		{"CRLF is kept", "a\r\nb\r\nc\r\n", []textEdit{{"a\nb", "x\ny\nz"}}, "x\r\ny\r\nz\r\nc\r\n"},
		{"CRLF given is the same", "a\r\nb\r\n", []textEdit{{"a\r\nb", "x\r\ny"}}, "x\r\ny\r\n"},
		{"LF is kept", "a\nb\n", []textEdit{{"a\r\nb", "x\r\ny"}}, "x\ny\n"},
		{"an edit that begins with a line end", "a\r\nb\r\n", []textEdit{{"\nb", "\nx"}}, "a\r\nx\r\n"},
		{"an edit that ends before a line end", "a\r\nb\r\n", []textEdit{{"a", "x"}}, "x\r\nb\r\n"},
		{"mixed line ends stay where nothing changes", "a\r\nb\nc\r\nd\r\n", []textEdit{{"c", "x\ny"}}, "a\r\nb\nx\r\ny\r\nd\r\n"},
		{"a lone CR is not a line end", "a\rb\nc\n", []textEdit{{"c", "x"}}, "a\rb\nx\n"},
		{"the mark is kept", bom + "a\nb", []textEdit{{"a", "x"}}, bom + "x\nb"},
		{"the mark may be given", bom + "a\nb", []textEdit{{bom + "a", "x"}}, bom + "x\nb"},
		{"bytes that are not UTF-8 stay", "\xff\xfe a \xe9", []textEdit{{"a", "b"}}, "\xff\xfe b \xe9"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			put(t, e, "f", tc.before)
			r := editTest(t, e, "f", tc.edits...)
			require.False(t, r.IsError, shown(r))
			require.Equal(t, tc.after, content(t, e, "f"))
		})
	}
}

// (S5.4): each oldText exactly once, no overlap; the error helps, and nothing
// is changed.
func TestEdit_Refuses(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	code := "package main\n\nfunc main() {\n\tfmt.Println(\"hello, world\")\n\treturn\n}\n\nfunc other() {\n\treturn\n}\n"
	for _, tc := range []struct {
		name  string
		edits []textEdit
		want  string
	}{
		{"none", nil, "There are no edits."},
		{"empty", []textEdit{{"", "x"}}, "oldText is empty."},
		{"the same", []textEdit{{"main()", "main()"}}, "newText is the same as oldText."},
		{"twice", []textEdit{{"return", "x"}}, "oldText is in the file 2 times, at lines 5, 9; give more of the text around the place that is meant."},
		{"often", []textEdit{{"n", "x"}}, "oldText is in the file more than 5 times, first at lines 1, 3, 3, 4, 4;"},
		{"overlapping itself", []textEdit{{"ll", "x"}, {"\t\n", ""}}, "edits[1]: oldText is not in the file. Nothing in it is like it; read the file again."},
		{"white space", []textEdit{{"    fmt.Println(\"hello, world\")\n    return", "x"}},
			"The closest text is at line 4, and differs only in white space:\n     4\t\tfmt.Println(\"hello, world\")\n     5\t\treturn"},
		{"a line that differs", []textEdit{{"func main() {\n\tfmt.Println(\"hello, mars\")\n\treturn\n}", "x"}},
			"The closest text is at line 3:\n     3\tfunc main() {\n     4\t\tfmt.Println(\"hello, world\")\n     5\t\treturn\n     6\t}"},
		{"a part of a line", []textEdit{{"Println(\"hallo, world\")", "x"}}, "The closest text is at line 4:\n     4\t\tfmt.Println(\"hello, world\")"},
		{"line numbers", []textEdit{{"     4\t\tfmt.Println(\"hello, world\")\n     5\t\treturn", "x"}}, "It has the line numbers that read shows; leave them out."},
		{"escapes", []textEdit{{`{\n\tfmt.Println(\"hello, world\")`, "x"}}, `It has escapes, such as \n, for characters that the file has as themselves; write those.`},
		{"nothing like it", []textEdit{{"SELECT * FROM users", "x"}}, "Nothing in it is like it; read the file again."},
		{"overlap", []textEdit{{"func main", "x"}, {"main()", "y"}}, "edits[0] and edits[1] overlap at line 3; make one edit of them."},
		{"two are wrong", []textEdit{{"package main", "package x"}, {"return", "x"}, {"nowhere to be seen", "y"}},
			"edits[1]: oldText is in the file 2 times, at lines 5, 9; give more of the text around the place that is meant.\nedits[2]: oldText is not in the file."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			put(t, e, "f", code)
			r := editTest(t, e, "f", tc.edits...)
			require.True(t, r.IsError)
			require.Contains(t, shown(r), "Nothing was changed in f.\n")
			require.Contains(t, shown(r), tc.want)
			require.Equal(t, code, content(t, e, "f"))
		})
	}
	put(t, e, "empty", "")
	require.Contains(t, shown(editTest(t, e, "empty", textEdit{"a", "b"})), "The file is empty.")
	put(t, e, "aaa", "aaa")
	require.Contains(t, shown(editTest(t, e, "aaa", textEdit{"aa", "b"})), "2 times, at lines 1, 1", "also places that overlap")
}

func TestEdit_Closest(t *testing.T) {
	t.Parallel()
	var long strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&long, "value_%d = compute(%d)\n}\n", i, i*i)
	}
	s := newSource(long.String())
	first, last, blanks := s.closest("value_1500 = compute(2250000)\n  }\nvalue_1501 = compute(0)\n")
	require.Equal(t, []int{3001, 3003}, []int{first, last})
	require.False(t, blanks)
	text := s.explain(strings.Repeat("value_7 = compute(49)\n}\n", 20))
	require.Less(t, strings.Count(text, "\n"), closestLines+3, text)
	require.Contains(t, text, "…")
	require.Less(t, len(newSource(strings.Repeat("abc ", 10000)).explain("abc abd")), 1000)
}

// (S5.4): returns a diff.
func TestEdit_Result(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	put(t, e, "dir/f", "1\n2\n3\n4\n5\n6\n7\n")
	r := editTest(t, e, "dir/f", textEdit{"4\n", "four\nfour and a half\n"})
	diff := "--- a/dir/f\n+++ b/dir/f\n@@ -1,7 +1,8 @@\n 1\n 2\n 3\n-4\n+four\n+four and a half\n 5\n 6\n 7\n"
	require.Equal(t, "Edited dir/f: 1 replacement.\n"+diff, shown(r))
	require.Equal(t, fileDetails{Path: "dir/f", Bytes: 33, Lines: 8, Diff: diff, Added: 2, Removed: 1, FirstLine: 4}, detail[fileDetails](t, r))

	put(t, e, "big", strings.Repeat("line\n", 20000)+"end\n")
	r = editTest(t, e, "big", textEdit{"end", strings.Repeat("more\n", 20000)})
	require.Less(t, len(shown(r)), shownDiff+200)
	require.Contains(t, shown(r), "[the diff goes on]")
}

// (S5.4): atomic, the mode is kept; (S5.6) refusals.
func TestEdit_File(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	require.NoError(t, e.Write(t.Context(), "script", strings.NewReader("echo a\n"), env.WriteOptions{Mode: 0o755}))
	require.False(t, editTest(t, e, "script", textEdit{"a", "b"}).IsError)
	info, err := e.Stat(t.Context(), "script")
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode.Perm())

	require.NoError(t, os.Symlink("/etc", filepath.Join(e.WorkDir(), "etc")))
	put(t, e, "huge", strings.Repeat("x", editBytes+1))
	for p, want := range map[string]string{
		"scripts":    "scripts: no such file or directory. There is script",
		"../x":       "../x: is outside the work folder",
		"etc/passwd": "etc/passwd: leads outside the work folder",
		".":          ".: is a directory",
		"huge":       "huge has more than 10.0 MB, too much for edit",
	} {
		r := editTest(t, e, p, textEdit{"root", "x"})
		require.True(t, r.IsError)
		require.Contains(t, shown(r), want)
	}
}

// (S5.4): changes of a file are serialised, whatever its path is written as.
func TestEdit_Serialised(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var before, after strings.Builder
	const n = 40
	for i := range n {
		fmt.Fprintf(&before, "line %d.\n", i)
		fmt.Fprintf(&after, "LINE %d.\n", i)
	}
	put(t, e, "d/f", before.String())
	var wg sync.WaitGroup
	for i := range n {
		p := []string{"d/f", "./d//f", "d/../d/f", e.WorkDir() + "/d/f"}[i%4]
		wg.Go(func() {
			r, err := runEdit(t.Context(), e, editArgs{Path: p, Edits: []textEdit{{fmt.Sprintf("line %d.", i), fmt.Sprintf("LINE %d.", i)}}})
			if err != nil || r.IsError {
				t.Errorf("edit %d: %v %s", i, err, shown(r))
			}
		})
	}
	wg.Wait()
	require.Equal(t, after.String(), content(t, e, "d/f"))
}

func TestLock(t *testing.T) {
	t.Parallel()
	a, b := newEnv(t), newEnv(t)
	set := lockSet{held: map[string]*fileLock{}}
	unlock, err := set.lock(t.Context(), a, "f")
	require.NoError(t, err)
	other, err := set.lock(t.Context(), b, "f")
	require.NoError(t, err, "another environment's file is another file")
	other()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = set.lock(ctx, a, "./f")
	require.ErrorIs(t, err, context.Canceled, "waiting ends with ctx")
	unlock()
	unlock, err = set.lock(t.Context(), a, "f")
	require.NoError(t, err)
	unlock()
	require.Empty(t, set.held)
}

func TestEdit_Prepare(t *testing.T) {
	t.Parallel()
	right := `{"path":"f","edits":[{"oldText":"a","newText":"b"}]}`
	for name, in := range map[string]string{
		"what is right stays": right,
		"edits in a string":   `{"path":"f","edits":"[{\"oldText\":\"a\",\"newText\":\"b\"}]"}`,
		"one edit":            `{"path":"f","edits":{"oldText":"a","newText":"b"}}`,
		"one in a string":     `{"path":"f","edits":"{\"oldText\":\"a\",\"newText\":\"b\"}"}`,
		"beside the path":     `{"path":"f","oldText":"a","newText":"b"}`,
		"other names":         `{"file_path":"f","old_string":"a","new_string":"b","replace_all":false}`,
		"other names inside":  `{"filePath":"f","edits":[{"old_str":"a","new_str":"b","line":3}]}`,
		"each in a string":    `{"path":"f","edits":["{\"oldText\":\"a\",\"newText\":\"b\"}"]}`,
		"all in a string":     `"{\"path\":\"f\",\"edits\":[{\"oldText\":\"a\",\"newText\":\"b\"}]}"`,
	} {
		require.JSONEq(t, right, string(prepareEdit(json.RawMessage(in))), name)
	}
	for name, in := range map[string]string{
		"edits that are no JSON stay": `{"path":"f","edits":"a -> b"}`,
		"numbers stay":                `{"path":"f","edits":[1]}`,
	} {
		require.JSONEq(t, in, string(prepareEdit(json.RawMessage(in))), name)
	}
	require.JSONEq(t, `{"path":"f","edits":[{}]}`, string(prepareEdit(json.RawMessage(`{"path":"f"}`))))
}

// Whatever the file is, edits change what they say and nothing else.
func TestEdit_Property(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "lines")
		var before, after strings.Builder
		mark := rapid.SampledFrom([]string{"", bom}).Draw(t, "mark")
		before.WriteString(mark)
		after.WriteString(mark)
		crlf := rapid.Bool().Draw(t, "crlf")
		end := "\n"
		if crlf {
			end = "\r\n"
		}
		var edits []textEdit
		for i := range n {
			line := fmt.Sprintf("<%d>", i)
			before.WriteString(line + end)
			if rapid.Bool().Draw(t, "change") {
				text := rapid.SampledFrom([]string{"", "x", "x\ny", "\n", "€"}).Draw(t, "text")
				edits = append(edits, textEdit{line + "\n", text})
				after.WriteString(strings.ReplaceAll(text, "\n", end))
			} else {
				after.WriteString(line + end)
			}
		}
		if len(edits) == 0 {
			return
		}
		edits = rapid.Permutation(edits).Draw(t, "order")
		got, problems := applyEdits(before.String(), edits)
		require.Empty(t, problems)
		require.Equal(t, after.String(), got)
	})
}
