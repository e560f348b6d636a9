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
// request that offers a tool for it.
func (o *Options) environment(ctx context.Context, rc *durable.RequestContext) (string, error) {
	if !rc.Offers("bash") && !rc.Offers("read") && !rc.Offers("write") && !rc.Offers("edit") {
		return "", nil
	}
	e, err := rc.Env(ctx)
	if errors.Is(err, durable.ErrNoEnvironment) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("environment section: %w", err)
	}
	return o.describe(e.WorkDir(), rc.Offers, rc.Conversation.Record().ForkOf != nil), nil
}

// describe names only tools that are offered.
func (o *Options) describe(workDir string, offers func(tool string) bool, forked bool) string {
	var lines, files []string
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	add("The work folder is %s. Relative paths start there.", workDir)
	for _, name := range []string{"read", "write", "edit"} {
		if offers(name) {
			files = append(files, name)
		}
	}
	if len(files) > 0 {
		add("%s: files in the work folder only; a path outside it is refused.", strings.Join(files, ", "))
	}
	if offers("bash") {
		add("bash: every command starts in the work folder, which is HOME too. TMPDIR is .tmp in it: put temporary files there, /tmp may not be writable.")
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
	if o.EmptyForks && forked {
		add("This conversation was forked from another one. Its work folder began empty: files named before the fork are not there.")
	}
	return strings.Join(lines, "\n")
}
