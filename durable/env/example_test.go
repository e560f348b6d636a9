package env_test

import (
	"fmt"

	"github.com/wp-durable/wp-durable/durable/env"
)

// A window of three lines on what a command prints, and a reader that follows
// it.
func ExampleOutput() {
	out := env.NewOutput(&env.OutputOptions{MaxLines: 3})
	for i := range 5 {
		out.Receive(env.Stdout, fmt.Sprintf("line %d\r\n", i), 0, 0)
		delta, _ := out.TakeDelta()
		fmt.Printf("%q\n", delta)
	}
	c := out.Counts()
	fmt.Printf("%s%d of %d lines\n", out, c.Lines-c.SkippedLines, c.Lines)
	// Output:
	// "line 0\n"
	// "line 1\n"
	// "line 2\n"
	// "line 3\n"
	// "line 4\n"
	// line 2
	// line 3
	// line 4
	// 3 of 5 lines
}
