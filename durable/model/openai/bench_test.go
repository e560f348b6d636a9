package openai_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/openai"
)

// longStream is an answer of n pieces in each of the fields that grow.
func longStream(n int) []byte {
	var b strings.Builder
	piece := func(delta any) {
		raw, _ := json.Marshal(delta)
		fmt.Fprintf(&b, "data: {\"choices\":[{\"index\":0,\"delta\":%s}]}\n\n", raw)
	}
	type m = map[string]any
	for range n {
		piece(m{"reasoning": "abcd", "reasoning_details": []m{{"type": "reasoning.text", "text": "abcd", "index": 0}}})
	}
	for range n {
		piece(m{"content": "abcd"})
	}
	piece(m{"tool_calls": []m{{"index": 0, "id": "c", "function": m{"name": "write", "arguments": `{"content":"`}}}})
	for range n {
		piece(m{"tool_calls": []m{{"index": 0, "function": m{"arguments": "ab}d"}}}})
	}
	piece(m{"tool_calls": []m{{"index": 0, "function": m{"arguments": `"}`}}}})
	b.WriteString("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\ndata: [DONE]\n\n")
	return []byte(b.String())
}

// The cost of a piece does not grow with the answer: compare the times a piece
// of the two lengths.
func BenchmarkChat_Pieces(b *testing.B) {
	for _, n := range []int{1_000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			body := longStream(n)
			p := openai.NewChat(&openai.Options{KeyOptional: true, HTTPClient: &http.Client{
				Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
					return &http.Response{
						StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(bytes.NewReader(body)),
						Header: http.Header{"Content-Type": {"text/event-stream"}},
					}, nil
				}),
			}})
			req := ask("hi")
			for b.Loop() {
				res, err := p.Stream(b.Context(), req, func(model.Delta) {})
				require.NoError(b, err)
				require.Len(b, res.Message.Content, 3)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(3*n), "ns/piece")
		})
	}
}
