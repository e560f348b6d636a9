package server

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/wp-durable/wp-durable/server/internal/web"
)

// PageParams are the query parameters of every list.
type PageParams struct {
	Cursor string `query:"cursor" doc:"Where to go on: next of the page before" maxLength:"200"`
	Limit  int    `query:"limit" default:"50" minimum:"1" maximum:"500" doc:"Most items of a page"`
}

// The cursors are opaque to clients. Each begins with what list it is of, with
// its owner, order and filters, so that one of another list is refused.

func encodeCursor(list string, parts ...int64) string {
	text := list
	for _, p := range parts {
		text += fmt.Sprintf(":%d", p)
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

// decodeCursor reads a cursor of that list into parts.
func decodeCursor(cursor, list string, parts ...*int64) error {
	bad := web.Invalid("query.cursor", "this is not a cursor of this list")
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil {
		return bad
	}
	fields := strings.Split(string(text), ":")
	if fields[0] != list || len(fields) != len(parts)+1 {
		return bad
	}
	for i, p := range parts {
		if _, err := fmt.Sscanf(fields[i+1], "%d", p); err != nil || *p < 0 || fmt.Sprint(*p) != fields[i+1] {
			return bad
		}
	}
	return nil
}
