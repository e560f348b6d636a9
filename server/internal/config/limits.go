package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Limits bound what the server does (S7). In JSON they are what /v1/status
// shows.
type Limits struct {
	OutputTokens       int64   `json:"outputTokens" doc:"Output limit of an answer where neither the agent nor the submission sets one, in tokens"`
	WaitMS             int64   `json:"waitMs" doc:"Longest time a long poll is held, in milliseconds"`
	HeartbeatMS        int64   `json:"heartbeatMs" doc:"Longest silence of a stream, in milliseconds"`
	BodyBytes          int64   `json:"bodyBytes" doc:"Largest request body, in bytes"`
	BashTimeoutMS      int64   `json:"bashTimeoutMs" doc:"Time a command has when it asks for none, in milliseconds"`
	BashOutputBytes    int64   `json:"bashOutputBytes" doc:"Output of a command that is kept for the model, in bytes"`
	SpillBytes         int64   `json:"spillBytes" doc:"Largest file with the whole output of a command, in bytes"`
	FetchBytes         int64   `json:"fetchBytes" doc:"Largest download, in bytes"`
	FetchTimeoutMS     int64   `json:"fetchTimeoutMs" doc:"Time a download has, in milliseconds"`
	ModelIdleMS        int64   `json:"modelIdleMs" doc:"Longest silence of a model provider, in milliseconds"`
	WorkdirBytes       int64   `json:"workdirBytes" doc:"Largest work folder, in bytes"`
	NProc              int64   `json:"nproc" doc:"Processes of a command"`
	FSize              int64   `json:"fsize" doc:"Largest file a command may write, in bytes"`
	SubagentParallel   int64   `json:"subagentParallel" doc:"Subagents of a conversation at a time"`
	SubagentDepth      int64   `json:"subagentDepth" doc:"How deep subagents may start subagents"`
	JevTimeoutMS       int64   `json:"jevTimeoutMs" doc:"Time a call of the jev extension has, in milliseconds"`
	ApifyDailyUSD      float64 `json:"apifyDailyUsd" doc:"What the apify extension may spend a day, in US dollars"`
	ApifyClientSlackMS int64   `json:"apifyClientSlackMs" doc:"Time the apify extension waits beyond a run's own limit, in milliseconds"`
	ApifyInlineBytes   int64   `json:"apifyInlineBytes" doc:"Largest result the apify extension shows a model directly, in bytes"`
	ReconnectWaitMS    int64   `json:"reconnectWaitMs" doc:"Time a tool call waits for a bridge that went away, in milliseconds"`
	CallbackTimeoutMS  int64   `json:"callbackTimeoutMs" doc:"Time a callback's receiver has, in milliseconds"`
	ConcurrentCommands int64   `json:"concurrentCommands" doc:"Commands at a time, over all conversations"`
	ConcurrentRuns     int64   `json:"concurrentRuns" doc:"Model requests at a time, over all conversations; 0 is no bound"`
}

// limit is one row of the table of limits.
type limit struct {
	name     string // the part behind WP_DURABLE_LIMIT_
	field    func(*Limits) *int64
	def      int64
	min, max int64 // max 0: none
	help     string
}

const (
	kB = 1000
	mB = 1000 * kB
	gB = 1000 * mB
)

