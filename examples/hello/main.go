// Hello is an agent with one tool whose work is kept in a SQLite file.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

func main() {
	ctx := context.Background()

	weather := durable.NewTool(durable.ToolSpec{
		Name: "weather", Description: "Tells the weather of a city.", Replay: durable.ReplaySafe,
	}, func(_ context.Context, _ *durable.ToolCall, args struct {
		City string `json:"city"`
	}) (durable.ToolResult, error) {
		return durable.TextResult("It rains in " + args.City + "."), nil
	})

	// A scripted model, so that this runs without a key. With one:
	// models.AddProvider("anthropic", anthropic.New(&anthropic.Options{APIKey: key}))
	script := faux.New(nil)
	script.Push(
		faux.Step{ToolCalls: []faux.ToolCall{{Name: "weather", Arguments: json.RawMessage(`{"city":"Bern"}`)}}},
		faux.Step{Text: "Take an umbrella."},
	)
	models := &model.Set{}
	models.AddProvider("faux", script)

	store, err := sqlite.Open(ctx, "hello.db", nil)
	if err != nil {
		log.Fatal(err)
	}
	engine, err := durable.Open(ctx, store, &durable.Options{
		Models:   models,
		Agent:    durable.Agent{Model: &model.Ref{Provider: "faux", ModelID: "faux-1"}},
		Registry: durable.NewRegistry(durable.Extension{Name: "weather", Tools: []*durable.Tool{weather}}),
	})
	if err != nil {
		log.Fatal(err)
	}
	conversation, err := engine.NewConversation(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	submission, err := conversation.Send(ctx, "What shall I wear in Bern?")
	if err != nil {
		log.Fatal(err) // nothing was stored
	}
	// From here on the question will be answered, whatever happens to this
	// program: the next one that opens the store goes on with it.
	if _, err := submission.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	answer, err := submission.Answer(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(answer.Text())

	if err := engine.Close(ctx); err != nil {
		log.Fatal(err)
	}
	if err := store.Close(); err != nil {
		log.Fatal(err)
	}
}
