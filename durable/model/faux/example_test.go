package faux_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

func Example() {
	p := faux.New(&faux.Options{Strict: true})
	p.Push(faux.Step{Text: "Let me look.", ToolCalls: []faux.ToolCall{
		{Name: "bash", Arguments: json.RawMessage(`{"command": "ls"}`)},
	}})

	res, err := p.Stream(context.Background(), &model.Request{
		Model:           faux.Model(),
		Messages:        []model.Message{model.UserMessage("what is here?", time.Now())},
		MaxOutputTokens: 1000,
	}, func(d model.Delta) { fmt.Println(d.Kind, d.Text) })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Message.StopReason, res.Message.ToolCalls()[0].ID)
	// Output:
	// text Let me look.
	// toolCall {"command":"ls"}
	// toolUse call_1
}
