package tools

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
)

func writeTest(t *testing.T, e env.Environment, path, text string) durable.ToolResult {
	t.Helper()
	r, err := runWrite(t.Context(), e, writeArgs{Path: path, Content: text})
	require.NoError(t, err)
	return r
}

// (S5.4)
func TestWrite(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	r := writeTest(t, e, "new/dir/f", "a\nb\n")
	require.Equal(t, "Created new/dir/f (2 lines, 4 bytes).", shown(r))
	require.Equal(t, "a\nb\n", content(t, e, "new/dir/f"))
	require.Equal(t, fileDetails{
		Path: "new/dir/f", Created: true, Bytes: 4, Lines: 2, Added: 2, FirstLine: 1,
		Diff: "--- /dev/null\n+++ b/new/dir/f\n@@ -0,0 +1,2 @@\n+a\n+b\n",
	}, detail[fileDetails](t, r))

	r = writeTest(t, e, "new/dir/f", bom+"a\r\nc")
	require.Equal(t, "Replaced new/dir/f (2 lines, 7 bytes).", shown(r))
	require.Equal(t, bom+"a\r\nc", content(t, e, "new/dir/f"), "content is written as it is")
	require.False(t, detail[fileDetails](t, r).Created)

	r = writeTest(t, e, "empty", "")
	require.Equal(t, "Created empty (0 lines, 0 bytes).", shown(r))
	put(t, e, "binary", "\x00\x01")
	require.Empty(t, detail[fileDetails](t, writeTest(t, e, "binary", "x")).Diff)

	for p, want := range map[string]string{
		"../x":        "../x: is outside the work folder " + e.WorkDir(),
		"/etc/passwd": "/etc/passwd: is outside the work folder " + e.WorkDir(),
		"new":         "new: is a directory",
		"empty/x":     "empty/x: not a directory",
	} {
		r := writeTest(t, e, p, "x")
		require.True(t, r.IsError)
		require.Equal(t, want, shown(r))
	}
}

func TestWrite_Prepare(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string][2]string{
		"what is right stays": {`{"path":"f","content":"x"}`, `{"path":"f","content":"x"}`},
		"other names":         {`{"file_path":"f","contents":"x","mode":1}`, `{"path":"f","content":"x"}`},
		"JSON as content":     {`{"path":"f","content":{"b":1,"a":[2]}}`, `{"path":"f","content":"{\"b\":1,\"a\":[2]}"}`},
		"a number stays":      {`{"path":"f","content":5}`, `{"path":"f","content":5}`},
	} {
		require.JSONEq(t, tc[1], string(prepareWrite(json.RawMessage(tc[0]))), name)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{
		0: "0 bytes", 1: "1 byte", 1023: "1023 bytes", 1024: "1.0 KB", 65536: "64.0 KB", 1 << 20: "1.0 MB", 256 << 20: "256.0 MB", 3 << 30: "3.0 GB",
	} {
		require.Equal(t, want, size(n))
	}
	require.Equal(t, "€…", cut("€€", 4))
	require.Equal(t, "ab", cut("ab", 2))
	require.EqualValues(t, 2, countLines("a\nb"))
	require.Less(t, len(strings.TrimSpace(noTools)), 1000)
}
