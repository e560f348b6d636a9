package web

import (
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// maxTarget is the longest request target.
const maxTarget = 8 << 10

// Target refuses requests whose raw target is not sound, before any router
// looks at it and answers with a redirect.
func Target(next http.Handler, redact *secrets.Redactor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p := checkTarget(r); p != nil {
			p.Write(w, redact)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func checkTarget(r *http.Request) *Problem {
	raw := r.RequestURI
	bad := func(message string) *Problem { return NewProblem(http.StatusBadRequest, CodeInvalid, message) }
	switch {
	case len(raw) > maxTarget:
		return NewProblem(http.StatusRequestURITooLong, CodeTooLarge, "the request target is too long")
	case !strings.HasPrefix(raw, "/"):
		return bad("the request target must be a path")
	case strings.HasPrefix(raw, "//") || strings.HasPrefix(raw, `/\`):
		return bad("the request target must begin with exactly one slash")
	case hasControl(raw) || hasControl(r.URL.Path):
		return bad("the request target holds a control character")
	}
	if _, err := url.ParseRequestURI(raw); err != nil {
		return bad("the request target cannot be parsed")
	}
	if _, err := url.ParseQuery(r.URL.RawQuery); err != nil {
		return bad("the query cannot be parsed")
	}
	// A router would redirect these to another route.
	if r.URL.Path != path.Clean(r.URL.Path) {
		return NewProblem(http.StatusNotFound, CodeNotFound, "no such route")
	}
	return nil
}

func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < 0x20 || c == 0x7f })
}
