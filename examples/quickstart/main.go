// Quickstart is an agent with one tool in a SQLite file. Run it, kill it at
// any moment and run it again: it goes on where it stopped.
//
//	go run ./examples/quickstart [file]
//
// The model is a scripted one, so that it runs without a key; the comment in
// models shows a real one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"os"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

func main() {
	file := "quickstart.db"
	if len(os.Args) > 1 {
		file = os.Args[1]
	}
	if err := run(context.Background(), file, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, file string, out io.Writer) (err error) {
	store, err := sqlite.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()

	engine, err := durable.Open(ctx, store, &durable.Options{
		Models:   models(),
		Registry: durable.NewRegistry(durable.Extension{Name: "dice", Tools: []*durable.Tool{diceTool()}}),
		Agent:    durable.Agent{Model: &model.Ref{Provider: "faux", ModelID: "faux-1"}, Instructions: "Be brief."},
	})
	if err != nil {
		return err
	}
	defer func() { _ = engine.Close(ctx) }()

	conversation, err := open(ctx, engine)
	if err != nil {
		return err
	}
	// The request id makes the call safe to repeat: however often it is made
	// in this conversation, the question is answered once.
	submission, _, err := conversation.Submit(ctx, &durable.SubmitParams{
		RequestID: "first", Content: []model.Block{model.Text("Roll a die for me.")},
	})
	if err != nil {
		return err
	}
	for event, err := range submission.Stream(ctx) {
		if err != nil {
			return err
		}
		switch event.Type {
		case durable.StreamToolCall:
			_, _ = fmt.Fprintf(out, "calls %s %s\n", event.Name, event.Arguments)
		case durable.StreamToolResult:
			_, _ = fmt.Fprintln(out, event.Content[0].Text)
		case durable.StreamText:
			_, _ = fmt.Fprint(out, event.Delta)
		case durable.StreamDone:
			_, _ = fmt.Fprintf(out, "\nsubmission %d is %s\n", event.Submission.ID, event.Submission.Status)
		}
	}
	return nil
}

// open returns the one conversation of this program: it claims a name that is
// unique in the store, so a later run finds the conversation of the first.
func open(ctx context.Context, engine *durable.Engine) (*durable.Conversation, error) {
	c, err := engine.NewConversation(ctx, &durable.ConversationParams{Claim: &durable.Claim{Scope: "quickstart", Key: "conversation"}})
	var taken *durable.ConflictError
	if errors.As(err, &taken) && taken.Claim != nil {
		return engine.Conversation(ctx, durable.ConversationID(taken.Claim.Value))
	}
	return c, err
}

// diceTool draws once a call: Memo stores the first throw, so a call that runs
// again after a crash shows the same one.
func diceTool() *durable.Tool {
	return durable.NewTool(durable.ToolSpec{
		Name: "dice", Description: "Throws a die with that many sides.", Replay: durable.ReplaySafe,
	}, func(ctx context.Context, call *durable.ToolCall, args struct {
		Sides int `json:"sides" jsonschema:"the number of sides"`
	}) (durable.ToolResult, error) {
		if args.Sides < 2 {
			return durable.ErrorResult("a die has at least 2 sides"), nil
		}
		var thrown int
		if err := call.Memo(ctx, "throw", 1+rand.IntN(args.Sides), &thrown); err != nil {
			return durable.ToolResult{}, err
		}
		return durable.TextResult(fmt.Sprintf("%d of %d", thrown, args.Sides)), nil
	})
}

// models offers the scripted model. With a key it would be:
//
//	models.AddProvider("anthropic", anthropic.New(&anthropic.Options{APIKey: key}))
//	models.AddModel(catalog.Models()...)
func models() *model.Set {
	script := faux.New(nil)
	script.AddRules([]faux.Rule{
		{When: "Roll a die", Step: faux.Step{ToolCalls: []faux.ToolCall{{Name: "dice", Arguments: json.RawMessage(`{"sides":6}`)}}}},
		{When: " of 6", Step: faux.Step{Text: "You rolled it."}},
	}, 0)
	models := &model.Set{}
	models.AddProvider("faux", script)
	models.AddModel(faux.Model())
	return models
}
