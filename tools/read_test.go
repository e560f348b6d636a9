package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/model"
)

func readTest(t *testing.T, e env.Environment, args readArgs) durable.ToolResult {
	t.Helper()
	r, err := runRead(t.Context(), e, args)
	require.NoError(t, err)
	return r
}

// (S5.3)
func TestRead_Text(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	put(t, e, "f", "one\ntwo\n\nfour")
	put(t, e, "crlf", bom+"one\r\ntwo\r\n")
	put(t, e, "empty", "")
	put(t, e, "latin1", "caf\xe9 is a place where they serve coffee\n")
	for _, tc := range []struct {
		name    string
		args    readArgs
		text    string
		isError bool
	}{
		{"whole", readArgs{Path: "f"}, "     1\tone\n     2\ttwo\n     3\t\n     4\tfour\n[lines 1 to 4 of 4, 13 bytes in all]", false},
		{"from a line", readArgs{Path: "f", Offset: 3}, "     3\t\n     4\tfour\n[lines 3 to 4 of 4, 13 bytes in all]", false},
		{"some lines", readArgs{Path: "f", Offset: 2, Limit: 2}, "     2\ttwo\n     3\t\n[lines 2 to 3 of 4, 13 bytes in all; go on with offset 4]", false},
		{"offset 0 is the beginning", readArgs{Path: "f", Limit: 1}, "     1\tone\n[lines 1 to 1 of 4, 13 bytes in all; go on with offset 2]", false},
		{"the last line", readArgs{Path: "f", Offset: 4}, "     4\tfour\n[lines 4 to 4 of 4, 13 bytes in all]", false},
		{"behind the end", readArgs{Path: "f", Offset: 5}, "f has only 4 lines; offset 5 is behind its end", true},
		{"far behind the end", readArgs{Path: "f", Offset: 1 << 40}, "f has only 4 lines; offset 1099511627776 is behind its end", true},
		{"line ends and mark are not shown", readArgs{Path: "crlf"}, "     1\tone\n     2\ttwo\n[lines 1 to 2 of 2, 13 bytes in all]", false},
		{"behind a line end", readArgs{Path: "crlf", Offset: 3}, "crlf has only 2 lines; offset 3 is behind its end", true},
		{"empty", readArgs{Path: "empty"}, "[the file is empty]", false},
		{"empty with offset", readArgs{Path: "empty", Offset: 7}, "[the file is empty]", false},
		{"old encoding", readArgs{Path: "latin1"}, "     1\tcaf\uFFFD is a place where they serve coffee\n[lines 1 to 1 of 1, 40 bytes in all]\n[bytes that are not UTF-8 text are shown as \uFFFD]", false},
		{"absolute path", readArgs{Path: e.WorkDir() + "/f", Limit: 1}, "     1\tone\n[lines 1 to 1 of 4, 13 bytes in all; go on with offset 2]", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := readTest(t, e, tc.args)
			require.Equal(t, tc.text, shown(r))
			require.Equal(t, tc.isError, r.IsError)
		})
	}
	require.Equal(t, readDetails{Path: "f", Kind: "text", Bytes: 13, FirstLine: 2, LastLine: 3, TotalLines: 4, Truncated: true},
		detail[readDetails](t, readTest(t, e, readArgs{Path: "f", Offset: 2, Limit: 2})))
}

// (S5.3): 2000 lines, 50 KiB, long lines cut with a note.
func TestRead_Bounds(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	put(t, e, "lines", strings.Repeat("x\n", 5000))
	r := readTest(t, e, readArgs{Path: "lines", Limit: 100000})
	require.Equal(t, 2001, strings.Count(shown(r), "\n")+1)
	require.Contains(t, shown(r), "[lines 1 to 2000 of 5000, 9.8 KB in all; go on with offset 2001]")

	put(t, e, "bytes", strings.Repeat(strings.Repeat("y", 1000)+"\n", 200))
	r = readTest(t, e, readArgs{Path: "bytes"})
	d := detail[readDetails](t, r)
	require.LessOrEqual(t, len(shown(r)), readBytes+200)
	require.EqualValues(t, readBytes/1008, d.LastLine)
	require.EqualValues(t, 200, d.TotalLines, "the line that did not fit counts")
	require.Contains(t, shown(r), fmt.Sprintf("go on with offset %d]", d.LastLine+1))
	next := readTest(t, e, readArgs{Path: "bytes", Offset: d.LastLine + 1})
	require.Equal(t, d.LastLine+1, detail[readDetails](t, next).FirstLine)

	long := strings.Repeat("a", lineBytes-1) + "€" + strings.Repeat("b", 200000)
	put(t, e, "long", "first\n"+long+"\nlast\n")
	r = readTest(t, e, readArgs{Path: "long"})
	require.Equal(t, "     1\tfirst\n     2\t"+long[:lineBytes-1]+"… [line of 197.3 KB, cut]\n     3\tlast\n[lines 1 to 3 of 3, 197.3 KB in all]", shown(r))
	require.True(t, detail[readDetails](t, r).Truncated)
}

