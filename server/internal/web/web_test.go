package web

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	token   = "the-token-of-tests"
	apiKey  = "sk-very-secret"
	maxBody = 1000
)

type thing struct {
	Name string `json:"name" minLength:"1"`
	Size int    `json:"size,omitempty" minimum:"0"`
}

type (
	thingInput struct {
		ID   int64  `path:"id" minimum:"1"`
		Mode string `query:"mode" enum:"a,b"`
		Body thing
	}
	optionalInput struct{ Body *thing }
	thingOutput   struct{ Body thing }
)

// newTestHandler returns the whole chain over a small API.
func newTestHandler(t *testing.T, guard GuardOptions) (http.Handler, *API) {
	t.Helper()
	redact := secrets.NewRedactor()
	require.NoError(t, redact.Add("key", apiKey))
	mux := http.NewServeMux()
	api := NewAPI(mux, &APIOptions{Title: "Test", Version: "1", MaxBody: maxBody, Redactor: redact})
	huma.Register(api, api.Operation(huma.Operation{OperationID: "put-thing", Method: http.MethodPut, Path: "/v1/things/{id}"}, http.StatusNotFound),
		func(_ context.Context, in *thingInput) (*thingOutput, error) {
			if in.ID == 404 {
				return nil, NewProblem(http.StatusNotFound, "", "no thing")
			}
			return &thingOutput{in.Body}, nil
		})
	huma.Register(api, api.Operation(huma.Operation{OperationID: "poke", Method: http.MethodPost, Path: "/v1/poke"}),
		func(_ context.Context, in *optionalInput) (*thingOutput, error) {
			return &thingOutput{thing{Name: fmt.Sprint(in.Body != nil)}}, nil
		})
	huma.Register(api, api.Operation(huma.Operation{OperationID: "health", Method: http.MethodGet, Path: "/healthz"}),
		func(context.Context, *struct{}) (*thingOutput, error) { return &thingOutput{thing{Name: apiKey}}, nil })
	mux.HandleFunc("GET /v1/panic", func(http.ResponseWriter, *http.Request) { panic("boom " + apiKey) })
	mux.HandleFunc("GET /v1/late-panic", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, "begun")
		panic("boom")
	})
	mux.HandleFunc("GET /v1/fail", func(w http.ResponseWriter, r *http.Request) {
		NewProblem(http.StatusServiceUnavailable, "", "not now, "+apiKey).Write(w, redact)
	})
	log := slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	h := Routes(mux, maxBody, redact)
	h = Auth(h, token, redact, "/v1/own-auth")
	h = NewGuard(guard).Handler(h, redact, "/healthz")
	return Recover(Target(h, redact), log, redact), api
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(p)))
	return len(p), nil
}

func startServer(t *testing.T, guard GuardOptions) *httptest.Server {
	t.Helper()
	h, _ := newTestHandler(t, guard)
	srv := httptest.NewUnstartedServer(h)
	srv.Config.MaxHeaderBytes = 16 << 10
	srv.Config.DisableGeneralOptionsHandler = true
	srv.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(testWriter{t}, nil), slog.LevelInfo)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// raw sends a request as it is written and returns the answer.
func raw(t *testing.T, srv *httptest.Server, text string) (*http.Response, string) {
	t.Helper()
	var d net.Dialer
	c, err := d.DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	_, err = io.WriteString(c, text)
	require.NoError(t, err)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(body)
}

func request(line string, headers ...string) string {
	return line + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer " + token + "\r\n" +
		strings.Join(append(headers, ""), "\r\n") + "\r\n"
}

func requireProblem(t *testing.T, res *http.Response, body string, status int, code string) Problem {
	t.Helper()
	require.Equal(t, status, res.StatusCode, body)
	require.Equal(t, "application/problem+json", res.Header.Get("Content-Type"), body)
	var p Problem
	require.NoError(t, json.Unmarshal([]byte(body), &p), body)
	require.Equal(t, status, p.Status)
	require.Equal(t, http.StatusText(status), p.Title)
	require.Equal(t, code, p.Code)
	require.NotEmpty(t, p.Message)
	require.Equal(t, p.Message, p.Detail)
	require.NotContains(t, body, apiKey)
	return p
}

