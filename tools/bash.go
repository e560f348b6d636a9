package tools

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
)

//go:embed bash.md
var bashText string

type bashArgs struct {
	Command string  `json:"command" jsonschema:"the command, which may have several lines"`
	Timeout float64 `json:"timeout,omitempty" jsonschema:"seconds after which the command is stopped"`
}

// bashDetails is for user interfaces.
type bashDetails struct {
	ExitCode   *int   `json:"exitCode,omitempty"` // absent when the command was killed
	Signal     string `json:"signal,omitempty"`
	TimedOut   bool   `json:"timedOut,omitempty"`
	Bytes      int64  `json:"bytes"` // printed in all
	Lines      int64  `json:"lines"`
	Truncated  bool   `json:"truncated,omitempty"`
	SpillPath  string `json:"spillPath,omitempty"` // the file with the whole output
	SpillBytes int64  `json:"spillBytes,omitempty"`
}

func newBash(o *Options) *durable.Tool {
	text := strings.NewReplacer(
		"{timeout}", seconds(o.BashTimeout), "{max}", seconds(o.BashTimeoutMax), "{output}", size(int64(o.BashOutputBytes)),
	).Replace(strings.TrimSpace(bashText))
	return durable.NewTool(durable.ToolSpec{
		Name: "bash", Title: "Run a command", Description: text, Prepare: prepareBash,
		// as many lines as there are bytes: the bytes are the bound
		Output: durable.OutputLimit{Bytes: o.BashOutputBytes, Lines: o.BashOutputBytes},
	}, func(ctx context.Context, call *durable.ToolCall, args bashArgs) (durable.ToolResult, error) {
		e, err := call.Env(ctx)
		if err != nil {
			return durable.ToolResult{}, err
		}
		return runBash(ctx, e, call, fmt.Sprintf("bash-%d.log", call.TaskID()), args, o)
	})
}

// console is the part of a [durable.ToolCall] that a command prints to.
type console interface {
	Receive(stream env.Stream, text string, skippedBytes, skippedLines int64)
	OutputWindow() int
	OutputText() string
	OutputCounts() env.OutputCounts
	Diagnostic(s durable.Severity, code, text string)
}

// runBash runs a command (S5.2). spill is the name of the file for its whole
// output.
func runBash(ctx context.Context, e env.Environment, out console, spill string, args bashArgs, o *Options) (durable.ToolResult, error) {
	if strings.TrimSpace(args.Command) == "" {
		return durable.ErrorResult("command is empty"), nil
	}
	if strings.ContainsRune(args.Command, 0) {
		return durable.ErrorResult("command has a NUL byte"), nil
	}
	timeout := o.BashTimeout
	if args.Timeout > 0 {
		timeout = o.BashTimeoutMax
		if args.Timeout < o.BashTimeoutMax.Seconds() {
			timeout = max(time.Duration(args.Timeout*float64(time.Second)), time.Millisecond)
		}
	}
	res, err := e.Exec(ctx, env.ExecRequest{
		Command: args.Command, Timeout: timeout, Merge: true, Window: out.OutputWindow(), Output: out.Receive,
		Spill: &env.Spill{AfterBytes: int64(o.BashOutputBytes), MaxBytes: o.SpillBytes, Name: spill},
	})
	if ctx.Err() != nil && err != nil {
		return durable.ToolResult{}, err // the engine keeps the output
	}
	counts := out.OutputCounts()
	d := bashDetails{
		Signal: res.Signal, TimedOut: code(err) == env.Timeout, Bytes: counts.Bytes, Lines: counts.Lines,
		Truncated: counts.SkippedBytes > 0, SpillPath: res.SpillPath, SpillBytes: res.SpillBytes,
	}
	var end string
	switch {
	case d.TimedOut:
		end = fmt.Sprintf("[stopped after %s seconds]", seconds(timeout))
		if timeout < o.BashTimeoutMax {
			end += fmt.Sprintf(" [timeout may be up to %s]", seconds(o.BashTimeoutMax))
		}
	case err != nil:
		end = "[" + cut(err.Error(), 500) + "]"
	case res.Signal != "":
		end = fmt.Sprintf("[killed by %s]", res.Signal)
	default:
		d.ExitCode = &res.ExitCode
		if res.ExitCode != 0 {
			end = fmt.Sprintf("[exit code %d]", res.ExitCode)
		}
	}
	if d.Truncated || res.SpillError != "" {
		out.Diagnostic(durable.SeverityWarning, durable.CodeTruncated, spilled(counts, res))
	}
	text := out.OutputText()
	if text != "" && end != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	if text += end; text == "" {
		text = "[no output]"
	}
	result := durable.TextResult(text)
	result.IsError = end != ""
	result.Details = details(d)
	return result, nil
}

// spilled says what is missing from the output and where it is.
func spilled(c env.OutputCounts, res env.ExecResult) string {
	var b strings.Builder
	if c.SkippedBytes > 0 {
		fmt.Fprintf(&b, "Shown are the last %s of %s (%d of %s).",
			size(c.Bytes-c.SkippedBytes), size(c.Bytes), c.Lines-c.SkippedLines, count(c.Lines, "line"))
	}
	switch {
	case res.SpillError != "":
		fmt.Fprintf(&b, " There is no file with all of it: %s.", res.SpillError)
	case res.SpillPath == "":
	case res.SpillBytes < c.Bytes:
		fmt.Fprintf(&b, " The first %s are in %s.", size(res.SpillBytes), res.SpillPath)
	default:
		fmt.Fprintf(&b, " All of it is in %s (%s).", res.SpillPath, size(res.SpillBytes))
	}
	return strings.TrimSpace(b.String())
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// prepareBash repairs arguments: other names of the command, the argument list
// of a shell call, a timeout in quotes.
func prepareBash(raw json.RawMessage) json.RawMessage {
	return repair(raw, func(a arguments) {
		a.rename("command", "cmd", "script", "code")
		a.number("timeout", "timeout_seconds", "timeoutSeconds")
		var argv []string
		if json.Unmarshal(a["command"], &argv) == nil && len(argv) > 0 {
			a.set("command", commandLine(argv))
		}
		a.keep("command", "timeout")
	})
}

// commandLine makes a command of an argument list: of bash -c and the like it
// is what the shell is to run.
func commandLine(argv []string) string {
	if len(argv) == 3 && strings.HasPrefix(argv[1], "-") && strings.HasSuffix(argv[1], "c") {
		switch argv[0][strings.LastIndexByte(argv[0], '/')+1:] {
		case "bash", "sh", "zsh":
			return argv[2]
		}
	}
	quoted := make([]string, len(argv))
	for i, arg := range argv {
		quoted[i] = "'" + strings.ReplaceAll(arg, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
