package web

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// Auth lets requests for paths under /v1 pass only with the bearer token.
// except are paths with an authentication of their own.
func Auth(next http.Handler, token string, redact *secrets.Redactor, except ...string) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !protected(r.URL.Path, except) {
			next.ServeHTTP(w, r)
			return
		}
		given, sent := bearer(r.Header.Get("Authorization"))
		got := sha256.Sum256([]byte(given))
		if sent && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			next.ServeHTTP(w, r)
			return
		}
		message, challenge := "a bearer token is needed", `Bearer realm="wp-durable"`
		if sent {
			message, challenge = "the bearer token is wrong", challenge+`, error="invalid_token"`
		}
		p := NewProblem(http.StatusUnauthorized, CodeUnauthorized, message)
		p.SetHeader("Www-Authenticate", challenge)
		p.Write(w, redact)
	})
}

func protected(path string, except []string) bool {
	for _, e := range except {
		if path == e {
			return false
		}
	}
	return path == "/v1" || strings.HasPrefix(path, "/v1/")
}

func bearer(header string) (token string, ok bool) {
	scheme, token, ok := strings.Cut(header, " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}