// (S2) The request target is checked before any router.
func TestTarget(t *testing.T) {
	t.Parallel()
	srv := startServer(t, GuardOptions{})
	for _, tt := range []struct {
		name, line string
		status     int
		code       string
	}{
		{"two slashes", "GET //v1/poke", 400, CodeInvalid},
		{"slash and backslash", `GET /\v1/poke`, 400, CodeInvalid},
		{"absolute form", "GET http://localhost/v1/poke", 400, CodeInvalid},
		{"asterisk", "OPTIONS *", 400, CodeInvalid},
		{"authority form", "CONNECT localhost:80", 400, CodeInvalid},
		{"encoded control character", "GET /v1/%0apoke", 400, CodeInvalid},
		{"encoded NUL", "GET /v1/%00", 400, CodeInvalid},
		{"bad escape in the query", "GET /healthz?a=%zz", 400, CodeInvalid},
		{"too long", "GET /" + strings.Repeat("a", maxTarget), 414, CodeTooLarge},
		{"dots", "GET /v1/../healthz", 404, CodeNotFound},
		{"encoded dots", "GET /v1/%2e%2e/healthz", 404, CodeNotFound},
		{"two slashes inside", "GET /v1//poke", 404, CodeNotFound},
		{"slash at the end", "GET /healthz/", 404, CodeNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, body := raw(t, srv, request(tt.line))
			requireProblem(t, res, body, tt.status, tt.code)
		})
	}
	for _, tt := range []struct {
		name, text string
		status     int
	}{
		{"bad escape", request("GET /%zz"), 400},
		{"header too large", request("GET /healthz", "X: "+strings.Repeat("a", 32<<10)), 431},
		{"two Hosts", request("GET /healthz", "Host: b"), 400},
		{"the longest target is routed", request("GET /" + strings.Repeat("a", maxTarget-1)), 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			res, body := raw(t, srv, tt.text)
			require.Equal(t, tt.status, res.StatusCode, body)
		})
	}
}

// (S2) Unknown routes and methods are problems too.
func TestRoutes(t *testing.T) {
	t.Parallel()
	srv := startServer(t, GuardOptions{})
	res, body := raw(t, srv, request("GET /nothing"))
	requireProblem(t, res, body, 404, CodeNotFound)
	res, body = raw(t, srv, request("GET /v1/things/1"))
	requireProblem(t, res, body, 405, CodeMethodNotAllowed)
	require.Equal(t, "PUT", res.Header.Get("Allow"))
	res, body = raw(t, srv, request("POST /healthz"))
	requireProblem(t, res, body, 405, CodeMethodNotAllowed)
	require.Equal(t, "GET, HEAD", res.Header.Get("Allow"))
}

// (S2)
func TestAuth(t *testing.T) {
	t.Parallel()
	srv := startServer(t, GuardOptions{})
	for _, tt := range []struct {
		name, path, header string
		status             int
	}{
		{"none", "/v1/fail", "", 401},
		{"wrong", "/v1/fail", "Bearer " + token + "x", 401},
		{"empty", "/v1/fail", "Bearer ", 401},
		{"another scheme", "/v1/fail", "Basic " + token, 401},
		{"no scheme", "/v1/fail", token, 401},
		{"right, scheme in lower case", "/v1/fail", "bearer " + token, 503},
		{"unknown routes need it too", "/v1/nothing", "", 401},
		{"and /v1 itself", "/v1", "", 401},
		{"in an escaped path", "/%76%31/fail", "", 401},
		{"open route", "/healthz", "", 200},
		{"route with its own", "/v1/own-auth", "", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := "GET " + tt.path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
			if tt.header != "" {
				text += "Authorization: " + tt.header + "\r\n"
			}
			res, body := raw(t, srv, text+"\r\n")
			require.Equal(t, tt.status, res.StatusCode, body)
			if tt.status == 401 {
				requireProblem(t, res, body, 401, CodeUnauthorized)
				require.Contains(t, res.Header.Get("Www-Authenticate"), "Bearer")
			}
		})
	}
}

