package tools

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/model"
)

//go:embed read.md
var readText string

// The bounds of what a call of read returns (S5.3).
const (
	readLines = 2000
	readBytes = 50 << 10
	lineBytes = 2000 // of one line
	// sniffBytes is how much of the beginning tells text from other content.
	sniffBytes = 8 << 10
	// countBytes is how far behind what is shown lines are still counted.
	countBytes = 64 << 20
)

type readArgs struct {
	Path   string `json:"path" jsonschema:"path of the file, relative to the work folder"`
	Offset int64  `json:"offset,omitempty" jsonschema:"number of the first line to return, counted from 1"`
	Limit  int64  `json:"limit,omitempty" jsonschema:"how many lines to return"`
}

// readDetails is for user interfaces.
type readDetails struct {
	Path       string `json:"path"`
	Kind       string `json:"kind"` // text, image, binary
	Bytes      int64  `json:"bytes"`
	MimeType   string `json:"mimeType,omitempty"`
	FirstLine  int64  `json:"firstLine,omitempty"`
	LastLine   int64  `json:"lastLine,omitempty"`
	TotalLines int64  `json:"totalLines,omitempty"` // absent when not counted to the end
	Truncated  bool   `json:"truncated,omitempty"`
}

func newRead() *durable.Tool {
	text := strings.NewReplacer(
		"{lines}", fmt.Sprint(readLines), "{bytes}", size(readBytes), "{line}", size(lineBytes),
	).Replace(strings.TrimSpace(readText))
	return durable.NewTool(durable.ToolSpec{
		Name: "read", Title: "Read a file", Description: text, Replay: durable.ReplaySafe, Prepare: prepareRead,
	}, func(ctx context.Context, call *durable.ToolCall, args readArgs) (durable.ToolResult, error) {
		e, err := call.Env(ctx)
		if err != nil {
			return durable.ToolResult{}, err
		}
		return runRead(ctx, e, args)
	})
}

// runRead reads a file (S5.3).
func runRead(ctx context.Context, e env.Environment, args readArgs) (durable.ToolResult, error) {
	r, err := e.Open(ctx, args.Path)
	if err != nil {
		return failed(ctx, err, hint(ctx, e, args.Path, code(err)))
	}
	defer r.Close()
	head := make([]byte, sniffBytes)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return failed(ctx, err, "")
	}
	head = head[:n]
	if mime := imageType(head); mime != "" {
		return readImage(ctx, r, args.Path, mime)
	}
	if kind := notText(head); kind != "" {
		result := durable.TextResult(fmt.Sprintf("[%s: %s of %s, not shown]", args.Path, kind, size(r.Size())))
		result.Details = details(readDetails{Path: args.Path, Kind: "binary", Bytes: r.Size()})
		return result, nil
	}
	return readLinesOf(ctx, r, args)
}

// readLinesOf returns the asked lines with their numbers.
func readLinesOf(ctx context.Context, r env.Reader, args readArgs) (durable.ToolResult, error) {
	first := max(args.Offset, 1)
	limit := int64(readLines)
	if args.Limit > 0 {
		limit = min(limit, args.Limit)
	}
	lines := newLineReader(ctx, r)
	for lines.number < first-1 {
		if _, _, err := lines.next(0); errors.Is(err, io.EOF) {
			if lines.number == 0 {
				first = 1 // of an empty file there is nothing to miss
				break
			}
			return behindEnd(args.Path, lines.number, first), nil
		} else if err != nil {
			return failed(ctx, err, "")
		}
	}
	var text strings.Builder
	var shown int64
	cuts, odd := 0, false
	var left int64 // lines that were read and do not fit
	for shown < limit && text.Len() < readBytes {
		line, length, err := lines.next(lineBytes)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return failed(ctx, err, "")
		}
		whole := length == int64(len(line))
		if !whole {
			line = trimPartial(line)
		}
		s, replaced := lineText(line, lines.number == 1)
		if !whole {
			s += fmt.Sprintf("… [line of %s, cut]", size(length))
			cuts++
		}
		entry := fmt.Sprintf("%6d\t%s\n", lines.number, s)
		if shown > 0 && text.Len()+len(entry) > readBytes {
			left = 1
			break
		}
		text.WriteString(entry)
		odd = odd || replaced
		shown++
	}
	last := first + shown - 1
	behind, all, err := lines.rest(countBytes)
	if err != nil {
		return failed(ctx, err, "")
	}
	more := behind+left > 0 || !all
	var total int64
	if all {
		total = last + left + behind
	}
	d := readDetails{Path: args.Path, Kind: "text", Bytes: r.Size(), FirstLine: first, LastLine: last, TotalLines: total, Truncated: more || cuts > 0}
	var end strings.Builder
	switch {
	case shown == 0 && first == 1:
		d.FirstLine = 0
		end.WriteString("[the file is empty]")
	case shown == 0: // the line behind the last one
		return behindEnd(args.Path, last, first), nil
	case all:
		fmt.Fprintf(&end, "[lines %d to %d of %d, %s in all", first, last, total, size(r.Size()))
	default:
		fmt.Fprintf(&end, "[lines %d to %d of more, %s in all", first, last, size(r.Size()))
	}
	if shown > 0 {
		if more {
			fmt.Fprintf(&end, "; go on with offset %d", last+1)
		}
		end.WriteString("]")
	}
	if odd {
		end.WriteString("\n[bytes that are not UTF-8 text are shown as \uFFFD]")
	}
	result := durable.TextResult(text.String() + end.String())
	result.Details = details(d)
	return result, nil
}

