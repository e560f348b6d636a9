package tools

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
)

// size writes a number of bytes for reading.
func size(n int64) string {
	switch {
	case n == 1:
		return "1 byte"
	case n < 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GB", float64(n)/(1<<30))
}

// count writes a number of things for reading.
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// cut shortens s to at most n bytes at a character, with a mark.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// countLines counts lines, a last one without a newline too.
func countLines(s string) int64 {
	n := int64(strings.Count(s, "\n"))
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// code returns the code of an environment's error, empty for other errors.
func code(err error) env.Code {
	var e *env.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// failed makes the result of a call that an environment refused. A call whose
// ctx has ended has none: the engine says how it ended.
func failed(ctx context.Context, err error, hint string) (durable.ToolResult, error) {
	if ctx.Err() != nil {
		return durable.ToolResult{}, err
	}
	text := cut(err.Error(), 500)
	if hint != "" {
		text += ". " + hint
	}
	return durable.ErrorResult(text), nil
}

// details encodes what user interfaces are told of a result. v has only types
// that JSON has.
func details(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("tools: details: %v", err))
	}
	return raw
}
