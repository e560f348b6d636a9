package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// The codes of problems.
const (
	CodeInvalid           = "invalid"
	CodeUnauthorized      = "unauthorized"
	CodeForbidden         = "forbidden"
	CodeNotFound          = "not_found"
	CodeMethodNotAllowed  = "method_not_allowed"
	CodeBusy              = "busy"
	CodeRequestIDConflict = "request_id_conflict"
	CodeAlreadyPlaced     = "already_placed"
	CodeSettled           = "settled"
	CodeMissingCredential = "missing_credential"
	CodeTooLarge          = "too_large"
	CodeUnsupportedMedia  = "unsupported_media"
	CodeLimit             = "limit"
	CodeInternal          = "internal"
	CodeUnavailable       = "unavailable"
	CodeStoreFull         = "store_full"
)

// Problem is the body of every error: problem details of RFC 9457 with a
// message and a code.
type Problem struct {
	Title  string `json:"title" doc:"Name of the HTTP status" example:"Conflict"`
	Status int    `json:"status" doc:"HTTP status" example:"409"`
	Detail string `json:"detail" doc:"What went wrong, for people" example:"conversation is busy"`
	// Message repeats Detail under the name that clients look for first.
	Message  string         `json:"error" doc:"The same as detail" example:"conversation is busy"`
	Code     string         `json:"code" doc:"What went wrong, for programs" example:"busy"`
	Errors   []ProblemField `json:"errors,omitempty" doc:"The parts of the request that are wrong"`
	Provider string         `json:"provider,omitempty" doc:"With missing_credential: the model provider that has none"`

	header http.Header
}

// ProblemField is one mistake in a request.
type ProblemField struct {
	Location string `json:"location" doc:"Where it is, for example body.content or query.limit" example:"body.content"`
	Message  string `json:"message" doc:"What is wrong with it" example:"expected required property content to be present"`
}

// codes of statuses where nobody gave one.
var codes = map[int]string{
	http.StatusBadRequest:            CodeInvalid,
	http.StatusUnauthorized:          CodeUnauthorized,
	http.StatusForbidden:             CodeForbidden,
	http.StatusNotFound:              CodeNotFound,
	http.StatusMethodNotAllowed:      CodeMethodNotAllowed,
	http.StatusRequestEntityTooLarge: CodeTooLarge,
	http.StatusUnsupportedMediaType:  CodeUnsupportedMedia,
	http.StatusRequestURITooLong:     CodeTooLarge,
	http.StatusTooManyRequests:       CodeLimit,
	http.StatusServiceUnavailable:    CodeUnavailable,
	http.StatusInsufficientStorage:   CodeStoreFull,
}

// RetryAfter is what a client that is told to come back waits, in seconds.
const RetryAfter = "1"

// NewProblem returns a problem. An empty code is that of the status.
func NewProblem(status int, code, message string) *Problem {
	if code == "" {
		code = codes[status]
	}
	if code == "" {
		code = CodeInternal
		if status < http.StatusInternalServerError {
			code = CodeInvalid
		}
	}
	p := &Problem{Title: http.StatusText(status), Status: status, Detail: message, Message: message, Code: code}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		p.SetHeader("Retry-After", RetryAfter)
	}
	return p
}

// Invalid returns a 400 about one part of the request.
func Invalid(location, message string) *Problem {
	p := NewProblem(http.StatusBadRequest, CodeInvalid, location+": "+message)
	p.Errors = []ProblemField{{location, message}}
	return p
}

// SetHeader sets a header of the answer.
func (p *Problem) SetHeader(name, value string) {
	if p.header == nil {
		p.header = http.Header{}
	}
	p.header.Set(name, value)
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }

// GetStatus returns the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// GetHeaders returns headers of the answer.
func (p *Problem) GetHeaders() http.Header { return p.header }

// ContentType returns the media type of problems.
func (p *Problem) ContentType(string) string { return "application/problem+json" }

// Write sends the problem.
func (p *Problem) Write(w http.ResponseWriter, r *secrets.Redactor) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Set("Content-Type", p.ContentType(""))
	body, err := Marshal(p, r)
	if err != nil { // it holds nothing that cannot be marshalled
		panic(err)
	}
	w.WriteHeader(p.Status)
	_, _ = w.Write(body) // nobody is left to be told
}

// ErrClosing is what reading a body fails with when the server stops.
var ErrClosing = errors.New("server is stopping")

// newHumaError makes Huma's errors problems. What Huma calls unprocessable is
// a bad request, and a body that ends too early is the client's mistake.
func newHumaError(ctx huma.Context, status int, message string, errs ...error) huma.StatusError {
	var tooLarge *http.MaxBytesError
	switch all := errors.Join(errs...); {
	case errors.Is(all, ErrClosing):
		return NewProblem(http.StatusServiceUnavailable, "", ErrClosing.Error())
	case status == http.StatusUnprocessableEntity:
		status = http.StatusBadRequest
	case errors.As(all, &tooLarge) || status == http.StatusRequestEntityTooLarge:
		limit := int64(0)
		if ctx != nil {
			limit = ctx.Operation().MaxBodyBytes - 1
		}
		return bodyTooLarge(limit)
	case errors.Is(all, io.ErrUnexpectedEOF) || status == http.StatusInternalServerError && message == "cannot read request body":
		status, errs = http.StatusBadRequest, nil
	case message == "request body is required":
		return Invalid("body", message)
	}
	p := NewProblem(status, "", message)
	p.Errors = fields(ctx, errs)
	if len(p.Errors) > 0 && status == http.StatusBadRequest {
		p.Detail = p.Errors[0].Message
		if l := p.Errors[0].Location; l != "" {
			p.Detail = l + ": " + p.Detail
		}
		p.Message = p.Detail
	}
	return p
}

// bodyTooLarge is the problem of a body of more than limit bytes.
func bodyTooLarge(limit int64) *Problem {
	return NewProblem(http.StatusRequestEntityTooLarge, CodeTooLarge,
		fmt.Sprintf("the request body is larger than %d bytes, the limit of WP_DURABLE_LIMIT_BODY_BYTES", limit))
}

// Marshal encodes v as a response body: without escaping of HTML characters,
// and with secrets masked.
func Marshal(v any, r *secrets.Redactor) ([]byte, error) {
	var buf buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return r.JSON(buf), nil
}

type buffer []byte

func (b *buffer) Write(p []byte) (int, error) {
	*b = append(*b, p...)
	return len(p), nil
}
