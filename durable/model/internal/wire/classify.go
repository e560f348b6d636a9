package wire

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/wp-durable/wp-durable/durable/model"
)

// Words by which providers name one thing. Codes are compared whole, phrases
// are looked for in the lower-case message.
var (
	quotaCodes = words("insufficient_quota", "credit_balance_exhausted", "enforced_spend_limit_reached",
		"billing_error", "billing_hard_limit_reached", "billing_not_active", "insufficient_balance", "payment_required")
	quotaPhrases = []string{"spend limit", "spending limit", "credit balance is too low", "insufficient balance",
		"insufficient credits", "requires more credits", "usage limits"}

	rateCodes = words("rate_limit_error", "rate_limit_exceeded", "rate_limited", "slow_down", "too_many_requests",
		"tokens", "requests", "resource_exhausted", "throttlingexception")
	ratePhrases = []string{"rate limit", "rate_limit", "ratelimit", "too many requests", "tokens per min", "requests per min",
		"too many tokens per", "(tpm)", "(rpm)"}

	overflowCodes   = words("context_length_exceeded", "exceed_context_size_error", "model_context_window_exceeded", "context_window_exceeded")
	overflowPhrases = []string{
		"context_length_exceeded", "prompt is too long", "prompt too long", "exceeds the context window",
		"exceed the context window", "exceeds context window", "maximum context length", "max context length",
		"exceed_context_size_error", "exceeds the available context size", "input token count exceeds",
		"input token count (", "input is too long", "exceed context limit", "exceeds the model's context",
		"exceeded model token limit", "maximum prompt length is", "context window exceeds limit",
		"reduce the length of the messages", "context length exceeded", "larger than the context",
		"exceeds maximum input length", "longer than the model's context length",
	}

	overloadCodes   = words("overloaded_error", "overloaded", "engine_overloaded", "server_overloaded", "model_overloaded", "service_unavailable", "unavailable", "server_is_overloaded")
	overloadPhrases = []string{"overloaded", "loading model", "at capacity", "over capacity", "temporarily unavailable"}

	filterCodes = words("content_filter", "content_policy_violation", "invalid_prompt", "responsibleaipolicyviolation", "data_inspection_failed")

	thinkingCodes   = words("invalid_encrypted_content", "invalid_thinking_signature")
	thinkingPhrases = []string{"bound to a different conversation", "encrypted content", "encrypted_content",
		"signature in thinking", "in `thinking` block", "in thinking block", "thinking signature",
		"blocks in the latest assistant message cannot be modified",
		"must start with a thinking block", "expected `thinking`", "thinking.signature", "thought signature", "thought_signature"}

	tooLargeCodes = words("request_too_large", "payload_too_large", "body_too_large")
	authCodes     = words("authentication_error", "permission_error", "invalid_api_key", "permission_denied", "unauthenticated", "unauthorized")
	notFoundCodes = words("not_found_error", "model_not_found", "not_found")
	badCodes      = words("invalid_request_error", "invalid_argument", "bad_request", "unsupported_parameter", "unsupported_value")
)

// Classify returns the class of an error that a provider said in words, beside
// an HTTP status or, with status 0, inside an answer. Signs of a rate limit win
// over signs of an overlong context, specific words over the status, the status
// over general words.
func Classify(status int, f Failure) model.Class {
	codes := []string{strings.ToLower(f.Code), strings.ToLower(f.Type)}
	msg := strings.ToLower(f.Message)
	if n, err := strconv.Atoi(f.Code); err == nil && status == 0 && n >= 400 && n < 600 {
		status = n
	}
	is := func(set map[string]bool) bool { return set[codes[0]] || set[codes[1]] }
	says := func(phrases []string) bool {
		for _, p := range phrases {
			if strings.Contains(msg, p) {
				return true
			}
		}
		return false
	}
	client := status == 0 || (status >= 400 && status < 500)
	denied := status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusNotFound

	switch {
	case is(quotaCodes), status == http.StatusPaymentRequired,
		(status == 0 || status == http.StatusTooManyRequests) && (spendLimit(codes[0]) || spendLimit(codes[1])),
		(status == 0 || status == http.StatusBadRequest || status == http.StatusTooManyRequests || status == http.StatusForbidden) && says(quotaPhrases):
		return model.ClassQuota
	case status == http.StatusTooManyRequests, is(rateCodes),
		client && !denied && says(ratePhrases):
		return model.ClassRateLimit
	case is(overflowCodes),
		(client && !denied || status == http.StatusInternalServerError) && says(overflowPhrases):
		return model.ClassContextOverflow
	case is(thinkingCodes),
		(status == 0 || status == http.StatusBadRequest) && says(thinkingPhrases):
		return model.ClassThinkingMismatch
	case is(filterCodes), client && (strings.HasSuffix(codes[0], "_policy") || strings.HasSuffix(codes[1], "_policy")):
		return model.ClassContentFilter
	case is(overloadCodes), status == http.StatusServiceUnavailable, status == 529,
		(status == 0 || status >= 500) && says(overloadPhrases):
		return model.ClassOverloaded
	case is(tooLargeCodes), status == http.StatusRequestEntityTooLarge:
		return model.ClassRequestTooLarge
	case status == http.StatusRequestTimeout, status == http.StatusConflict, status >= 500:
		return model.ClassServerError
	case status == http.StatusNotFound:
		return model.ClassNotFound
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return model.ClassAuth
	case is(authCodes):
		return model.ClassAuth
	case is(notFoundCodes):
		return model.ClassNotFound
	case status >= 300, is(badCodes):
		return model.ClassInvalidRequest
	}
	return model.ClassServerError
}

// spendLimit reports whether a code like "organization_spend_limit_exceeded"
// means money rather than speed.
func spendLimit(code string) bool {
	return strings.HasSuffix(code, "_limit_exceeded") && !strings.Contains(code, "rate") &&
		!strings.Contains(code, "per_minute") && !strings.Contains(code, "per_second")
}

func words(list ...string) map[string]bool {
	m := make(map[string]bool, len(list))
	for _, w := range list {
		m[w] = true
	}
	return m
}
