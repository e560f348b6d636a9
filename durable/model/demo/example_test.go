package demo_test

import (
	"context"
	"fmt"
	"time"

	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/demo"
)

func Example() {
	p := demo.New(&demo.Options{Hint: "Ask your administrator for a model."})
	res, err := p.Stream(context.Background(), &model.Request{
		Model:           demo.Model(),
		Messages:        []model.Message{model.UserMessage("run `ls`", time.Now())},
		MaxOutputTokens: 1000,
	}, func(model.Delta) {})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Message.Text())
	// Output: I am a scripted demo, not a model. I understood that I should run `ls`, but this conversation does not offer me the tool bash. Ask your administrator for a model.
}
