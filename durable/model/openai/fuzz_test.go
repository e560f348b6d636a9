package openai_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/wp-durable/wp-durable/durable/model/openai"
)

func FuzzChat(f *testing.F)      { fuzz(f, "chat") }
func FuzzResponses(f *testing.F) { fuzz(f, "responses") }

// fuzz feeds any body to a decoder: whatever comes out of it keeps the
// provider's contract and can be sent back.
func fuzz(f *testing.F, api string) {
	for _, a := range archives(f, api) {
		f.Add([]byte(a.get("stream")), a.get("info") != "")
	}
	provider := apis[api]
	f.Fuzz(func(t *testing.T, body []byte, tags bool) {
		p := provider(&openai.Options{APIKey: "sk-test-key", HTTPClient: &http.Client{
			Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(bytes.NewReader(body)),
					Header: http.Header{"Content-Type": {"text/event-stream"}},
				}, nil
			}),
		}})
		req := ask("hello")
		if tags {
			req.Model.Quirks = map[string]string{"think_tags": "on"}
		}
		m, err := stream(t.Context(), t, p, req)
		if err != nil {
			return
		}
		requireSendable(t, answered(req, m))
	})
}
