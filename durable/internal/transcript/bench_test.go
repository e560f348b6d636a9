package transcript

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable/model"
)

// grow appends turns of four items to c until it has n.
func grow(c *Context, n int) {
	for id := int64(len(c.items.s)) + 1; len(c.items.s) < n; id += 4 {
		turn(c, id)
	}
}

func turn(c *Context, id int64) {
	call := fmt.Sprint("call_", id)
	c.Append(Item{ID: id, Messages: []model.Message{user("question")}})
	c.Append(Item{ID: id + 1, Messages: []model.Message{answer(thought("t"), toolCall(call))}})
	c.Append(Item{ID: id + 2, Messages: []model.Message{outcome(call, "output")}})
	c.Append(Item{ID: id + 3, Messages: []model.Message{answer("done")}})
}

// BenchmarkContext_Turn is one turn: four items, the messages asked for before
// each answer, a clone per turn that goes on in the original's place.
func BenchmarkContext_Turn(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprintf("items=%d", n), func(b *testing.B) {
			base := New()
			grow(base, n)
			c := base.Clone()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%64 == 0 { // keep the length near n
					b.StopTimer()
					c = New()
					grow(c, n)
					b.StartTimer()
				}
				c = c.Clone()
				id := int64(len(c.items.s)) + 1
				turn(c, id)
				messages := c.Messages()
				ForModel(messages[len(messages)-4:], ours, true)
			}
		})
	}
}

// TestContext_CostDoesNotGrow: a turn allocates no more in a long conversation
// than in a short one (E18).
func TestContext_CostDoesNotGrow(t *testing.T) {
	allocated := func(n int) float64 {
		c := New()
		grow(c, n)
		c.Messages()
		const turns = 256
		return testing.AllocsPerRun(1, func() {
			for range turns {
				c = c.Clone()
				turn(c, int64(len(c.items.s))+1)
				c.Messages()
				c.OpenCalls()
				c.System()
			}
		}) / turns
	}
	short, long := allocated(10), allocated(20_000)
	require.Less(t, long, short*1.25, "allocations per turn: %.1f at 10 items, %.1f at 20,000", short, long)
}
