package web

import (
	"bufio"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// writeTimeout is how long a client may take to read a whole response that is
// not a stream.
const writeTimeout = 60 * time.Second

// response watches what is written. An error of writing is not passed on: the
// connection is lost, and no handler could do anything about it. A stream
// writes to what Unwrap returns and sees its errors.
type response struct {
	http.ResponseWriter
	status int
	broken bool
}

func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *response) WriteHeader(status int) {
	if w.status == 0 {
		if status >= 200 {
			w.status = status
			// Not every writer has deadlines; tests' have none.
			_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(writeTimeout))
		}
		w.ResponseWriter.WriteHeader(status)
	}
}

func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.broken {
		_, err := w.ResponseWriter.Write(p)
		w.broken = err != nil
	}
	return len(p), nil
}

// Hijack hands the connection over, for WebSockets.
func (w *response) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
	}
	return c, rw, err
}

// Recover answers a panic of next with a 500, or cuts the connection when the
// answer has begun, and logs it. It also logs every request at level debug.
func Recover(next http.Handler, log *slog.Logger, redact *secrets.Redactor) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w := &response{ResponseWriter: rw}
		began := time.Now()
		defer func() {
			v := recover()
			if v == nil {
				log.Debug("request", "method", r.Method, "path", shortened(r.URL.Path), "status", w.status, "duration", time.Since(began))
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			log.Error("handler panicked", "method", r.Method, "path", shortened(r.URL.Path), "panic", v, "stack", string(debug.Stack()))
			if w.status != 0 {
				panic(http.ErrAbortHandler)
			}
			NewProblem(http.StatusInternalServerError, CodeInternal, "internal error").Write(w, redact)
		}()
		next.ServeHTTP(w, r)
	})
}

// shortened returns what a log line shows of a path.
func shortened(path string) string {
	const most = 200
	if len(path) > most {
		return path[:most] + "…"
	}
	return path
}
