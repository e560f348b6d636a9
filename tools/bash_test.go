package tools

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
)

// screen is a console for tests.
type screen struct {
	*env.Output
	diagnostics []durable.Diagnostic
}

func newScreen(o *Options) *screen {
	return &screen{Output: env.NewOutput(&env.OutputOptions{MaxBytes: o.BashOutputBytes, MaxLines: o.BashOutputBytes})}
}

func (s *screen) OutputWindow() int              { return s.Window() }
func (s *screen) OutputText() string             { return s.String() }
func (s *screen) OutputCounts() env.OutputCounts { return s.Counts() }
func (s *screen) Diagnostic(sev durable.Severity, code, text string) {
	s.diagnostics = append(s.diagnostics, durable.Diagnostic{Severity: sev, Code: code, Message: text})
}

func runBashTest(t *testing.T, e env.Environment, opts *Options, args bashArgs) (durable.ToolResult, *screen) {
	t.Helper()
	o := opts.withDefaults()
	s := newScreen(&o)
	r, err := runBash(t.Context(), e, s, "bash-7.log", args, &o)
	require.NoError(t, err)
	return r, s
}

// (S5.2)
func TestBash_Result(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	for _, tc := range []struct {
		name, command string
		text          string
		isError       bool
		exitCode      int
	}{
		{"success is the output", "echo hi", "hi\n", false, 0},
		{"both streams in order", "echo 1; echo 2 >&2; echo 3", "1\n2\n3\n", false, 0},
		{"no output", "true", "[no output]", false, 0},
		{"an exit code is an error with the output", "echo broke; exit 3", "broke\n[exit code 3]", true, 3},
		{"an open line gets its end", "printf broke; exit 3", "broke\n[exit code 3]", true, 3},
		{"only an exit code", "exit 3", "[exit code 3]", true, 3},
		{"several lines", "cd /\npwd", "/\n", false, 0},
		{"nothing is kept for the next call", "pwd", e.WorkDir() + "\n", false, 0},
		{"standard input is empty", "cat", "[no output]", false, 0},
		{"what is not text is dropped", `printf 'a\033[1mb\377\r\n'`, "a[1mb\n", false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, s := runBashTest(t, e, nil, bashArgs{Command: tc.command})
			require.Equal(t, tc.text, shown(r))
			require.Equal(t, tc.isError, r.IsError)
			require.Equal(t, tc.exitCode, *detail[bashDetails](t, r).ExitCode)
			require.Empty(t, s.diagnostics)
		})
	}
	t.Run("a signal is an error", func(t *testing.T) {
		r, _ := runBashTest(t, e, nil, bashArgs{Command: "echo x; kill -TERM $$"})
		require.Equal(t, "x\n[killed by SIGTERM]", shown(r))
		require.True(t, r.IsError)
		require.Equal(t, bashDetails{Signal: "SIGTERM", Bytes: 2, Lines: 1}, detail[bashDetails](t, r))
	})
	t.Run("what cannot run is an error", func(t *testing.T) {
		for command, text := range map[string]string{"": "command is empty", " \n": "command is empty", "a\x00b": "command has a NUL byte"} {
			r, _ := runBashTest(t, e, nil, bashArgs{Command: command})
			require.Equal(t, text, shown(r))
			require.True(t, r.IsError)
		}
	})
}

// (S5.2): timeout is an error result with the output, and nothing goes on.
func TestBash_Timeout(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	slow := "echo begun; (trap '' TERM; while :; do echo x >> beat; sleep 0.01; done) & wait"
	for name, tc := range map[string]struct {
		opts    Options
		timeout float64
		text    string
	}{
		"of the call":      {Options{}, 0.3, "begun\n[stopped after 0.3 seconds] [timeout may be up to 600]"},
		"of the options":   {Options{BashTimeout: 300 * time.Millisecond}, 0, "begun\n[stopped after 0.3 seconds] [timeout may be up to 600]"},
		"over the most":    {Options{BashTimeoutMax: 300 * time.Millisecond}, 1e300, "begun\n[stopped after 0.3 seconds]"},
		"negative is none": {Options{BashTimeout: 300 * time.Millisecond}, -5, "begun\n[stopped after 0.3 seconds] [timeout may be up to 600]"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := runBashTest(t, e, &tc.opts, bashArgs{Command: slow, Timeout: tc.timeout})
			require.Equal(t, tc.text, shown(r))
			require.True(t, r.IsError)
			d := detail[bashDetails](t, r)
			require.True(t, d.TimedOut)
			require.Nil(t, d.ExitCode)
			r, _ = runBashTest(t, e, nil, bashArgs{Command: "wc -c < beat; sleep 0.2; wc -c < beat; rm beat"})
			sizes := strings.Fields(shown(r))
			require.Equal(t, sizes[0], sizes[1], "nothing goes on")
		})
	}
}

// (S5.2): a call returns when its shell exits, and what it left is killed.
func TestBash_Background(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	began := time.Now()
	r, _ := runBashTest(t, e, nil, bashArgs{Command: "(while :; do echo x >> beat; sleep 0.01; done) & until [ -s beat ]; do sleep 0.01; done; echo done"})
	require.Equal(t, "done\n", shown(r))
	require.Less(t, time.Since(began), 30*time.Second)
	r, _ = runBashTest(t, e, nil, bashArgs{Command: "wc -c < beat; sleep 0.2; wc -c < beat"})
	sizes := strings.Fields(shown(r))
	require.Equal(t, sizes[0], sizes[1])
}

