package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
)

const (
	maxErrorBody = 64 << 10 // read of an error answer
	maxMessage   = 900      // bytes of a message; with the class it stays under 1 kB
)

// Failure is what a provider's error object says, in the words of whichever
// server sent it.
type Failure struct {
	Message   string
	Type      string // "overloaded_error", "invalid_request_error", …
	Code      string // "context_length_exceeded", "429", …
	RequestID string
}

// errorJSON covers the shapes in use: {"error": {…}}, {"error": "text"},
// {"type": "error", "error": {…}}, the same fields at top level, {"detail": …},
// and a list of one of these.
type errorJSON struct {
	Error     json.RawMessage `json:"error"`
	Errors    json.RawMessage `json:"errors"`
	Message   json.RawMessage `json:"message"`
	Msg       json.RawMessage `json:"msg"`
	Detail    json.RawMessage `json:"detail"`
	Type      json.RawMessage `json:"type"`
	Code      json.RawMessage `json:"code"`
	Status    json.RawMessage `json:"status"`
	ErrorCode json.RawMessage `json:"error_code"`
	RequestID json.RawMessage `json:"request_id"`
	Details   json.RawMessage `json:"details"`
	Metadata  json.RawMessage `json:"metadata"`
}

// ParseFailure reads the error object in data, which may be a whole error body,
// the data of an error event, or the error object alone. It reports false when
// there is none.
func ParseFailure(data []byte) (Failure, bool) {
	f, ok := parseFailure(data, 0)
	return f, ok && (f.Message != "" || f.Type != "" || f.Code != "")
}

func parseFailure(data []byte, depth int) (Failure, bool) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 || depth > 4 {
		return Failure{}, false
	}
	switch data[0] {
	case '"':
		return Failure{Message: scalar(data)}, true
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(data, &list) != nil || len(list) == 0 {
			return Failure{}, false
		}
		return parseFailure(list[0], depth+1)
	case '{':
	default:
		return Failure{}, false
	}
	var j errorJSON
	if json.Unmarshal(data, &j) != nil {
		return Failure{}, false
	}
	f := Failure{
		Message: first(scalar(j.Message), scalar(j.Msg)),
		Code:    first(scalar(j.ErrorCode), scalar(j.Code)),
		Type:    first(scalar(j.Type), scalar(j.Status)),
	}
	if f.Type == "error" {
		f.Type = ""
	}
	for _, inner := range []json.RawMessage{j.Error, j.Errors, j.Detail, j.Details, j.Metadata} {
		in, ok := parseFailure(inner, depth+1)
		if !ok {
			continue
		}
		f.Message = first(f.Message, in.Message)
		f.Type = first(in.Type, f.Type)
		f.Code = first(in.Code, f.Code)
		f.RequestID = first(f.RequestID, in.RequestID)
	}
	f.RequestID = first(scalar(j.RequestID), f.RequestID)
	var routed struct {
		Raw string `json:"raw"`
	}
	if json.Unmarshal(j.Metadata, &routed) == nil && routed.Raw != "" {
		f.Message = strings.TrimSpace(f.Message + ": " + routed.Raw) // a router's own words say little
	}
	return f, true
}

// scalar returns a JSON string or number as text, "" for anything else.
func scalar(data json.RawMessage) string {
	var s string
	if json.Unmarshal(data, &s) == nil {
		return s
	}
	var n json.Number
	if json.Unmarshal(data, &n) == nil {
		return n.String()
	}
	return ""
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// check returns the error that an answer's head and, when it is not a stream of
// events, its body stand for.
func (s *Stream) check(resp *http.Response, sent *url.URL) error {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	ok := resp.StatusCode >= 200 && resp.StatusCode < 300
	if ok && mediaType != "application/json" && mediaType != "text/html" && resp.StatusCode != http.StatusNoContent {
		return nil
	}
	if resp.StatusCode >= 300 && resp.StatusCode < 400 {
		target := "another address"
		if loc, err := sent.Parse(resp.Header.Get("Location")); err == nil && loc.Host != "" {
			target = loc.Scheme + "://" + loc.Host
		}
		return s.failure(resp.StatusCode, model.ClassInvalidRequest, Failure{
			Message: fmt.Sprintf("HTTP %d: redirect to %s refused; set the base URL to the final address", resp.StatusCode, target),
		})
	}
	body, err := io.ReadAll(io.LimitReader(&answerReader{r: resp.Body, cn: s.conn}, maxErrorBody))
	if err != nil && (s.conn.parent.Err() != nil || ok) {
		e := s.conn.failed(err, s.secrets)
		e.RequestID = s.RequestID()
		return e
	}
	f, found := ParseFailure(body)
	switch {
	case found && f.Message == "":
		f.Message = first(f.Code, f.Type)
	case found:
	case isHTML(mediaType, body):
		f.Message = "the server answered with an HTML page"
		if title := htmlTitle.FindSubmatch(body); title != nil {
			f.Message += ": " + string(title[1])
		}
		if c := Classify(resp.StatusCode, f); c == model.ClassInvalidRequest || ok {
			return s.failure(resp.StatusCode, model.ClassServerError, f)
		}
	case ok:
		return s.failure(resp.StatusCode, model.ClassProtocol, Failure{Message: "the answer is not a stream of events but " + first(mediaType, "empty")})
	default:
		f.Message = string(body)
	}
	status := resp.StatusCode
	if ok {
		status = 0 // an error said with 200 is judged by its words
	}
	e := s.failure(resp.StatusCode, Classify(status, f), f)
	return e
}

var htmlTitle = regexp.MustCompile(`(?is)<title[^>]*>\s*([^<]{1,200}?)\s*</title>`)

func isHTML(mediaType string, body []byte) bool {
	if mediaType == "text/html" {
		return true
	}
	start := strings.ToLower(string(bytes.TrimSpace(body[:min(len(body), 256)])))
	return strings.HasPrefix(start, "<!doctype html") || strings.HasPrefix(start, "<html")
}

// failure makes the error of an answer with an HTTP error.
func (s *Stream) failure(status int, class model.Class, f Failure) *model.Error {
	if f.Message == "" {
		f.Message = strings.TrimSpace(fmt.Sprintf("HTTP %d %s", status, http.StatusText(status)))
	}
	e := s.Error(class, f)
	e.Status = status
	e.RetryAfter = retryAfter(s.header)
	e.NoRetry = strings.EqualFold(s.header.Get("X-Should-Retry"), "false")
	return e
}

// Error makes an error about this answer: class and f, bounded, masked, with
// the request's id.
func (s *Stream) Error(class model.Class, f Failure) *model.Error {
	return &model.Error{
		Class:     class,
		Message:   clean(f.Message, s.secrets),
		Code:      clean(first(f.Code, f.Type), s.secrets),
		RequestID: clean(first(s.RequestID(), f.RequestID), s.secrets),
	}
}

// Failed makes the error of an error event that came after status 200.
func (s *Stream) Failed(f Failure) *model.Error { return s.Error(Classify(0, f), f) }

// Incomplete makes the error of an answer that ended without its terminal
// event.
func (s *Stream) Incomplete() *model.Error {
	return s.Error(model.ClassIncompleteStream, Failure{Message: "the answer ended without its terminal event"})
}

// Protocol makes the error of an answer that cannot be decoded.
func (s *Stream) Protocol(err error) *model.Error {
	e := s.Error(model.ClassProtocol, Failure{Message: "the answer cannot be read: " + err.Error()})
	e.Err = err
	return e
}
