package anthropic

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/internal/wire"
)

// FuzzDecode feeds the decoder arbitrary bytes as a stream: it ends in an
// answer or a classified error, and its deltas always match its message.
func FuzzDecode(f *testing.F) {
	f.Add(sse(msgStart, ping, textStart, textHello, textWorld, blockStop, endTurn, msgStop))
	f.Add(sse(msgStart, textStart, textHello, `{"type":"error","error":{"type":"overloaded_error","message":"x"}}`))
	f.Add(sse(msgStart, `{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"a","signature":"b"}}`, blockStop, stopWith("refusal")))
	f.Add(sse(msgStart, `{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"","name":"n","input":{"a":1}}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{"}}`, endTools, msgStop))
	f.Add(sse(msgStart, `{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"d"}}`, stopWith("pause_turn")))
	f.Add("data: {\"type\":\"message_stop\"}\n\ndata: 1\n\n")
	f.Fuzz(func(t *testing.T, in string) {
		client := wire.NewClient(&wire.Options{HTTPClient: &http.Client{Transport: answer(in)}})
		s, err := client.Do(t.Context(), &wire.Request{URL: "http://test.invalid/", Body: []byte("{}")})
		require.NoError(t, err)
		defer s.Close()
		var d deltas
		dec := newDecoder(newRequest(adaptive, ask("hi")), d.emit)
		_, err = dec.read(s)
		var resp *model.Response
		if err != nil {
			resp, err = dec.failed(err)
			require.NotEmpty(t, model.AsError(err).Class)
			require.Less(t, len(err.Error()), 1000)
			if resp == nil {
				return
			}
		} else {
			resp, err = dec.response()
			require.NoError(t, err)
			require.NotEmpty(t, resp.Message.StopReason)
		}
		d.requireMatch(t, resp.Message)
		_, err = resp.Message.MarshalJSON()
		require.NoError(t, err)
		next := newRequest(adaptive, append(ask("hi"), *resp.Message))
		_, err = encode(next, next.Messages)
		require.NoError(t, err)
	})
}

// answer is a transport that answers every request with its text.
type answer string

func (a answer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Body: io.NopCloser(strings.NewReader(string(a))),
		Header: http.Header{"Content-Type": {"text/event-stream"}},
	}, nil
}
