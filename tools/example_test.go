package tools_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/tools"
)

// An agent with the tools in a folder; the model is a scripted one.
func ExampleExtension() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "work")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	work, err := local.New(dir, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer work.Close()

	provider := faux.New(nil)
	provider.Push(
		faux.Step{ToolCalls: []faux.ToolCall{{Name: "bash", Arguments: json.RawMessage(`{"command":"echo hello > greeting.txt"}`)}}},
		faux.Step{Text: "I wrote greeting.txt."},
	)
	models := &model.Set{}
	models.AddProvider(faux.ProviderID, provider)
	models.AddModel(faux.Model())
	engine, err := durable.Open(ctx, memstore.New(), &durable.Options{
		Models:   models,
		Registry: durable.NewRegistry(tools.Extension(nil)),
		Agent:    durable.Agent{Model: &model.Ref{Provider: faux.ProviderID, ModelID: faux.ModelID}},
		Env:      func(context.Context, *durable.Conversation) (env.Environment, error) { return work, nil },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer engine.Close(ctx)

	conversation, err := engine.NewConversation(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	submission, err := conversation.Send(ctx, "Greet the world in a file.")
	if err != nil {
		log.Fatal(err)
	}
	if _, err := submission.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	answer, err := submission.Answer(ctx)
	if err != nil {
		log.Fatal(err)
	}
	b, err := os.ReadFile(dir + "/greeting.txt")
	fmt.Println(answer.Text(), string(b), err)
	// Output:
	// I wrote greeting.txt. hello
	//  <nil>
}
