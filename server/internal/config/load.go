package config

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Table is the set of variables a server knows.
type Table struct {
	vars   []Var
	byName map[string]*Var
}

// NewTable returns the server's own variables and more. It panics when a name
// or flag is there twice.
func NewTable(more ...Var) *Table {
	t := &Table{vars: append(Vars(), more...), byName: map[string]*Var{}}
	flags := map[string]bool{}
	for i := range t.vars {
		v := &t.vars[i]
		if t.byName[v.Name] != nil || flags[v.Flag()] {
			panic("config: variable " + v.Name + " is declared twice")
		}
		t.byName[v.Name] = v
		flags[v.Flag()] = true
	}
	return t
}

// Vars returns the rows, in order.
func (t *Table) Vars() []Var { return t.vars }

// Has reports whether there is a variable of that name.
func (t *Table) Has(name string) bool { return t.byName[name] != nil }

// Secret reports whether the variable of that name holds a secret.
func (t *Table) Secret(name string) bool {
	v := t.byName[name]
	return v != nil && v.Secret
}

// Source is where values come from.
type Source struct {
	// Lookup returns an environment variable.
	Lookup func(name string) (string, bool)
	// Names are the names of all environment variables.
	Names []string
	// Flags are the values given as flags, by variable. They win. An empty
	// value is like none, as it is in the environment.
	Flags map[string]string
}

// Load makes the configuration. Its error holds every mistake, each with the
// name of its variable, or of the flag that was given, and, for secrets, not
// the value.
func (t *Table) Load(src Source) (*Config, error) {
	c := Default()
	var errs []error
	for _, name := range src.Names {
		if strings.HasPrefix(name, "WP_DURABLE_") && t.byName[name] == nil {
			errs = append(errs, fmt.Errorf("%s: there is no such variable; did you mean %s?", name, t.closest(name)))
		}
	}
	values, given := map[string]string{}, map[string]string{} // by variable; given: what the user called it
	for i := range t.vars {
		v := &t.vars[i]
		given[v.Name] = v.Name
		if value := src.Flags[v.Name]; value != "" {
			values[v.Name], given[v.Name] = value, "--"+v.Flag()
		} else if value, ok := src.Lookup(v.Name); ok && value != "" {
			values[v.Name] = value
		}
	}
	if values["WP_DURABLE_ADDR"] != "" {
		delete(values, "PORT")
	}
	for i := range t.vars {
		v := &t.vars[i]
		value, ok := values[v.Name]
		if !ok {
			continue
		}
		if v.Secret && len(value) < minSecret && v.Name != "WP_DURABLE_DATABASE_URL" {
			errs = append(errs, fmt.Errorf("%s: a secret has at least %d bytes", given[v.Name], minSecret))
			continue
		}
		if err := v.set(c, value); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", given[v.Name], err))
		}
	}
	return c, errors.Join(append(errs, c.check())...)
}

// minSecret is the least length of a secret (S1.3).
const minSecret = 8

// check looks at what values mean together.
func (c *Config) check() error {
	if c.Test.Unisolated && !c.Test.Faux {
		return errors.New("WP_DURABLE_TEST_UNISOLATED: only together with WP_DURABLE_FAUX")
	}
	if c.Test.FauxScript != "" && !c.Test.Faux {
		return errors.New("WP_DURABLE_FAUX_SCRIPT: only together with WP_DURABLE_FAUX")
	}
	c.Limits.HeartbeatMS = min(c.Limits.HeartbeatMS, c.Limits.WaitMS)
	return nil
}

// PublicHost returns the host of PublicURL, empty when there is none.
func (c *Config) PublicHost() string {
	u, err := url.Parse(c.PublicURL)
	if err != nil {
		return ""
	}
	return strings.ToLower(u.Host)
}

// closest returns the known name that differs least from name, be it with or
// without what names begin with.
func (t *Table) closest(name string) string {
	bare := strings.TrimPrefix(name, "WP_DURABLE_")
	best, least := "", -1
	for i := range t.vars {
		known := t.vars[i].Name
		for _, prefix := range []string{"WP_DURABLE_", limitPrefix, "WP_"} {
			if d := distance(bare, strings.TrimPrefix(known, prefix)); least < 0 || d < least {
				best, least = known, d
			}
		}
	}
	return best
}

// distance counts the insertions, deletions and substitutions that make b out
// of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal, row[j], row[j+1]) + 1
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