// (S5.3): counts and text are right for every file, and what calls return one
// after the other is the whole file.
func TestRead_GoesOn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	rapid.Check(t, func(rt *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			return strings.Repeat("z", rapid.SampledFrom([]int{0, 1, 10, 900, 1999, 2000}).Draw(t, "length"))
		}), 1, 80).Draw(rt, "lines")
		text := strings.Join(lines, "\n")
		if rapid.Bool().Draw(rt, "newline") || lines[len(lines)-1] == "" {
			text += "\n"
		}
		put(t, e, "f", text)
		limit := rapid.Int64Range(1, 30).Draw(rt, "limit")
		var got []string
		for offset := int64(1); ; {
			r := readTest(t, e, readArgs{Path: "f", Offset: offset, Limit: limit})
			require.False(rt, r.IsError, shown(r))
			d := detail[readDetails](t, r)
			require.EqualValues(rt, len(lines), d.TotalLines)
			for _, l := range strings.Split(shown(r), "\n")[:d.LastLine-d.FirstLine+1] {
				_, l, _ = strings.Cut(l, "\t")
				got = append(got, l)
			}
			if !d.Truncated {
				break
			}
			offset = d.LastLine + 1
		}
		require.Equal(rt, lines, got)
	})
}

// (S5.3): a large file is never loaded whole, its lines neither.
func TestRead_Large(t *testing.T) {
	t.Parallel()
	big := &bigFile{line: strings.Repeat("0123456789", 10) + "\n", size: 1 << 40}
	r, err := readLinesOf(t.Context(), big, readArgs{Path: "big"})
	require.NoError(t, err)
	d := detail[readDetails](t, r)
	require.Zero(t, d.TotalLines, "not counted to the end")
	require.True(t, d.Truncated)
	require.Contains(t, shown(r), "of more, 1024.0 GB in all; go on with offset")
	require.Less(t, big.read, int64(2*countBytes))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = readLinesOf(ctx, &bigFile{line: "x", size: 1 << 40}, readArgs{Path: "big"})
	require.ErrorIs(t, err, context.Canceled)
}

// (S5.3): not parallel, so that what is allocated is its own.
func TestRead_Memory(t *testing.T) {
	for line, want := range map[string]string{
		"x":         "… [line of 50.0 MB, cut]\n[lines 1 to 1 of 1, 50.0 MB in all]",
		"x\n":       "[lines 1 to 2000 of 26214400, 50.0 MB in all; go on with offset 2001]",
		"\n\n\n\nx": "[lines 1 to 2000 of 41943041, 50.0 MB in all; go on with offset 2001]",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := readLinesOf(t.Context(), &bigFile{line: line, size: 50 << 20}, readArgs{Path: "big"})
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Contains(t, shown(r), want)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20))
	}
}

// bigFile is a large file that repeats a line.
type bigFile struct {
	line string
	size int64
	read int64
}

func (f *bigFile) Size() int64  { return f.size }
func (f *bigFile) Close() error { return nil }

func (f *bigFile) Read(p []byte) (int, error) {
	if f.read >= f.size {
		return 0, io.EOF
	}
	n := 0
	for n < len(p) && f.read < f.size {
		c := copy(p[n:], f.line[f.read%int64(len(f.line)):])
		c = int(min(int64(c), f.size-f.read))
		n += c
		f.read += int64(c)
	}
	return n, nil
}

func (f *bigFile) ReadAt(p []byte, off int64) (int, error) { return 0, io.EOF }

// (S5.3): says when a file is binary.
func TestRead_Binary(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for name, tc := range map[string][2]string{
		"NUL byte":       {"text\x00more", "[f: binary file of 9 bytes, not shown]"},
		"not UTF-8":      {"\xff\xfb\x90\x01\xff\xfb\x90", "[f: binary file of 7 bytes, not shown]"},
		"UTF-16":         {"\xff\xfeh\x00i\x00", "[f: UTF-16 text or a binary file of 6 bytes, not shown]"},
		"one odd letter": {"\xe9tude in C", "     1\t\uFFFDtude in C\n[lines 1 to 1 of 1, 10 bytes in all]\n[bytes that are not UTF-8 text are shown as \uFFFD]"},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, e, "f", tc[0])
			r := readTest(t, e, readArgs{Path: "f"})
			require.Equal(t, tc[1], shown(r))
			require.False(t, r.IsError)
		})
	}
	put(t, e, "late", strings.Repeat("text\n", 3000)+"a\x00b\n")
	r := readTest(t, e, readArgs{Path: "late", Offset: 3001})
	require.Contains(t, shown(r), "  3001\ta\uFFFDb\n", "no NUL byte gets into a transcript")
}