// (S2) Against web pages that attack a local server.
func TestGuard(t *testing.T) {
	t.Parallel()
	local := GuardOptions{Bound: "127.0.0.1:8787"}
	public := GuardOptions{Bound: "0.0.0.0:8787"}
	named := GuardOptions{Bound: "0.0.0.0:8787", Hosts: []string{"agents.example.com"}, Origins: []string{"https://app.example.com"}, PublicHost: "public.example.com"}
	for _, tt := range []struct {
		name         string
		o            GuardOptions
		path         string
		host, origin string
		status       int
	}{
		{"localhost", local, "/v1/fail", "localhost:8787", "", 503},
		{"a name below localhost", local, "/v1/fail", "x.localhost", "", 503},
		{"IPv4 loopback", local, "/v1/fail", "127.0.0.1:8787", "", 503},
		{"IPv6 loopback", local, "/v1/fail", "[::1]:8787", "", 503},
		{"a foreign name that resolves to us", local, "/v1/fail", "evil.example.com:8787", "", 403},
		{"a name that ends alike", local, "/v1/fail", "evillocalhost", "", 403},
		{"/healthz for anybody", local, "/healthz", "evil.example.com", "", 200},
		{"private address", GuardOptions{Bound: "192.168.1.5:1"}, "/v1/fail", "evil.example.com", "", 403},
		{"bound address", GuardOptions{Bound: "192.168.1.5:1"}, "/v1/fail", "192.168.1.5:1", "", 503},
		{"public: any name", public, "/v1/fail", "anything.example.com", "", 503},
		{"named", named, "/v1/fail", "agents.example.com", "", 503},
		{"named, with port", named, "/v1/fail", "Agents.example.com.:443", "", 503},
		{"host of the public URL", named, "/v1/fail", "public.example.com", "", 503},
		{"another once names are configured", named, "/v1/fail", "anything.example.com", "", 403},

		{"own origin", local, "/v1/fail", "localhost:8787", "http://localhost:8787", 503},
		{"own origin behind TLS", named, "/v1/fail", "agents.example.com", "https://agents.example.com", 503},
		{"own origin, port as the scheme has it", named, "/v1/fail", "agents.example.com:443", "https://agents.example.com", 503},
		{"another port", local, "/v1/fail", "localhost:8787", "http://localhost:3000", 403},
		{"opaque origin", local, "/v1/fail", "localhost:8787", "null", 403},
		{"foreign origin", local, "/v1/fail", "localhost:8787", "https://evil.example.com", 403},
		{"foreign origin on a public server", public, "/v1/fail", "agents.example.com", "https://evil.example.com", 403},
		{"configured origin", named, "/v1/fail", "agents.example.com", "https://app.example.com", 503},
		{"origin of the public URL", named, "/v1/fail", "agents.example.com", "https://public.example.com", 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, _ := newTestHandler(t, tt.o)
			req := httptest.NewRequest(http.MethodGet, tt.path, nil)
			req.Host = tt.host
			req.Header.Set("Authorization", "Bearer "+token)
			if tt.origin != "" {
				req.Header.Set("Origin", tt.origin)
			}
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, req)
			require.Equal(t, tt.status, rec.Code, rec.Body)
			if tt.status == 403 {
				requireProblem(t, rec.Result(), rec.Body.String(), 403, CodeForbidden)
			}
			require.NotEqual(t, "*", rec.Header().Get("Access-Control-Allow-Origin"))
		})
	}
}

// (S2) CORS is off unless origins are configured.
func TestGuard_Preflight(t *testing.T) {
	t.Parallel()
	h, _ := newTestHandler(t, GuardOptions{Bound: "127.0.0.1:1", Origins: []string{"https://app.example.com"}})
	for origin, status := range map[string]int{"https://app.example.com": 204, "https://evil.example.com": 403, "http://localhost": 401} {
		req := httptest.NewRequest(http.MethodOptions, "/v1/things/1", nil)
		req.Host = "localhost"
		req.Header.Set("Origin", origin)
		req.Header.Set("Access-Control-Request-Method", "PUT")
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		require.Equal(t, status, rec.Code, origin)
		if status == 204 {
			require.Equal(t, origin, rec.Header().Get("Access-Control-Allow-Origin"))
			require.Contains(t, rec.Header().Get("Access-Control-Allow-Methods"), "PUT")
			require.Equal(t, "Origin", rec.Header().Get("Vary"))
		} else {
			require.Empty(t, rec.Header().Get("Access-Control-Allow-Origin"))
		}
	}
}

