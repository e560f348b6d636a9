package web

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/wp-durable/wp-durable/tools/secrets"
)

// bodyReadTimeout is how long a client may take to send a body.
const bodyReadTimeout = 60 * time.Second

// setUp changes what Huma keeps in global variables. It is the same for every
// API of a process.
var setUp = sync.OnceFunc(func() {
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, message string, errs ...error) huma.StatusError {
		return newHumaError(nil, status, message, errs...)
	}
	huma.NewErrorWithContext = newHumaError
})

// APIOptions configure an API.
type APIOptions struct {
	Title, Version, Description string
	MaxBody                     int64
	Redactor                    *secrets.Redactor
}

// API is a Huma API whose operations have the conventions of this package.
type API struct {
	huma.API
	maxBody int64
	redact  *secrets.Redactor
}

// NewAPI returns an API without operations on mux.
func NewAPI(mux *http.ServeMux, o *APIOptions) *API {
	setUp()
	format := huma.Format{
		Marshal: func(w io.Writer, v any) error {
			body, err := Marshal(v, o.Redactor)
			if err == nil {
				_, err = w.Write(body)
			}
			return err
		},
		// What comes in is masked too: a secret that somebody sends is neither
		// stored nor told to a model (S1.3).
		Unmarshal: func(data []byte, v any) error { return json.Unmarshal(o.Redactor.JSON(data), v) },
	}
	config := huma.Config{
		OpenAPI: &huma.OpenAPI{
			OpenAPI: "3.1.0",
			Info:    &huma.Info{Title: o.Title, Version: o.Version, Description: o.Description},
			Components: &huma.Components{
				Schemas: huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer),
				SecuritySchemes: map[string]*huma.SecurityScheme{
					bearerScheme: {Type: "http", Scheme: "bearer", Description: "The server's token, WP_DURABLE_TOKEN."},
				},
			},
		},
		Formats:       map[string]huma.Format{"application/json": format, "json": format},
		DefaultFormat: "application/json",
	}
	return &API{API: humago.New(mux, config), maxBody: o.MaxBody, redact: o.Redactor}
}

const bearerScheme = "bearer"

// refuseUnknownQuery refuses query parameters that the operation does not have.
func (a *API) refuseUnknownQuery(ctx huma.Context, next func(huma.Context)) {
	var known []string
	for _, p := range ctx.Operation().Parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	r, w := humago.Unwrap(ctx)
	if p := unknownQuery(r, known); p != nil {
		p.Write(w, a.redact)
		return
	}
	next(ctx)
}

// NoQuery refuses every query parameter of a route that is no operation.
func (a *API) NoQuery(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if p := unknownQuery(r, nil); p != nil {
			p.Write(w, a.redact)
			return
		}
		next(w, r)
	}
}

// unknownQuery returns the problem of a request with parameters that are not
// among the known, nil when it has none.
func unknownQuery(r *http.Request, known []string) *Problem {
	query := r.URL.Query()
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(known, name) {
			continue
		}
		message := "the route has no such parameter"
		if len(known) > 0 {
			message += "; it has " + strings.Join(known, ", ")
		}
		return Invalid("query."+shortened(name), message)
	}
	return nil
}

// Operation completes an operation for [huma.Register]: the problems it may
// answer, its limits, and that it needs the token when it is under /v1. Huma's
// own list of errors stays empty, because Huma extends it by statuses that this
// server does not use.
func (a *API) Operation(op huma.Operation, problems ...int) huma.Operation {
	if protected(op.Path, nil) {
		op.Security = []map[string][]string{{bearerScheme: {}}}
		problems = append(problems, http.StatusUnauthorized)
	}
	problems = append(problems, http.StatusBadRequest, http.StatusForbidden, http.StatusInternalServerError, http.StatusServiceUnavailable)
	if op.Method != http.MethodGet {
		problems = append(problems, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusInsufficientStorage)
	}
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	for _, status := range problems {
		if op.Responses[statusKey(status)] == nil {
			op.Responses[statusKey(status)] = a.problemResponse(status)
		}
	}
	op.Metadata = map[string]any{registryKey: a.OpenAPI().Components.Schemas}
	op.Middlewares = append(op.Middlewares, a.refuseUnknownQuery)
	// Huma refuses a body that is as long as its limit.
	op.MaxBodyBytes = a.maxBody + 1
	op.BodyReadTimeout = bodyReadTimeout
	return op
}
