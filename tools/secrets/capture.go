package secrets

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// CaptureOptions say what [Capture] takes away.
type CaptureOptions struct {
	// Secret reports whether a variable holds a secret. It is required.
	Secret func(name string) bool
	// Arguments, when not nil, is given the command line without the program's
	// name and returns it without the secrets in it, and these by the names of
	// their variables.
	Arguments func(args []string) (rest []string, secrets map[string]string)
}

// Environment is the process environment as it was at start. The secret part
// of it exists nowhere else.
type Environment struct {
	// Args is the command line without the program's name and without secrets.
	Args []string
	// Dropped names variables that were no secrets by name, but whose values
	// held one. They are gone.
	Dropped []string
	// Copied names, for each of them, the variable whose secret it held.
	Copied map[string]string

	public map[string]string
	secret map[string]string
	flags  map[string]string // secrets given on the command line
}

// Lookup returns a variable, secret or not. An empty one counts as unset.
func (e *Environment) Lookup(name string) (string, bool) {
	v, ok := e.secret[name]
	if !ok {
		v, ok = e.public[name]
	}
	return v, ok && v != ""
}

// Flag returns a secret that was given on the command line.
func (e *Environment) Flag(name string) (string, bool) {
	v, ok := e.flags[name]
	return v, ok
}

// Names returns the names of all variables, in order.
func (e *Environment) Names() []string {
	names := make([]string, 0, len(e.public)+len(e.secret))
	for n := range e.public {
		names = append(names, n)
	}
	for n := range e.secret {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// sealed is what goes from the first start of the program to the second.
type sealed struct {
	Env     map[string]string `json:"env"`
	Flags   map[string]string `json:"flags"`
	Dropped []string          `json:"dropped"`
	Copied  map[string]string `json:"copied"`
}

// marker is the variable that tells the second start where the secrets are.
const marker = "_WP_DURABLE_SECRETS_FD"

// Capture takes the secrets out of the process environment and the command
// line, so that nothing that is started later, and nobody who may look at
// them, finds any. It must be called first thing in main, before goroutines,
// files, locks and ports.
//
// On Linux the memory that /proc/<pid>/environ and cmdline show is the
// program's from its start, so Capture executes the program once more in the
// same process, with a clean environment, and hands the secrets over in a file
// that exists in memory only; it then forbids other processes of the same user
// to look into this one. When there are no secrets the program is not executed
// again. An error leaves the secrets where they are: the program should end.
//
// Secrets are trimmed of white space, empty ones do not count.
func Capture(opts *CaptureOptions) (*Environment, error) {
	env := &Environment{Args: os.Args[1:], public: map[string]string{}}
	if handover := os.Getenv(marker); handover != "" {
		if err := os.Unsetenv(marker); err != nil {
			return nil, fmt.Errorf("capture secrets: %w", err)
		}
		s, err := receive(handover)
		if err != nil {
			return nil, fmt.Errorf("capture secrets: %w", err)
		}
		env.secret, env.flags, env.Dropped, env.Copied = s.Env, s.Flags, s.Dropped, s.Copied
		env.public = pairs(os.Environ())
		return env, protect()
	}
	env.split(pairs(os.Environ()), opts.Secret)
	if opts.Arguments != nil {
		env.Args, env.flags = opts.Arguments(slices.Clone(os.Args[1:]))
	}
	env.dropCopies()
	if len(env.secret)+len(env.flags)+len(env.Dropped) == 0 {
		return env, protect()
	}
	return env, env.leave()
}

func pairs(environ []string) map[string]string {
	m := make(map[string]string, len(environ))
	for _, kv := range environ {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" {
			m[name] = value
		}
	}
	return m
}

func (e *Environment) split(all map[string]string, secret func(string) bool) {
	e.secret = map[string]string{}
	for name, value := range all {
		if !secret(name) {
			e.public[name] = value
			continue
		}
		if value = strings.TrimSpace(value); value != "" {
			e.secret[name] = value
		} else {
			e.public[name] = ""
		}
	}
}

// dropCopies drops variables that repeat a secret under another name.
func (e *Environment) dropCopies() {
	e.Copied = map[string]string{}
	for name, value := range e.public {
		if of := e.secretIn(value); of != "" {
			delete(e.public, name)
			e.Dropped = append(e.Dropped, name)
			e.Copied[name] = of
		}
	}
	slices.Sort(e.Dropped)
}

// secretIn returns the first variable, by name, whose secret is in value; empty
// when there is none.
func (e *Environment) secretIn(value string) string {
	var found []string
	for _, m := range []map[string]string{e.secret, e.flags} {
		for name, s := range m {
			if len(s) >= MinLength && strings.Contains(value, s) {
				found = append(found, name)
			}
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}
