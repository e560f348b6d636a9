package transcript

import (
	"fmt"
	"runtime"
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

// TestContext_CostDoesNotGrow: a turn allocates, and so copies, no more in a
// long conversation than in a short one (E18). Each is measured while it
// doubles, so that both hold one growth of each array. Not parallel: it counts
// what the process allocates.
func TestContext_CostDoesNotGrow(t *testing.T) {
	perTurn := func(n int) uint64 {
		c := New()
		grow(c, n)
		c.Messages()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range n / 4 {
			c = c.Clone()
			turn(c, int64(len(c.items.s))+1)
			c.Messages()
			c.OpenCalls()
			c.System()
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / uint64(n/4)
	}
	short, long := perTurn(512), perTurn(16_384)
	t.Logf("%d bytes a turn from 512 items on, %d from 16,384 on", short, long)
	require.Less(t, float64(long), 1.25*float64(short))
}