// (S5.2): the last 64 KB, and the whole in a file that the result names.
func TestBash_Spill(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var whole strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&whole, "line %d\n", i)
	}
	numbers := "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done"

	r, s := runBashTest(t, e, nil, bashArgs{Command: numbers})
	text := shown(r)
	require.LessOrEqual(t, len(text), 64<<10)
	require.Greater(t, len(text), 64<<10-20)
	require.True(t, strings.HasSuffix(whole.String(), text))
	require.True(t, strings.HasPrefix(text, "line "), "whole lines")
	require.False(t, r.IsError)
	require.Len(t, s.diagnostics, 1)
	require.Equal(t, durable.Diagnostic{
		Severity: durable.SeverityWarning, Code: durable.CodeTruncated,
		Message: fmt.Sprintf("Shown are the last 64.0 KB of 204.0 KB (%d of 20000 lines). All of it is in .tmp/bash-7.log (204.0 KB).", strings.Count(text, "\n")),
	}, s.diagnostics[0])
	d := detail[bashDetails](t, r)
	require.True(t, d.Truncated)
	require.Equal(t, ".tmp/bash-7.log", d.SpillPath)
	require.EqualValues(t, whole.Len(), d.Bytes)
	require.EqualValues(t, whole.Len(), d.SpillBytes)
	require.EqualValues(t, 20000, d.Lines)
	require.Equal(t, whole.Len(), len(content(t, e, d.SpillPath)))

	r, s = runBashTest(t, e, &Options{BashOutputBytes: 100, SpillBytes: 5000}, bashArgs{Command: numbers + "; exit 2"})
	require.True(t, r.IsError)
	require.Contains(t, shown(r), "line 19999\n[exit code 2]")
	require.Contains(t, s.diagnostics[0].Message, "The first 4.9 KB are in .tmp/bash-7.log.")
	require.Equal(t, whole.String()[:5000], content(t, e, ".tmp/bash-7.log"))

	r, s = runBashTest(t, e, &Options{BashOutputBytes: 100}, bashArgs{Command: "rm -rf .tmp; ln -s / .tmp; " + numbers})
	require.False(t, r.IsError)
	require.Contains(t, s.diagnostics[0].Message, "There is no file with all of it: the whole output could not be kept: .tmp/bash-7.log: leads outside the work folder.")
}

// An aborted call has no result: the engine makes it of the output.
func TestBash_Abort(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	var o *Options
	opts := o.withDefaults()
	ctx, cancel := context.WithCancel(t.Context())
	s := &abortingScreen{screen: newScreen(&opts), abort: cancel}
	_, err := runBash(ctx, e, s, "x.log", bashArgs{Command: "echo begun; sleep 60"}, &opts)
	require.Equal(t, env.Aborted, code(err))
	require.Equal(t, "begun\n", s.OutputText())
}

type abortingScreen struct {
	*screen
	abort func()
}

func (s *abortingScreen) Receive(stream env.Stream, text string, skippedBytes, skippedLines int64) {
	s.screen.Receive(stream, text, skippedBytes, skippedLines)
	s.abort()
}

func TestBash_Prepare(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string][2]string{
		"what is right stays":          {`{"command":"ls","timeout":5}`, `{"command":"ls","timeout":5}`},
		"other names":                  {`{"cmd":"ls","description":"list"}`, `{"command":"ls"}`},
		"a quoted timeout":             {`{"command":"ls","timeout":" 2.5 "}`, `{"command":"ls","timeout":2.5}`},
		"null is absent":               {`{"command":"ls","timeout":null}`, `{"command":"ls"}`},
		"an object in a string":        {`"{\"command\":\"ls\"}"`, `{"command":"ls"}`},
		"a shell call as a list":       {`{"command":["bash","-lc","ls | wc"]}`, `{"command":"ls | wc"}`},
		"another list":                 {`{"command":["git","commit","-m","it's"]}`, `{"command":"'git' 'commit' '-m' 'it'\\''s'"}`},
		"what is no object stays":      {`["ls"]`, `["ls"]`},
		"a string that is none stays":  {`"ls"`, `"ls"`},
		"a timeout that is none stays": {`{"command":"ls","timeout":"long"}`, `{"command":"ls","timeout":"long"}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.JSONEq(t, tc[1], string(prepareBash(json.RawMessage(tc[0]))))
		})
	}
}

func TestBash_Description(t *testing.T) {
	t.Parallel()
	spec := Extension(&Options{BashTimeout: 30 * time.Second, BashTimeoutMax: time.Minute, BashOutputBytes: 1000}).Tools[0].Spec()
	require.Contains(t, spec.Description, "after 30 seconds")
	require.Contains(t, spec.Description, "60 at most")
	require.Contains(t, spec.Description, "last 1000 bytes")
	require.Contains(t, spec.Description, "left running in the background is killed", "S5.2: the description says so")
	require.NotContains(t, spec.Description, "{")
	require.Equal(t, durable.ReplayNever, spec.Replay)
}
