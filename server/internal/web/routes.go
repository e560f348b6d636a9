package web

import (
	"mime"
	"net/http"
	"strings"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// Routes serves mux with problems in place of its own error pages, and refuses
// bodies that are too large or not JSON before they are read.
func Routes(mux *http.ServeMux, maxBody int64, redact *secrets.Redactor) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h, pattern := mux.Handler(r); pattern == "" {
			unrouted(h, r).Write(w, redact)
			return
		}
		if hasBody(r) {
			if r.ContentLength > maxBody {
				bodyTooLarge(maxBody).Write(w, redact)
				return
			}
			if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
				NewProblem(http.StatusUnsupportedMediaType, CodeUnsupportedMedia, "a request body must not be compressed: content-encoding "+shortened(e)).Write(w, redact)
				return
			}
			if !isJSON(r.Header.Get("Content-Type")) {
				NewProblem(http.StatusUnsupportedMediaType, CodeUnsupportedMedia, "a request body must be of type application/json").Write(w, redact)
				return
			}
		}
		mux.ServeHTTP(w, r)
	})
}

func hasBody(r *http.Request) bool {
	return r.ContentLength != 0 && r.Body != nil && r.Body != http.NoBody
}

func isJSON(contentType string) bool {
	t, params, err := mime.ParseMediaType(contentType)
	charset := strings.ToLower(params["charset"])
	return err == nil && t == "application/json" && (charset == "" || charset == "utf-8")
}

// unrouted returns the problem of a request that no route takes: h is what the
// mux would have answered.
func unrouted(h http.Handler, r *http.Request) *Problem {
	var answer discarded
	h.ServeHTTP(&answer, r)
	if answer.status == http.StatusMethodNotAllowed {
		p := NewProblem(http.StatusMethodNotAllowed, CodeMethodNotAllowed, "the route has no method "+r.Method)
		p.SetHeader("Allow", answer.Header().Get("Allow"))
		return p
	}
	return NewProblem(http.StatusNotFound, CodeNotFound, "no such route")
}

// discarded keeps the status and the headers of an answer.
type discarded struct {
	header http.Header
	status int
}

func (d *discarded) Header() http.Header {
	if d.header == nil {
		d.header = http.Header{}
	}
	return d.header
}

func (d *discarded) Write(p []byte) (int, error) { return len(p), nil }

func (d *discarded) WriteHeader(status int) { d.status = status }