var limits = []limit{
	{"OUTPUT_TOKENS", func(l *Limits) *int64 { return &l.OutputTokens }, 32000, 1, 10 * mB, "output limit of an answer, in tokens"},
	{"WAIT_MS", func(l *Limits) *int64 { return &l.WaitMS }, 25000, 1, 29000, "longest time a long poll is held"},
	{"HEARTBEAT_MS", func(l *Limits) *int64 { return &l.HeartbeatMS }, 15000, 1, 29000, "longest silence of a stream; kept at most WAIT_MS"},
	{"BODY_BYTES", func(l *Limits) *int64 { return &l.BodyBytes }, 20 * mB, 1, gB, "largest request body"},
	{"BASH_TIMEOUT_MS", func(l *Limits) *int64 { return &l.BashTimeoutMS }, 120000, 1, 600000, "time a command has when it asks for none"},
	{"BASH_OUTPUT_BYTES", func(l *Limits) *int64 { return &l.BashOutputBytes }, 65536, 1, 100 * mB, "output of a command that is kept for the model"},
	{"SPILL_BYTES", func(l *Limits) *int64 { return &l.SpillBytes }, 256 * mB, 1, 0, "largest file with a command's whole output"},
	{"FETCH_BYTES", func(l *Limits) *int64 { return &l.FetchBytes }, 10 * mB, 1, 0, "largest download"},
	{"FETCH_TIMEOUT_MS", func(l *Limits) *int64 { return &l.FetchTimeoutMS }, 30000, 1, 0, "time a download has"},
	{"MODEL_IDLE_MS", func(l *Limits) *int64 { return &l.ModelIdleMS }, 180000, 1, 0, "longest silence of a model provider"},
	{"WORKDIR_BYTES", func(l *Limits) *int64 { return &l.WorkdirBytes }, 2 * gB, 1, 0, "largest work folder"},
	{"NPROC", func(l *Limits) *int64 { return &l.NProc }, 256, 16, mB, "processes of a command"},
	{"FSIZE", func(l *Limits) *int64 { return &l.FSize }, 2 << 30, 1, 0, "largest file a command may write"},
	{"SUBAGENT_PARALLEL", func(l *Limits) *int64 { return &l.SubagentParallel }, 4, 1, 1000, "subagents of a conversation at a time"},
	{"SUBAGENT_DEPTH", func(l *Limits) *int64 { return &l.SubagentDepth }, 1, 1, 1, "how deep subagents may start subagents"},
	{"JEV_TIMEOUT_MS", func(l *Limits) *int64 { return &l.JevTimeoutMS }, 35000, 1, 0, "time a call of the jev extension has"},
	{"APIFY_CLIENT_SLACK_MS", func(l *Limits) *int64 { return &l.ApifyClientSlackMS }, 25000, 0, 0, "time the apify extension waits beyond a run's own limit"},
	{"APIFY_INLINE_BYTES", func(l *Limits) *int64 { return &l.ApifyInlineBytes }, 32768, 1, 100 * mB, "largest result the apify extension shows a model directly"},
	{"RECONNECT_WAIT_MS", func(l *Limits) *int64 { return &l.ReconnectWaitMS }, 30000, 0, 0, "time a tool call waits for a bridge that went away"},
	{"CALLBACK_TIMEOUT_MS", func(l *Limits) *int64 { return &l.CallbackTimeoutMS }, 10000, 1, 0, "time a callback's receiver has"},
	{"CONCURRENT_COMMANDS", func(l *Limits) *int64 { return &l.ConcurrentCommands }, 16, 1, 10 * kB, "commands at a time, over all conversations"},
	{"CONCURRENT_RUNS", func(l *Limits) *int64 { return &l.ConcurrentRuns }, 0, 0, mB, "model requests at a time, over all conversations; 0 is no bound"},
}

// unusedLimits are those of what is not built yet.
var unusedLimits = []string{
	"FETCH_BYTES", "FETCH_TIMEOUT_MS", "WORKDIR_BYTES", "SUBAGENT_PARALLEL", "SUBAGENT_DEPTH", "JEV_TIMEOUT_MS",
	"APIFY_CLIENT_SLACK_MS", "APIFY_INLINE_BYTES", "RECONNECT_WAIT_MS", "CALLBACK_TIMEOUT_MS",
}

const limitPrefix = "WP_DURABLE_LIMIT_"

// limitVars returns the limits as rows of the table of variables.
func limitVars() []Var {
	vars := make([]Var, 0, len(limits)+1)
	for _, l := range limits {
		vars = append(vars, Var{
			Name: limitPrefix + l.name, Group: GroupLimits, Help: l.help, Default: strconv.FormatInt(l.def, 10),
			Unused: slices.Contains(unusedLimits, l.name), ServerOnly: l.name == "WAIT_MS" || l.name == "HEARTBEAT_MS" || l.name == "BODY_BYTES",
			set: func(c *Config, value string) error { return l.set(&c.Limits, value) },
		})
	}
	return append(vars, Var{
		Name: limitPrefix + "APIFY_DAILY_USD", Group: GroupLimits, Default: "2", Unused: true,
		Help: "what the apify extension may spend a day, in US dollars",
		set: func(c *Config, value string) error {
			usd, err := strconv.ParseFloat(value, 64)
			if err != nil || usd < 0 || math.IsInf(usd, 0) || math.IsNaN(usd) {
				return fmt.Errorf("%q is not an amount", value)
			}
			c.Limits.ApifyDailyUSD = usd
			return nil
		},
	})
}

func (l *limit) set(limits *Limits, value string) error {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not a whole number", value)
	}
	switch {
	case n < l.min && l.min == l.max || l.max == l.min && n > l.max:
		return fmt.Errorf("%d is not allowed: only %d works", n, l.min)
	case n < l.min:
		return fmt.Errorf("%d is below the least value %d", n, l.min)
	case l.max > 0 && n > l.max:
		return fmt.Errorf("%d is above the greatest value %d", n, l.max)
	}
	*l.field(limits) = n
	return nil
}

// DefaultLimits returns the limits where nothing is configured.
func DefaultLimits() Limits {
	c := Limits{ApifyDailyUSD: 2}
	for _, l := range limits {
		*l.field(&c) = l.def
	}
	return c
}
