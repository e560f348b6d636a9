package model

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Class says what kind of failure an [Error] is, and so what the engine does.
type Class string

// The classes of provider errors.
const (
	ClassRateLimit        Class = "rate_limit"
	ClassQuota            Class = "quota"
	ClassOverloaded       Class = "overloaded"
	ClassServerError      Class = "server_error"
	ClassNetwork          Class = "network"
	ClassStalled          Class = "stalled"
	ClassTimeout          Class = "timeout"
	ClassIncompleteStream Class = "incomplete_stream"
	ClassProtocol         Class = "protocol"
	ClassThinkingMismatch Class = "thinking_mismatch"
	ClassContextOverflow  Class = "context_overflow"
	ClassRequestTooLarge  Class = "request_too_large"
	ClassInvalidRequest   Class = "invalid_request"
	ClassAuth             Class = "auth"
	ClassNotFound         Class = "not_found"
	ClassRefusal          Class = "refusal"
	ClassContentFilter    Class = "content_filter"
	ClassAborted          Class = "aborted"
)

// Retryable reports whether the same request may succeed later.
func (c Class) Retryable() bool {
	switch c {
	case ClassRateLimit, ClassOverloaded, ClassServerError, ClassNetwork,
		ClassStalled, ClassTimeout, ClassIncompleteStream, ClassProtocol:
		return true
	}
	return false
}

// Error is a failed model request. It holds no part of the request and no
// credential; Message is under 1 kB.
type Error struct {
	Class      Class
	Message    string        // the provider's words
	Status     int           // HTTP status, 0 when there was none
	Code       string        // the provider's error type or code
	RequestID  string        // the provider's id of the request
	RetryAfter time.Duration // how long the provider asked to wait, 0 when it did not
	NoRetry    bool          // the provider said not to retry; wins over Class
	Err        error         // the cause, if any
}

// Error returns the class and the provider's words.
func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Class)
	}
	return fmt.Sprintf("%s: %s", e.Class, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Retryable reports whether the engine may send the request again.
func (e *Error) Retryable() bool { return !e.NoRetry && e.Class.Retryable() }

// AsError returns err as an [*Error]. An error of another type becomes one of
// class aborted when it is a cancelled context, else of class server_error.
func AsError(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if errors.Is(err, context.Canceled) {
		return &Error{Class: ClassAborted, Message: err.Error(), Err: err}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{Class: ClassTimeout, Message: err.Error(), Err: err}
	}
	return &Error{Class: ClassServerError, Message: err.Error(), Err: err}
}

// ErrUnknownModel is wrapped by errors of [Set.Resolve] when the provider or
// the model does not exist.
var ErrUnknownModel = errors.New("unknown model")

// ErrMissingCredential is wrapped by errors of [Set.Resolve] and
// [Availability.Available] when the provider has no credential.
var ErrMissingCredential = errors.New("missing credential")
