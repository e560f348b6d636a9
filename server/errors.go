package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/server/internal/web"
)

// statuses is what each error of the engine means to a client. The first that
// fits counts.
var statuses = []struct {
	err    error
	status int
	code   string
}{
	{durable.ErrNotFound, http.StatusNotFound, web.CodeNotFound},
	{durable.ErrInvalid, http.StatusBadRequest, web.CodeInvalid},
	{durable.ErrBusy, http.StatusConflict, web.CodeBusy},
	{durable.ErrRequestIDConflict, http.StatusConflict, web.CodeRequestIDConflict},
	{durable.ErrSettled, http.StatusConflict, web.CodeSettled},
	{durable.ErrAlreadyPlaced, http.StatusConflict, web.CodeAlreadyPlaced},
	{model.ErrMissingCredential, http.StatusConflict, web.CodeMissingCredential},
	{durable.ErrStoreFull, http.StatusInsufficientStorage, web.CodeStoreFull},
	{durable.ErrClosed, http.StatusServiceUnavailable, web.CodeUnavailable},
	{durable.ErrStoreClosed, http.StatusServiceUnavailable, web.CodeUnavailable},
	{durable.ErrStoreFailed, http.StatusServiceUnavailable, web.CodeUnavailable},
	{durable.ErrRejected, http.StatusServiceUnavailable, web.CodeUnavailable},
	{errClosing, http.StatusServiceUnavailable, web.CodeUnavailable},
	{context.Canceled, http.StatusServiceUnavailable, web.CodeUnavailable},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, web.CodeUnavailable},
}

// errClosing is the cause of contexts that end because the server stops.
var errClosing = web.ErrClosing

// problem turns an error into the answer to a request. What is not among the
// errors that a client can do something about is logged and not shown.
func (s *Server) problem(err error) *web.Problem {
	if p, ok := errors.AsType[*web.Problem](err); ok {
		return p
	}
	for _, e := range statuses {
		if !errors.Is(err, e.err) {
			continue
		}
		message := err.Error()
		switch e.status {
		case http.StatusServiceUnavailable:
			message = e.err.Error()
		case http.StatusNotFound:
			// Who looks something up says what, and so does the store.
			message = strings.Join(slices.Compact(strings.Split(message, ": ")), ": ")
		case http.StatusBadRequest:
			message = strings.TrimSuffix(message, ": "+durable.ErrInvalid.Error())
		}
		return web.NewProblem(e.status, e.code, message)
	}
	s.log.Error("request failed", "error", err)
	return web.NewProblem(http.StatusInternalServerError, web.CodeInternal, "internal error")
}
