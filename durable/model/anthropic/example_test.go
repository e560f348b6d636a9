package anthropic_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/anthropic"
)

func ExampleNew() {
	// A server that speaks the format stands in for Anthropic's.
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Good "}}

data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"morning."}}

data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":8,"output_tokens":3}}

data: {"type":"message_stop"}

`)
	}))
	defer srv.Close()

	provider := anthropic.New(&anthropic.Options{APIKey: "sk-ant-…", BaseURL: srv.URL, HTTPClient: srv.Client()})
	resp, err := provider.Stream(context.Background(), &model.Request{
		Model:           model.Info{Provider: "anthropic", ID: "claude-opus-5-5"},
		Messages:        []model.Message{model.UserMessage("Say good morning.", time.Now())},
		MaxOutputTokens: 1000,
	}, func(d model.Delta) { fmt.Printf("%q\n", d.Text) })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(resp.Message.Text(), resp.Message.StopReason, resp.Message.Usage.Total)
	// Output:
	// "Good "
	// "morning."
	// Good morning. stop 11
}