// (S2) Bodies: JSON of a limited size that fits its schema; validation is 400.
func TestBodies(t *testing.T) {
	t.Parallel()
	srv := startServer(t, GuardOptions{})
	big := `{"name":"` + strings.Repeat("x", maxBody) + `"}`
	exact := `{"name":"` + strings.Repeat("x", maxBody-11) + `"}`
	for _, tt := range []struct {
		name, line, contentType, body string
		status                        int
		code, location                string
	}{
		{"good", "PUT /v1/things/1", "application/json", `{"name":"a","size":1}`, 200, "", ""},
		{"charset", "PUT /v1/things/1", "application/json; charset=UTF-8", `{"name":"a"}`, 200, "", ""},
		{"the largest", "PUT /v1/things/1", "application/json", exact, 200, "", ""},
		{"too large", "PUT /v1/things/1", "application/json", big, 413, CodeTooLarge, ""},
		{"no type", "PUT /v1/things/1", "", `{"name":"a"}`, 415, CodeUnsupportedMedia, ""},
		{"form", "PUT /v1/things/1", "application/x-www-form-urlencoded", `name=a`, 415, CodeUnsupportedMedia, ""},
		{"text", "POST /v1/poke", "text/plain", `{"name":"a"}`, 415, CodeUnsupportedMedia, ""},
		{"another JSON", "PUT /v1/things/1", "application/ld+json", `{"name":"a"}`, 415, CodeUnsupportedMedia, ""},
		{"another charset", "PUT /v1/things/1", "application/json; charset=latin1", `{"name":"a"}`, 415, CodeUnsupportedMedia, ""},
		{"no JSON", "PUT /v1/things/1", "application/json", `{"name":`, 400, CodeInvalid, "body"},
		{"more than JSON", "PUT /v1/things/1", "application/json", `{"name":"a"} x`, 400, CodeInvalid, "body"},
		{"missing field", "PUT /v1/things/1", "application/json", `{}`, 400, CodeInvalid, "body.name"},
		{"unknown field", "PUT /v1/things/1", "application/json", `{"name":"a","nme":1}`, 400, CodeInvalid, "body.nme"},
		{"another casing", "PUT /v1/things/1", "application/json", `{"Name":"a"}`, 400, CodeInvalid, "body.name"},
		{"wrong type", "PUT /v1/things/1", "application/json", `{"name":1}`, 400, CodeInvalid, "body.name"},
		{"out of range", "PUT /v1/things/1", "application/json", `{"name":"a","size":-1}`, 400, CodeInvalid, "body.size"},
		{"bad path parameter", "PUT /v1/things/x", "application/json", `{"name":"a"}`, 400, CodeInvalid, "path.id"},
		{"bad query parameter", "PUT /v1/things/1?mode=c", "application/json", `{"name":"a"}`, 400, CodeInvalid, "query.mode"},
		{"unknown query parameter", "PUT /v1/things/1?mod=a", "application/json", `{"name":"a"}`, 400, CodeInvalid, "query.mod"},
		{"no body", "PUT /v1/things/1", "", "", 400, CodeInvalid, "body"},
		{"error of a handler", "PUT /v1/things/404", "application/json", `{"name":"a"}`, 404, CodeNotFound, ""},
		{"a value that is a secret", "PUT /v1/things/1", "application/json", `{"name":1,"x":"` + apiKey + `"}`, 400, CodeInvalid, "body.name"},
		{"optional body, none", "POST /v1/poke", "", "", 200, "", ""},
		{"optional body, bad", "POST /v1/poke", "application/json", "{}", 400, CodeInvalid, "body.name"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var headers []string
			if tt.contentType != "" {
				headers = append(headers, "Content-Type: "+tt.contentType)
			}
			for _, chunked := range []bool{false, true} {
				text := request(tt.line, append(headers, fmt.Sprintf("Content-Length: %d", len(tt.body)))...) + tt.body
				if chunked {
					if tt.body == "" {
						continue
					}
					text = request(tt.line, append(headers, "Transfer-Encoding: chunked")...) + fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(tt.body), tt.body)
				}
				res, body := raw(t, srv, text)
				if tt.status == 200 {
					require.Equal(t, 200, res.StatusCode, body)
					require.Equal(t, "application/json", res.Header.Get("Content-Type"))
					require.NotContains(t, body, "$schema")
					continue
				}
				p := requireProblem(t, res, body, tt.status, tt.code)
				if tt.status == 413 {
					require.Contains(t, p.Message, "1000 bytes, the limit of WP_DURABLE_LIMIT_BODY_BYTES")
				}
				if tt.location != "" {
					require.Equal(t, tt.location, p.Errors[0].Location)
					require.Contains(t, p.Message, tt.location)
				}
			}
		})
	}
	t.Run("a compressed body", func(t *testing.T) {
		t.Parallel()
		for encoding, status := range map[string]int{"gzip": 415, "identity": 200} {
			res, body := raw(t, srv, request("PUT /v1/things/1", "Content-Type: application/json", "Content-Length: 12", "Content-Encoding: "+encoding)+`{"name":"a"}`)
			require.Equal(t, status, res.StatusCode, body)
		}
	})
	t.Run("a body that breaks off", func(t *testing.T) {
		t.Parallel()
		res, body := raw(t, srv, request("PUT /v1/things/1", "Content-Type: application/json", "Transfer-Encoding: chunked")+"zz\r\n")
		requireProblem(t, res, body, 400, CodeInvalid)
	})
}