func behindEnd(p string, lines, offset int64) durable.ToolResult {
	return durable.ErrorResult(fmt.Sprintf("%s has only %s; offset %d is behind its end", p, count(lines, "line"), offset))
}

// trimPartial drops the beginning of a character at the end of a cut line.
func trimPartial(line []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(line); i++ {
		if at := len(line) - i; utf8.RuneStart(line[at]) {
			if !utf8.FullRune(line[at:]) {
				return line[:at]
			}
			break
		}
	}
	return line
}

// lineText makes a line text that can be shown, and says whether bytes of it
// were replaced.
func lineText(line []byte, first bool) (string, bool) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if first {
		line = bytes.TrimPrefix(line, []byte(bom))
	}
	if utf8.Valid(line) && bytes.IndexByte(line, 0) < 0 {
		return string(line), false
	}
	s := strings.ToValidUTF8(string(line), "\uFFFD")
	return strings.ReplaceAll(s, "\x00", "\uFFFD"), true
}

// notText says what content that is not text is, empty for text.
func notText(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff")):
		return "UTF-16 text or a binary file"
	case bytes.IndexByte(head, 0) >= 0:
		return "binary file"
	}
	// text in an old encoding has few bytes that are not UTF-8, other content
	// has many
	bad := 0
	for p := head; len(p) > 0; {
		r, n := utf8.DecodeRune(p)
		if r == utf8.RuneError && n == 1 && utf8.FullRune(p) {
			bad++
		}
		p = p[n:]
	}
	if bad*10 > len(head)*3 {
		return "binary file"
	}
	return ""
}

// imageType tells an image by its first bytes, empty for other content.
func imageType(head []byte) string {
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		return "image/gif"
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		return "image/webp"
	}
	return ""
}

// readImage returns an image that every model takes; one that no model takes
// must not enter a transcript.
func readImage(ctx context.Context, r env.Reader, p, mime string) (durable.ToolResult, error) {
	const advice = ". Make a smaller copy with a command, in png or jpeg, and read that"
	if r.Size() > model.MaxImageBytes {
		return durable.ErrorResult(fmt.Sprintf("%s: the image has %s, and at most %s can be shown"+advice, p, size(r.Size()), size(model.MaxImageBytes))), nil
	}
	data, err := io.ReadAll(io.LimitReader(contextReader{ctx, r}, model.MaxImageBytes+1))
	if err != nil {
		return failed(ctx, err, "")
	}
	if err := model.CheckImage(mime, data); err != nil {
		return durable.ErrorResult(fmt.Sprintf("%s cannot be shown: %v"+advice, p, err)), nil
	}
	return durable.ToolResult{
		Content: []model.Block{
			model.Text(fmt.Sprintf("[%s: %s, %s]", p, mime, size(int64(len(data))))),
			{Type: model.BlockImage, MimeType: mime, Data: data},
		},
		Details: details(readDetails{Path: p, Kind: "image", Bytes: int64(len(data)), MimeType: mime}),
	}, nil
}

// hint helps with a path that is no file: what is in the folder, or which
// names are like the one that is missing.
func hint(ctx context.Context, e env.Environment, p string, c env.Code) string {
	switch c {
	case env.IsDirectory:
		list, next, err := e.List(ctx, p, "")
		if err != nil {
			return ""
		}
		if len(list) == 0 {
			return "It is empty"
		}
		names := make([]string, 0, 50)
		for _, info := range list[:min(len(list), 50)] {
			names = append(names, entryName(info))
		}
		if next != "" || len(list) > 50 {
			names = append(names, "…")
		}
		return "It holds " + strings.Join(names, ", ")
	case env.NotFound:
		dir, base := path.Split(strings.TrimRight(p, "/"))
		list, _, err := e.List(ctx, path.Clean(dir), "")
		if err != nil {
			return ""
		}
		type near struct {
			name  string
			score float64
		}
		var found []near
		for _, info := range list {
			if score := similarity(strings.ToLower(base), strings.ToLower(info.Name)); score >= 0.5 {
				found = append(found, near{path.Join(dir, entryName(info)), score})
			}
		}
		slices.SortStableFunc(found, func(a, b near) int {
			switch {
			case a.score > b.score:
				return -1
			case a.score < b.score:
				return 1
			}
			return 0
		})
		if len(found) == 0 {
			return ""
		}
		var names []string
		for _, f := range found[:min(len(found), 3)] {
			names = append(names, f.name)
		}
		return "There is " + strings.Join(names, ", ")
	}
	return ""
}

func entryName(info env.FileInfo) string {
	if info.Mode.IsDir() {
		return info.Name + "/"
	}
	return info.Name
}

func prepareRead(raw json.RawMessage) json.RawMessage {
	return repair(raw, func(a arguments) {
		a.path()
		a.integer("offset", "start_line", "startLine", "line")
		a.integer("limit", "max_lines", "maxLines")
		a.keep("path", "offset", "limit")
	})
}
