// Package tools is the coding tools of an agent, bash, read, write and edit,
// as an extension of the engine. They work on the conversation's environment
// and so are the same in a work folder, a sandbox, a container or on a person's
// computer. Any Go program can use them; what isolates commands is in the
// package's folders below.
//
// It depends on durable, durable/env and durable/model, and on nothing else of
// this module.
package tools

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/wp-durable/wp-durable/durable"
)

// Name is the extension's name.
const Name = "tools"

// Options configure the tools. Every zero field has the default it names.
type Options struct {
	// BashTimeout stops a command that says no timeout of its own. Default:
	// 2 min.
	BashTimeout time.Duration
	// BashTimeoutMax is the most that a call may ask for. Default: 10 min.
	BashTimeoutMax time.Duration
	// BashOutputBytes is how much of the end of a command's output the model
	// sees. Default: 64 KiB.
	BashOutputBytes int
	// SpillBytes bounds the file with the whole output of a command. Default:
	// 256 MiB.
	SpillBytes int64

	// Network says in the environment section that commands have network.
	Network bool
	// Programs are named in the environment section. Default: none; the
	// section then says how to look.
	Programs []string
	// EmptyForks says that a forked conversation has a work folder of its own
	// that begins empty; the environment section then tells it.
	EmptyForks bool

	// Which lists the tools to have, by name. Default: all of them.
	Which []string
}

func (o *Options) withDefaults() Options {
	var c Options
	if o != nil {
		c = *o
	}
	c.BashTimeoutMax = cmp.Or(max(c.BashTimeoutMax, 0), 10*time.Minute)
	c.BashTimeout = min(cmp.Or(max(c.BashTimeout, 0), 2*time.Minute), c.BashTimeoutMax)
	c.BashOutputBytes = cmp.Or(max(c.BashOutputBytes, 0), 64<<10)
	c.SpillBytes = cmp.Or(max(c.SpillBytes, 0), 256<<20)
	c.Programs = slices.Clone(c.Programs)
	return c
}

// Extension returns the tools and their prompt sections: environment, which
// describes the work folder to requests that offer any of the tools, and
// no-tools for requests that offer no tool at all. It panics when Which names
// something else than one of the tools.
func Extension(opts *Options) durable.Extension {
	o := opts.withDefaults()
	all := []*durable.Tool{newBash(&o), newRead(), newWrite(), newEdit()}
	ext := durable.Extension{Name: Name, Tools: all, Sections: sections(&o)}
	if o.Which != nil {
		ext.Tools = nil
		for _, name := range o.Which {
			i := slices.IndexFunc(all, func(t *durable.Tool) bool { return t.Name() == name })
			if i < 0 {
				panic(fmt.Sprintf("tools.Extension: Which names %q, which is none of the tools", name))
			}
			ext.Tools = append(ext.Tools, all[i])
		}
	}
	return ext
}
