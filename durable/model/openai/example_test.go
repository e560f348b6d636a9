package openai_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/openai"
)

func ExampleNewChat() {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"choices":[{"delta":{"content":"Hello"}}]}

data: {"choices":[{"delta":{"content":" there."},"finish_reason":"stop"}]}

data: [DONE]

`)
	}))
	defer server.Close()

	provider := openai.NewChat(&openai.Options{BaseURL: server.URL + "/v1", KeyOptional: true})
	res, err := provider.Stream(context.Background(), &model.Request{
		Model:           model.Info{Provider: "local", ID: "small", Quirks: map[string]string{openai.QuirkThinkTags: "on"}},
		Messages:        []model.Message{model.UserMessage("hi", time.Now())},
		MaxOutputTokens: 1000,
	}, func(d model.Delta) { fmt.Printf("%q\n", d.Text) })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Message.StopReason, res.Message.Text())
	// Output:
	// "Hello"
	// " there."
	// stop Hello there.
}

func ExampleNewResponses() {
	provider := openai.NewResponses(&openai.Options{APIKey: ""})
	fmt.Println(provider.Available())
	// Output: openai: no API key: missing credential
}
