package tools

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/wp-durable/wp-durable/durable"
)

const noTools = `This conversation has no tools. You cannot run commands, read or write files, or reach the network, and nothing that looks like a tool call in your answer is carried out. Do not write tool calls or made-up results. Answer from what you know, and where a tool would be needed, say so plainly.`

func sections(o *Options) []durable.Section {
	return []durable.Section{
		{Key: "environment", Render: o.environment},
		{Key: "no-tools", Render: func(_ context.Context, rc *durable.RequestContext) (string, error) {
			if len(rc.Tools) > 0 {
				return "", nil
			}
			return noTools, nil
		}},
	}
}

// environment describes the work folder and what commands have there, to a
// request that offers a tool for it, and names only tools that it offers.
func (o *Options) environment(ctx context.Context, rc *durable.RequestContext) (string, error) {
	var files []string
	for _, name := range []string{"read", "write", "edit"} {
		if rc.Offers(name) {
			files = append(files, name)
		}
	}
	bash := rc.Offers("bash")
	if !bash && len(files) == 0 {
		return "", nil
	}
	e, err := rc.Env(ctx)
	if errors.Is(err, durable.ErrNoEnvironment) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("environment section: %w", err)
	}
	var lines []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("The work folder is %s. Relative paths start there.", e.WorkDir())
	if len(files) > 0 {
		add("%s: files in the work folder only; a path outside it is refused.", strings.Join(files, ", "))
	}
	if bash {
		add("bash: every command starts in the work folder, which is HOME too. TMPDIR is .tmp in it.")
		if len(o.Programs) > 0 {
			add("Programs at hand: %s.", strings.Join(o.Programs, ", "))
		} else {
			add("To see whether a program is there, use command -v.")
		}
		if o.Network {
			add("Commands have network access.")
		} else {
			add("Commands have no network access.")
		}
	}
	if o.EmptyForks && rc.Conversation.Record().ForkOf != nil {
		add("This conversation was forked from another one. Its work folder began empty: files named before the fork are not there.")
	}
	return strings.Join(lines, "\n"), nil
}