func picture(t *testing.T, width, height int, encode func(io.Writer, image.Image) error) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, encode(&b, image.NewGray(image.Rect(0, 0, width, height))))
	return b.String()
}

// (S5.3): images as image content, within the limits of models.
func TestRead_Image(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	asJPEG := func(w io.Writer, m image.Image) error { return jpeg.Encode(w, m, nil) }
	small := picture(t, 20, 10, png.Encode)
	for mime, data := range map[string]string{
		"image/png":  small,
		"image/jpeg": picture(t, 20, 10, asJPEG),
		"image/gif":  "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;",
		"image/webp": "RIFF\x1a\x00\x00\x00WEBPVP8L\x0d\x00\x00\x00/\x00\x00\x00\x10\x07\x10\x11\x11\x88\x88\xfe\x07\x00",
	} {
		put(t, e, "pic", data) // the name does not matter
		r := readTest(t, e, readArgs{Path: "pic"})
		require.False(t, r.IsError, shown(r))
		require.Len(t, r.Content, 2)
		require.Equal(t, fmt.Sprintf("[pic: %s, %s]", mime, size(int64(len(data)))), r.Content[0].Text)
		require.Equal(t, model.Block{Type: model.BlockImage, MimeType: mime, Data: []byte(data)}, r.Content[1])
		require.Equal(t, readDetails{Path: "pic", Kind: "image", Bytes: int64(len(data)), MimeType: mime}, detail[readDetails](t, r))
	}
	for name, tc := range map[string][2]string{
		"too wide":   {picture(t, 8001, 1, png.Encode), "pic cannot be shown: image of 8001 x 1 pixels: each side must be 1 to 8000. Make a smaller copy"},
		"too large":  {small + strings.Repeat("x", model.MaxImageBytes), "pic: the image has 3.6 MB, and at most 3.6 MB can be shown. Make a smaller copy"},
		"broken":     {small[:20], "pic cannot be shown: image is not readable as image/png"},
		"just right": {picture(t, 8000, 1, png.Encode), "[pic: image/png, "},
	} {
		t.Run(name, func(t *testing.T) {
			put(t, e, "pic", tc[0])
			r := readTest(t, e, readArgs{Path: "pic"})
			require.Contains(t, shown(r), tc[1])
			require.Equal(t, name != "just right", r.IsError)
			if r.IsError {
				require.Len(t, r.Content, 1)
			}
		})
	}
}

// (S5.6), and help with a path that is no file.
func TestRead_Refused(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	put(t, e, "dir/config.yaml", "")
	put(t, e, "dir/sub/x", "")
	put(t, e, "README.md", "")
	for p, want := range map[string]string{
		"../x":           "../x: is outside the work folder " + e.WorkDir(),
		"/etc/passwd":    "/etc/passwd: is outside the work folder " + e.WorkDir(),
		"dir":            "dir: is a directory. It holds config.yaml, sub/",
		"dir/config.yml": "dir/config.yml: no such file or directory. There is dir/config.yaml",
		"readme.md":      "readme.md: no such file or directory. There is README.md",
		"none/x":         "none/x: no such file or directory",
		"zzz":            "zzz: no such file or directory",
		"":               "the path is empty",
	} {
		r := readTest(t, e, readArgs{Path: p})
		require.Equal(t, want, shown(r))
		require.True(t, r.IsError)
	}
	r := readTest(t, e, readArgs{Path: strings.Repeat("x", 100000)})
	require.Less(t, len(shown(r)), 600)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := runRead(ctx, e, readArgs{Path: "README.md"})
	require.Equal(t, env.Aborted, code(err))
}

func TestRead_Prepare(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string][2]string{
		"what is right stays": {`{"path":"f","offset":5,"limit":10}`, `{"path":"f","offset":5,"limit":10}`},
		"other names":         {`{"file_path":"f","max_lines":3}`, `{"path":"f","limit":3}`},
		"numbers":             {`{"path":"f","offset":"5","limit":10.0}`, `{"path":"f","offset":5,"limit":10}`},
		"path wins":           {`{"path":"f","file":"g"}`, `{"path":"f"}`},
		"half a line stays":   {`{"path":"f","offset":1.5}`, `{"path":"f","offset":1.5}`},
	} {
		require.JSONEq(t, tc[1], string(prepareRead(json.RawMessage(tc[0]))), name)
	}
	require.Equal(t, durable.ReplaySafe, newRead().Spec().Replay)
}
