package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
)

//go:embed write.md
var writeText string

const (
	// diffBytes bounds the files for which the result of write has a diff.
	diffBytes = 1 << 20
	// detailsDiff bounds the diff that user interfaces get.
	detailsDiff = 256 << 10
)

type writeArgs struct {
	Path    string `json:"path" jsonschema:"path of the file, relative to the work folder"`
	Content string `json:"content" jsonschema:"the whole content of the file"`
}

// fileDetails is for user interfaces.
type fileDetails struct {
	Path      string `json:"path"`
	Created   bool   `json:"created,omitempty"`
	Bytes     int64  `json:"bytes"`
	Lines     int64  `json:"lines"`
	Diff      string `json:"diff,omitempty"` // unified
	Added     int    `json:"added"`          // lines
	Removed   int    `json:"removed"`
	FirstLine int    `json:"firstLine,omitempty"` // of the new file that changed
}

func newWrite() *durable.Tool {
	return durable.NewTool(durable.ToolSpec{
		Name: "write", Title: "Write a file", Description: strings.TrimSpace(writeText), Prepare: prepareWrite,
	}, func(ctx context.Context, call *durable.ToolCall, args writeArgs) (durable.ToolResult, error) {
		e, err := call.Env(ctx)
		if err != nil {
			return durable.ToolResult{}, err
		}
		return runWrite(ctx, e, args)
	})
}

// runWrite writes a file (S5.4).
func runWrite(ctx context.Context, e env.Environment, args writeArgs) (durable.ToolResult, error) {
	unlock, err := locks.lock(ctx, e, args.Path)
	if err != nil {
		return durable.ToolResult{}, err
	}
	defer unlock()
	d := fileDetails{Path: args.Path, Bytes: int64(len(args.Content)), Lines: countLines(args.Content)}
	_, err = e.Stat(ctx, args.Path)
	d.Created = code(err) == env.NotFound
	old, known := "", d.Created
	if !d.Created {
		old, known = readSmall(ctx, e, args.Path)
	}
	if err := e.Write(ctx, args.Path, strings.NewReader(args.Content), env.WriteOptions{}); err != nil {
		return failed(ctx, err, "")
	}
	if known && len(args.Content) <= diffBytes {
		d.setDiff(old, args.Content)
	}
	verb := "Replaced"
	if d.Created {
		verb = "Created"
	}
	result := durable.TextResult(fmt.Sprintf("%s %s (%s, %s).", verb, args.Path, count(d.Lines, "line"), size(d.Bytes)))
	result.Details = details(d)
	return result, nil
}

func (d *fileDetails) setDiff(old, text string) {
	c := diff(old, text)
	d.Diff = cutDiff(c.unified(d.Path, d.Created), detailsDiff)
	d.Added, d.Removed, d.FirstLine = c.added, c.removed, c.first
}

func cutDiff(diff string, n int) string {
	if len(diff) > n {
		return cut(diff, n) + "\n[the diff goes on]\n"
	}
	return diff
}

// readSmall reads a file for a comparison, false when it is not worth one.
func readSmall(ctx context.Context, e env.Environment, p string) (string, bool) {
	r, err := e.Open(ctx, p)
	if err != nil {
		return "", false
	}
	defer r.Close()
	if r.Size() > diffBytes {
		return "", false
	}
	b, err := io.ReadAll(io.LimitReader(contextReader{ctx, r}, diffBytes+1))
	if err != nil || len(b) > diffBytes || notText(b) != "" {
		return "", false
	}
	return string(b), true
}

// prepareWrite repairs arguments: other names, and content that was given as
// JSON instead of as text.
func prepareWrite(raw json.RawMessage) json.RawMessage {
	return repair(raw, func(a arguments) {
		a.path()
		a.rename("content", "contents", "text", "file_text", "fileText", "data")
		if c := a["content"]; len(c) > 0 && (c[0] == '{' || c[0] == '[') {
			a.set("content", string(c))
		}
		a.keep("path", "content")
	})
}
