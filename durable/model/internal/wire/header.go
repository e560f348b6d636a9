package wire

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxRetryAfter bounds what a server may ask for, so that it fits a Duration.
const maxRetryAfter = 365 * 24 * time.Hour

// retryAfter returns the wait the answer asks for: retry-after-ms, else
// retry-after in seconds or as a date, which is read against the server's own
// clock when it tells it.
func retryAfter(h http.Header) time.Duration {
	if ms, err := strconv.ParseFloat(strings.TrimSpace(h.Get("Retry-After-Ms")), 64); err == nil {
		return wait(ms * float64(time.Millisecond))
	}
	text := strings.TrimSpace(h.Get("Retry-After"))
	if s, err := strconv.ParseFloat(text, 64); err == nil {
		return wait(s * float64(time.Second))
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return wait(float64(at.Sub(now)))
}

func wait(ns float64) time.Duration {
	if math.IsNaN(ns) || ns <= 0 {
		return 0
	}
	return time.Duration(min(ns, float64(maxRetryAfter)))
}

func requestID(h http.Header) string {
	for _, name := range []string{"Request-Id", "X-Request-Id", "Apim-Request-Id", "Cf-Ray"} {
		if v := h.Get(name); v != "" {
			return v
		}
	}
	return ""
}

// clean makes provider text fit to store and show: secrets masked, one line,
// valid UTF-8, bounded.
func clean(s string, secrets []string) string {
	for _, secret := range secrets {
		if len(secret) >= 4 {
			s = strings.ReplaceAll(s, secret, "[masked]")
		}
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.TrimSpace(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, s))
	if len(s) <= maxMessage {
		return s
	}
	end := maxMessage
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}