// (S1.3, S2) A panic is a 500 that shows nothing, and bodies are masked.
func TestRecover(t *testing.T) {
	t.Parallel()
	srv := startServer(t, GuardOptions{})
	res, body := raw(t, srv, request("GET /v1/panic"))
	p := requireProblem(t, res, body, 500, CodeInternal)
	require.Equal(t, "internal error", p.Message)

	res, body = raw(t, srv, request("GET /healthz"))
	require.Equal(t, 200, res.StatusCode)
	require.Contains(t, body, secrets.Mask)
	res, body = raw(t, srv, request("GET /v1/fail"))
	requireProblem(t, res, body, 503, CodeUnavailable)
	require.NotEmpty(t, res.Header.Get("Retry-After"))

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/late-panic", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	got, err := srv.Client().Do(req)
	if err == nil {
		defer got.Body.Close()
		_, err = io.ReadAll(got.Body)
	}
	require.Error(t, err, "a cut answer must not look complete")
}

func TestAPI_Document(t *testing.T) {
	t.Parallel()
	_, api := newTestHandler(t, GuardOptions{})
	api.OpenAPI().Components.Schemas.Map()["Choice"] = &huma.Schema{OneOf: []*huma.Schema{{Ref: "#/components/schemas/Thing"}, {Type: "null"}}}
	doc, err := api.Document()
	require.NoError(t, err)
	var v31, v30 map[string]any
	require.NoError(t, json.Unmarshal(doc.JSON, &v31))
	require.NoError(t, json.Unmarshal(doc.JSON30, &v30))
	require.Equal(t, "3.1.0", v31["openapi"])
	require.Equal(t, "3.0.3", v30["openapi"])
	require.NotContains(t, string(doc.JSON), `"422"`)
	require.Contains(t, string(doc.YAML), "openapi: 3.1.0")
	choice := v30["components"].(map[string]any)["schemas"].(map[string]any)["Choice"].(map[string]any)
	require.Equal(t, true, choice["nullable"])
	require.Contains(t, choice, "allOf")
	op := v31["paths"].(map[string]any)["/v1/poke"].(map[string]any)["post"].(map[string]any)
	require.NotEmpty(t, op["security"])
	require.Contains(t, op["responses"], "401")
	require.NotContains(t, v31["paths"].(map[string]any)["/healthz"].(map[string]any)["get"], "security")
}
