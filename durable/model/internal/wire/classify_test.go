package wire

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
)

// The table of error classes (E16; facts about wire formats, section 6): what
// real servers were seen to send, and what it means.
func TestClassify(t *testing.T) {
	t.Parallel()
	tests := []struct {
		status int
		body   string
		want   model.Class
	}{
		{429, `{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 40,000 input tokens per minute"}}`, model.ClassRateLimit},
		{429, `{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}`, model.ClassRateLimit},
		{429, `{"error":{"message":"slow","code":"slow_down"}}`, model.ClassRateLimit},
		{429, `prompt is too long for your rate limit`, model.ClassRateLimit},
		{413, `{"error":{"message":"Request too large on tokens per minute (TPM): Limit 6000. Please reduce the length of the messages","code":"rate_limit_exceeded"}}`, model.ClassRateLimit},
		{400, `{"error":{"message":"Rate limit reached for maximum context length tier"}}`, model.ClassRateLimit},
		{200, `{"error":{"code":429,"message":"Provider returned error"}}`, model.ClassRateLimit},

		{429, `{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}`, model.ClassQuota},
		{429, `{"error":{"message":"no","code":"credit_balance_exhausted"}}`, model.ClassQuota},
		{429, `{"error":{"message":"no","code":"project_spend_limit_exceeded"}}`, model.ClassQuota},
		{429, `{"type":"error","error":{"type":"rate_limit_error","error_code":"enforced_spend_limit_reached","message":"no"}}`, model.ClassQuota},
		{429, `{"type":"error","error":{"type":"rate_limit_error","details":{"error_code":"enforced_spend_limit_reached"},"message":"no"}}`, model.ClassQuota},
		{402, `{"error":{"message":"Insufficient Balance"}}`, model.ClassQuota},
		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API"}}`, model.ClassQuota},

		{529, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.ClassOverloaded},
		{503, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`, model.ClassOverloaded},
		{500, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.ClassOverloaded},
		{0, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, model.ClassOverloaded},

		{500, `{"type":"error","error":{"type":"api_error","message":"Internal"}}`, model.ClassServerError},
		{502, ``, model.ClassServerError},
		{504, `{"error":{"type":"timeout_error","message":"slow"}}`, model.ClassServerError},
		{408, ``, model.ClassServerError},
		{409, ``, model.ClassServerError},
		{0, `{"error":{"type":"server_error","message":"oops"}}`, model.ClassServerError},
		{0, `{"error":{"message":"oops"}}`, model.ClassServerError},

		{400, `{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}`, model.ClassContextOverflow},
		{400, `{"error":{"message":"This model's maximum context length is 128000 tokens.","code":"context_length_exceeded"}}`, model.ClassContextOverflow},
		{400, `{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error","n_ctx":4096}}`, model.ClassContextOverflow},
		{400, `{"error":{"message":"Your input exceeds the context window of this model"}}`, model.ClassContextOverflow},
		{400, `{"error":{"message":"The input token count exceeds the maximum number of tokens allowed"}}`, model.ClassContextOverflow},
		{413, `{"error":{"message":"Prompt is too long"}}`, model.ClassContextOverflow},
		{500, `{"error":{"message":"prompt is too long"}}`, model.ClassContextOverflow},
		{0, `{"code":"context_length_exceeded","message":"x"}`, model.ClassContextOverflow},
		{400, `{"object":"error","message":"This model's maximum context length is 2048 tokens","type":"BadRequestError","code":400}`, model.ClassContextOverflow},

		{413, `{"type":"error","error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}`, model.ClassRequestTooLarge},
		{413, ``, model.ClassRequestTooLarge},

		{400, "{\"error\":{\"message\":\"messages.1.content.0: Invalid `signature` in `thinking` block\"}}", model.ClassThinkingMismatch},
		{400, `{"error":{"message":"thinking block is bound to a different conversation"}}`, model.ClassThinkingMismatch},
		{400, `{"error":{"message":"The encrypted content could not be verified","code":"invalid_encrypted_content"}}`, model.ClassThinkingMismatch},

		{400, `{"error":{"type":"invalid_request_error","message":"tools: bad"}}`, model.ClassInvalidRequest},
		{422, `{"detail":[{"msg":"field required","type":"missing"}]}`, model.ClassInvalidRequest},
		{0, `{"error":{"type":"invalid_request_error","message":"bad"}}`, model.ClassInvalidRequest},
		{401, `{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}`, model.ClassAuth},
		{403, `{"type":"error","error":{"type":"permission_error","message":"no"}}`, model.ClassAuth},
		{404, `{"error":{"message":"The model does not exist","type":"invalid_request_error","code":"model_not_found"}}`, model.ClassNotFound},
		{0, `{"error":{"type":"not_found_error","message":"model: x"}}`, model.ClassNotFound},
		{400, `{"error":{"message":"flagged","code":"invalid_prompt"}}`, model.ClassContentFilter},
		{400, `{"error":{"message":"flagged","code":"content_filter"}}`, model.ClassContentFilter},
		{400, `{"error":{"message":"flagged","code":"cyber_policy"}}`, model.ClassContentFilter},
	}
	for _, tt := range tests {
		f, ok := ParseFailure([]byte(tt.body))
		if !ok {
			f.Message = tt.body
		}
		status := tt.status
		if status == 200 {
			status = 0
		}
		require.Equal(t, tt.want, Classify(status, f), "%d %s", tt.status, tt.body)
	}
}

func TestParseFailure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		want Failure
		ok   bool
	}{
		{`{"type":"error","error":{"type":"overloaded_error","message":"m"},"request_id":"req_1"}`, Failure{Message: "m", Type: "overloaded_error", RequestID: "req_1"}, true},
		{`{"error":{"message":"m","type":"t","code":"c","param":null}}`, Failure{Message: "m", Type: "t", Code: "c"}, true},
		{`{"error":"m"}`, Failure{Message: "m"}, true},
		{`{"message":"m","type":"t","code":400}`, Failure{Message: "m", Type: "t", Code: "400"}, true},
		{`{"detail":"m"}`, Failure{Message: "m"}, true},
		{`[{"error":{"code":400,"message":"m","status":"INVALID_ARGUMENT"}}]`, Failure{Message: "m", Code: "400", Type: "INVALID_ARGUMENT"}, true},
		{`{"error":{"code":400,"message":"Provider returned error","metadata":{"raw":"context_length_exceeded"}}}`, Failure{Message: "Provider returned error: context_length_exceeded", Code: "400"}, true},
		{`{"type":"error","code":"c","message":"m","param":null}`, Failure{Message: "m", Code: "c"}, true},
		{`{"error":null,"id":"x"}`, Failure{}, false},
		{`{}`, Failure{}, false},
		{`not json`, Failure{}, false},
		{``, Failure{}, false},
		{`[]`, Failure{}, false},
		{`{"error":{"error":{"error":{"error":{"error":{"message":"too deep"}}}}}}`, Failure{}, false},
	}
	for _, tt := range tests {
		got, ok := ParseFailure([]byte(tt.in))
		require.Equal(t, tt.ok, ok, tt.in)
		if ok {
			require.Equal(t, tt.want, got, tt.in)
		}
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	head := func(kv ...string) http.Header {
		h := http.Header{}
		for i := 0; i < len(kv); i += 2 {
			h.Set(kv[i], kv[i+1])
		}
		return h
	}
	require.Equal(t, 7*time.Second, retryAfter(head("retry-after", "7")))
	require.Equal(t, 1500*time.Millisecond, retryAfter(head("retry-after", "1.5")))
	require.Equal(t, 250*time.Millisecond, retryAfter(head("retry-after-ms", "250", "retry-after", "7")), "the finer one wins")
	require.Equal(t, 30*time.Second, retryAfter(head("retry-after", "Wed, 21 Oct 2026 07:28:30 GMT", "date", "Wed, 21 Oct 2026 07:28:00 GMT")))
	require.InDelta(t, time.Minute, retryAfter(head("retry-after", time.Now().Add(time.Minute).UTC().Format(http.TimeFormat))), float64(3*time.Second))
	for _, bad := range []string{"", "soon", "-5", "NaN", "Wed, 21 Oct 2015 07:28:00 GMT"} {
		require.Zero(t, retryAfter(head("retry-after", bad)), bad)
	}
	require.Equal(t, maxRetryAfter, retryAfter(head("retry-after", "1e300")))
}

func TestClean(t *testing.T) {
	t.Parallel()
	require.Equal(t, "key [masked] is bad [masked]", clean("key sk-123456\nis\tbad sk-123456\x00", []string{"sk-123456", ""}))
	long := clean(strings.Repeat("ä", 2000), nil)
	require.Less(t, len(long), 1000)
	require.True(t, utf8.ValidString(long))
	require.Equal(t, "a\uFFFDb", clean("a\xffb", nil))
}

func TestValidText(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		`{"a":1.0e5,"b":"<&>"}`:            `{"a":1.0e5,"b":"<&>"}`,
		`{"a":"\u00e9\n\ud83d\ude00"}`:     `{"a":"\u00e9\n\ud83d\ude00"}`,
		`{"a":"\ud83d"}`:                   "{\"a\":\"\uFFFD\"}",
		`{"a":"\ude00\ud83d"}`:             "{\"a\":\"\uFFFD\uFFFD\"}",
		`{"a":"\ud83dx\ude00"}`:            "{\"a\":\"\uFFFDx\uFFFD\"}",
		`{"a":"\ud83d\n\ude00"}`:           "{\"a\":\"\uFFFD\\n\uFFFD\"}",
		`{"a":"\\ud83d"}`:                  `{"a":"\\ud83d"}`,
		`{"a":"\\\ud83d"}`:                 "{\"a\":\"\\\\\uFFFD\"}",
		`{"a":"\ud83d\ud83d\ude00"}`:       "{\"a\":\"\uFFFD\\ud83d\\ude00\"}",
		"{\"a\":\"\xff\"}":                 "{\"a\":\"\uFFFD\"}",
		`{"a":"\u003c\u003E\u0026\u2028"}`: "{\"a\":\"<>&\u2028\"}",
		`{"a":"\\u003c"}`:                  `{"a":"\\u003c"}`,
		`{"a":"\u0022"}`:                   `{"a":"\u0022"}`,
	}
	for in, want := range tests {
		got := string(ValidText(json.RawMessage(in)))
		require.Equal(t, want, got)
		require.True(t, json.Valid([]byte(got)))
		stored, err := json.Marshal(json.RawMessage(got))
		require.NoError(t, err)
		require.Equal(t, want, string(ValidText(stored)), "storing it changes nothing")
	}
}

func FuzzParseFailure(f *testing.F) {
	f.Add([]byte(`{"type":"error","error":{"type":"overloaded_error","message":"m"}}`), 529)
	f.Add([]byte(`[{"error":{"metadata":{"raw":"x"}}}]`), 400)
	f.Fuzz(func(t *testing.T, in []byte, status int) {
		failure, _ := ParseFailure(in)
		require.NotEmpty(t, Classify(status, failure))
		require.Less(t, len(clean(failure.Message, nil)), 1000)
		if json.Valid(in) {
			require.True(t, json.Valid(ValidText(in)))
		}
	})
}
