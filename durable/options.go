package durable

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/model"
)

// Options configure an engine. Every zero field has the default it names, and
// a nil *Options means all defaults. Open copies it.
type Options struct {
	// Models are the providers and models that agents may name. Default: an
	// empty set, so that every run ends unanswered with no_model.
	Models *model.Set
	// Registry holds the extensions. Default: an empty one.
	Registry *Registry
	// Agent is what conversations run with where they say nothing else.
	Agent Agent
	// Env returns the environment of a conversation's tools. It is called for
	// every call that asks, so it should keep what is costly. Default: none;
	// tools that ask get an error.
	Env func(ctx context.Context, c *Conversation) (env.Environment, error)
	// OnSettle is called inside the commit that settles a submission and may
	// write more in it. An error is reported and does not stop the settlement.
	OnSettle func(ctx context.Context, tx *Tx, s SubmissionRecord) error
	// Retry says how failed model requests are repeated.
	Retry RetryPolicy
	// ToolMode is how the calls of a round run. Default: ToolParallel.
	ToolMode ToolMode
	// AllFollowUps places every waiting follow-up at the end of a run instead
	// of one.
	AllFollowUps bool
	// ConcurrentRuns bounds how many model requests are under way at once; 0
	// is no bound.
	ConcurrentRuns int
	// PartialInterval is the least time between two commits of a running
	// answer or of a tool's running output. Default: 100 ms.
	PartialInterval time.Duration
	// Retention is how long an idle tree stays in memory. Default: 10 min.
	Retention time.Duration
	// Clock is the source of time. Default: the system's.
	Clock Clock
	// Logger receives what nobody else is told. Default: slog.Default.
	Logger *slog.Logger
}

// RetryPolicy says how a failed model request is repeated: after Base, then
// twice as long each time, at most Cap; a longer retry-after of the provider is
// honoured up to Cap, and one beyond it ends the run.
type RetryPolicy struct {
	// Max is the number of repetitions. 0 means 3, negative none.
	Max  int
	Base time.Duration // 0 means 2 s
	Cap  time.Duration // 0 means 60 s
}

const defaultOutputTokens = 32000

func (o *Options) withDefaults() (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Models == nil {
		c.Models = &model.Set{}
	}
	if c.Registry == nil {
		c.Registry = NewRegistry()
	}
	c.Retry.Max = cmp.Or(c.Retry.Max, 3)
	c.Retry.Base = cmp.Or(c.Retry.Base, 2*time.Second)
	c.Retry.Cap = cmp.Or(c.Retry.Cap, time.Minute)
	c.ToolMode = cmp.Or(c.ToolMode, ToolParallel)
	c.PartialInterval = cmp.Or(c.PartialInterval, 100*time.Millisecond)
	c.Retention = cmp.Or(c.Retention, 10*time.Minute)
	c.Agent.OutputTokens = cmp.Or(c.Agent.OutputTokens, defaultOutputTokens)
	c.Agent.ThinkingLevel = cmp.Or(c.Agent.ThinkingLevel, model.ThinkingOff)
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	for _, d := range []struct {
		name string
		v    int64
	}{
		{"Retry.Base", int64(c.Retry.Base)}, {"Retry.Cap", int64(c.Retry.Cap)},
		{"ConcurrentRuns", int64(c.ConcurrentRuns)}, {"PartialInterval", int64(c.PartialInterval)},
		{"Retention", int64(c.Retention)}, {"Agent.OutputTokens", int64(c.Agent.OutputTokens)},
	} {
		if d.v < 0 {
			return c, fmt.Errorf("options: %s is negative: %w", d.name, ErrInvalid)
		}
	}
	if c.ToolMode != ToolParallel && c.ToolMode != ToolSequential {
		return c, fmt.Errorf("options: ToolMode %q is unknown: %w", c.ToolMode, ErrInvalid)
	}
	if !c.Agent.ThinkingLevel.Valid() {
		return c, fmt.Errorf("options: Agent.ThinkingLevel %q is unknown: %w", c.Agent.ThinkingLevel, ErrInvalid)
	}
	return c, nil
}
