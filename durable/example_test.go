package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// An engine on a store, with one tool and a scripted model. A program that is
// to survive a crash opens sqlite.Open in place of memstore.New, and a real
// provider in place of faux.
func Example() {
	ctx := context.Background()

	weather := durable.NewTool(durable.ToolSpec{
		Name: "weather", Description: "Tells the weather of a city.", Replay: durable.ReplaySafe,
	}, func(_ context.Context, _ *durable.ToolCall, args struct {
		City string `json:"city"`
	}) (durable.ToolResult, error) {
		return durable.TextResult("It rains in " + args.City + "."), nil
	})

	script := faux.New(nil)
	script.Push(
		faux.Step{ToolCalls: []faux.ToolCall{{Name: "weather", Arguments: json.RawMessage(`{"city":"Bern"}`)}}},
		faux.Step{Text: "Take an umbrella."},
	)
	models := &model.Set{}
	models.AddProvider("faux", script)
	models.AddModel(faux.Model())

	engine, err := durable.Open(ctx, memstore.New(), &durable.Options{
		Models:   models,
		Registry: durable.NewRegistry(durable.Extension{Name: "weather", Tools: []*durable.Tool{weather}}),
		Agent:    durable.Agent{Model: &model.Ref{Provider: "faux", ModelID: "faux-1"}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = engine.Close(ctx) }()

	conversation, err := engine.NewConversation(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	submission, err := conversation.Send(ctx, "What shall I wear in Bern?")
	if err != nil {
		log.Fatal(err)
	}
	for event, err := range submission.Stream(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		switch event.Type {
		case durable.StreamToolCall:
			fmt.Printf("%s %s\n", event.Name, event.Arguments)
		case durable.StreamToolResult:
			fmt.Println(event.Content[0].Text)
		case durable.StreamText:
			fmt.Println(event.Delta)
		}
	}
	// Output:
	// weather {"city":"Bern"}
	// It rains in Bern.
	// Take an umbrella.
}

// A task of one's own: a state machine that survives a crash between any two
// of its commits. This one charges a card once, whatever happens, and gives
// the money back when no courier takes the parcel.
func ExampleNewTask() {
	type order struct{ Item string }
	type state struct{ Charge string }
	type result struct{ Text string }
	type run = durable.TaskRun[order, state, result]
	type step = durable.Step[state, result]

	checkout := durable.NewTask(durable.TaskSpec[order, state, result]{
		Name: "shop.checkout", Start: "charge",
		Phases: map[string]func(context.Context, *run) error{
			"charge": func(ctx context.Context, r *run) error {
				// The key is drawn once: after a crash the card service sees
				// the same one and charges no second time.
				var key string
				if err := r.Memo(ctx, "key", "charge-1", &key); err != nil {
					return err
				}
				return r.Commit(ctx, func(context.Context, *durable.Tx) (step, error) {
					return r.Next("ship", state{Charge: key}), nil
				})
			},
			"ship": func(ctx context.Context, r *run) error {
				// The courier answers by a signal. Nothing runs until then, or
				// until the deadline.
				return r.Commit(ctx, func(context.Context, *durable.Tx) (step, error) {
					return r.Wait("shipped", r.Checkpoint(), durable.WaitOptions{Signal: "courier", Deadline: time.Now().Add(10 * time.Millisecond)}), nil
				})
			},
			"shipped": func(ctx context.Context, r *run) error {
				var tracking string
				known, err := r.Signal(&tracking)
				if err != nil {
					return err
				}
				return r.Commit(ctx, func(context.Context, *durable.Tx) (step, error) {
					if known {
						return r.Complete(result{"sent as " + tracking}), nil
					}
					return r.Complete(result{"refunded " + r.Checkpoint().Charge}), nil
				})
			},
		},
	})

	ctx := context.Background()
	engine, err := durable.Open(ctx, memstore.New(), &durable.Options{
		Registry: durable.NewRegistry(durable.Extension{Name: "shop", Tasks: []durable.TaskDefinition{checkout}}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = engine.Close(ctx) }()
	c, err := engine.NewConversation(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	var id durable.TaskID
	err = c.Update(ctx, func(_ context.Context, tx *durable.Tx) error {
		id, err = durable.StartTask(tx, checkout, order{"a piano"}, durable.TaskOptions{Conversation: c.ID()})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.WaitIdle(ctx); err != nil {
		log.Fatal(err)
	}
	task, err := engine.Task(ctx, id)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(task.State.Outcome.Status, string(task.State.Outcome.Result))
	// Output: completed {"Text":"refunded charge-1"}
}

// A document is typed state that changes only in commits.
func ExampleNewDoc() {
	type plan struct{ Steps []string }
	planDoc := durable.NewDoc(durable.DocSpec[plan]{Kind: "example.plan", Scope: durable.ScopeConversation, History: durable.Rewindable})

	ctx := context.Background()
	engine, err := durable.Open(ctx, memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = engine.Close(ctx) }()
	c, err := engine.NewConversation(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range []string{"look", "think", "act"} {
		err := c.Update(ctx, func(_ context.Context, tx *durable.Tx) error {
			p, err := planDoc.Edit(tx, int64(c.ID()))
			if err != nil {
				return err
			}
			p.Steps = append(p.Steps, s)
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	p, err := planDoc.Get(ctx, engine, int64(c.ID()))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(p.Steps)
	// Output: [look think act]
}
