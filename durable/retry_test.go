package durable_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/model"
	"github.com/wp-durable/wp-durable/durable/model/faux"
)

// timed is a scripted model that notes when it is asked.
func timed(r *rig, steps ...faux.Step) *[]time.Duration {
	var at []time.Duration
	begin := time.Now()
	n := 0
	r.model = faux.New(&faux.Options{Strict: true, Handler: func(*model.Request) (faux.Step, bool) {
		at = append(at, time.Since(begin).Round(time.Millisecond))
		n++
		return steps[min(n, len(steps))-1], true
	}})
	r.provide(r.model)
	return &at
}

func seconds(list ...int) (out []time.Duration) {
	for _, s := range list {
		out = append(out, time.Duration(s)*time.Second)
	}
	return out
}

// Failures that may pass are repeated after 2, 4 and 8 seconds, and then no
// more; those that a repetition cannot cure are not (E12.3, E16).
func TestRetry_Classes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		class model.Class
		again bool
	}{
		{model.ClassRateLimit, true}, {model.ClassOverloaded, true}, {model.ClassServerError, true}, {model.ClassNetwork, true},
		{model.ClassStalled, true}, {model.ClassTimeout, true}, {model.ClassIncompleteStream, true}, {model.ClassProtocol, true},
		{model.ClassQuota, false}, {model.ClassRequestTooLarge, false}, {model.ClassInvalidRequest, false}, {model.ClassAuth, false},
		{model.ClassNotFound, false}, {model.ClassRefusal, false}, {model.ClassContentFilter, false}, {model.ClassAborted, false},
	} {
		t.Run(string(tc.class), func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				at := timed(r, failure(tc.class))
				r.open()
				c := r.conversation()
				rec := r.unanswered(r.send(c, "go"), durable.ReasonModelError)
				require.Contains(t, string(rec.Detail), string(tc.class))
				want := seconds(0)
				if tc.again {
					want = seconds(0, 2, 6, 14)
				}
				require.Equal(t, want, *at)
				require.Equal(t, []string{"pi.user", "pi.assistant"}, r.kinds(c), "one error entry")
				r.wellFormed(c)
			})
		})
	}
}

// The policy is the host's: how often, how long, and at most how long; none at
// all when the maximum is negative (E12.3).
func TestRetry_Policy(t *testing.T) {
	t.Parallel()
	after := func(ms int64) faux.Step {
		s := failure(model.ClassRateLimit)
		s.Error.RetryAfterMS = ms
		return s
	}
	noRetry := failure(model.ClassOverloaded)
	noRetry.Error.NoRetry = true
	for name, tc := range map[string]struct {
		policy durable.RetryPolicy
		step   faux.Step
		want   []time.Duration
	}{
		"none":                  {durable.RetryPolicy{Max: -1}, after(0), seconds(0)},
		"one":                   {durable.RetryPolicy{Max: 1}, after(0), seconds(0, 2)},
		"capped":                {durable.RetryPolicy{Max: 5, Base: 10 * time.Second, Cap: 15 * time.Second}, after(0), seconds(0, 10, 25, 40, 55, 70)},
		"base above the cap":    {durable.RetryPolicy{Max: 2, Base: time.Minute, Cap: time.Second}, after(0), seconds(0, 1, 2)},
		"retry-after":           {durable.RetryPolicy{}, after(30_000), seconds(0, 30, 60, 90)},
		"short retry-after":     {durable.RetryPolicy{}, after(10), seconds(0, 2, 6, 14)},
		"retry-after at cap":    {durable.RetryPolicy{Max: 1}, after(60_000), seconds(0, 60)},
		"retry-after beyond it": {durable.RetryPolicy{}, after(60_001), seconds(0)},
		"told not to":           {durable.RetryPolicy{}, noRetry, seconds(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, func(t *testing.T) {
				r := newRig(t)
				r.opts.Retry = tc.policy
				at := timed(r, tc.step)
				r.open()
				s := r.send(r.conversation(), "go")
				<-time.After(time.Hour)
				r.unanswered(s, durable.ReasonModelError)
				require.Equal(t, tc.want, *at)
			})
		})
	}
}

// A wait for a repetition holds over a restart, with the attempts counted, and
// success begins the count anew (E6.4, E12.1).
func TestRetry_Restart(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t, tools(echoTool()))
		fail := failure(model.ClassNetwork)
		at := timed(r, fail, fail, fail, call("echo", `{"text":"a"}`), fail, fail, fail, text("at last"))
		r.open()
		c := r.conversation()
		s := r.send(c, "go")
		for _, pause := range seconds(1, 3, 5, 1, 1, 1, 1) {
			after(pause)
			r.close()
			<-time.After(500 * time.Millisecond)
			r.open()
		}
		after(time.Hour)
		require.Equal(t, durable.SubmissionDone, r.record(s).Status)
		require.Len(t, *at, 8)
		require.Equal(t, seconds(0, 2), (*at)[:2])
		require.Equal(t, []string{"pi.user", "pi.system", "pi.assistant", "pi.tool-result", "pi.assistant"}, r.kinds(r.again(c)))
	})
}

// Watchers see that a request is repeated, when, why, and how it ended (E17.2).
func TestRetry_Events(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T) {
		r := newRig(t).open()
		c := r.conversation()
		w := watch(r, c)
		after(time.Second)
		r.model.Push(failure(model.ClassStalled), failure(model.ClassTimeout), text("done"))
		r.answer(r.send(c, "go"))
		after(time.Second)
		var starts, ends []durable.RetryEvent
		for _, ev := range w.of(durable.EventAutoRetryStart) {
			starts = append(starts, ev.Data.(durable.RetryEvent))
		}
		for _, ev := range w.of(durable.EventAutoRetryEnd) {
			ends = append(ends, ev.Data.(durable.RetryEvent))
		}
		require.Len(t, starts, 2)
		require.Equal(t, []int{1, 2}, []int{starts[0].Attempt, starts[1].Attempt})
		require.Equal(t, []int64{2000, 4000}, []int64{starts[0].DelayMS, starts[1].DelayMS})
		require.Equal(t, model.ClassTimeout, starts[1].Class)
		require.Equal(t, 3, starts[0].MaxAttempts)
		require.Len(t, ends, 1)
		require.True(t, ends[0].Success)
		require.Equal(t, 2, ends[0].Attempt)
	})
}
