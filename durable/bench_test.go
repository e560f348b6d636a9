package durable_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
	"github.com/wp-durable/wp-durable/durable/sqlstore/sqlite"
)

// BenchmarkTurns runs turns with one tool call each on a model without latency,
// in 1, 16 and 64 conversations (E18). A conversation is replaced after 20
// turns.
func BenchmarkTurns(b *testing.B) {
	stores := []struct {
		name string
		open func(b *testing.B) durable.Store
	}{
		{"memory", func(*testing.B) durable.Store { return memstore.New() }},
		{"sqlite", func(b *testing.B) durable.Store {
			s, err := sqlite.Open(context.Background(), filepath.Join(b.TempDir(), "bench.db"), nil)
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, s.Close()) })
			return s
		}},
	}
	for _, s := range stores {
		for _, n := range []int{1, 16, 64} {
			b.Run(fmt.Sprintf("%s/%d", s.name, n), func(b *testing.B) { benchTurns(b, s.open(b), n) })
		}
	}
}

func benchTurns(b *testing.B, store durable.Store, conversations int) {
	p := faux.New(&faux.Options{KeepRequests: -1, Handler: func(req *model.Request) (faux.Step, bool) {
		if last := req.Messages[len(req.Messages)-1]; last.Role == model.RoleToolResult {
			return faux.Step{Text: "done", Usage: &model.Usage{Input: 10, Output: 1}}, true
		}
		return faux.Step{Usage: &model.Usage{Input: 10, Output: 1}, ToolCalls: []faux.ToolCall{{Name: "echo", Arguments: json.RawMessage(`{"text":"a"}`)}}}, true
	}})
	models := &model.Set{}
	models.AddProvider("faux", p)
	models.AddModel(faux.Model())
	e, err := durable.Open(context.Background(), store, &durable.Options{
		Models: models, Registry: durable.NewRegistry(durable.Extension{Name: "x", Tools: []*durable.Tool{echoTool()}}),
		Agent:  durable.Agent{Model: &model.Ref{Provider: "faux", ModelID: "faux-1"}},
		Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(b, err)
	defer func() { require.NoError(b, e.Close(context.Background())) }()

	var wg sync.WaitGroup
	var mu sync.Mutex
	var took []time.Duration
	turns := make(chan struct{}, b.N)
	for range b.N {
		turns <- struct{}{}
	}
	close(turns)
	b.ResetTimer()
	start := time.Now()
	for range conversations {
		wg.Go(func() {
			var c *durable.Conversation
			var mine []time.Duration
			n := 0
			for range turns {
				if n%20 == 0 {
					var err error
					if c, err = e.NewConversation(context.Background(), nil); err != nil {
						b.Error(err)
						return
					}
				}
				n++
				t := time.Now()
				s, err := c.Send(context.Background(), "please do the work")
				if err != nil {
					b.Error(err)
					return
				}
				rec, err := s.Wait(context.Background())
				if err != nil || rec.Status != durable.SubmissionDone {
					b.Errorf("%v %v %s", err, rec.Reason, rec.Detail)
					return
				}
				mine = append(mine, time.Since(t))
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	slices.Sort(took)
	if len(took) == 0 {
		return
	}
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "turns/s")
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
