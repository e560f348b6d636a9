package isolation

import (
	"testing"

	"github.com/wp-durable/wp-durable/durable/env/envtest"
	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// E19: every level is an environment.
func TestEnv(t *testing.T) {
	t.Parallel()
	eachLevel(t, func(t *testing.T, l Level) { conform(t, &Options{Level: l}) })
}

// E19, with a user id for each tree.
func TestEnv_Range(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		conform(t, &Options{Level: Root, AgentUIDs: isolationtest.UIDs(t, 200)})
	})
}

func conform(t *testing.T, o *Options) {
	o.ConcurrentCommands, o.NPROC = 64, 512
	m := manager(t, o)
	trees := make(chan int64)
	go func() {
		for id := int64(1); ; id++ {
			select {
			case trees <- id:
			case <-t.Context().Done():
				return
			}
		}
	}()
	envtest.Run(t, func(t *testing.T) *envtest.Harness {
		return &envtest.Harness{
			Env:    environmentOf(t, m, <-trees),
			Merges: true, RawOutput: true, PrivateSpill: true, KillsDaemons: true,
		}
	})
}
