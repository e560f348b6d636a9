package config

import (
	"fmt"
	"reflect"
	"strings"
	"unicode"
)

// FlagSet is a struct for kong with one field for each row of a table.
type FlagSet struct {
	table *Table
	value reflect.Value // pointer to the struct
}

// Flags returns a new set of flags, all unset, with the help of a server.
func (t *Table) Flags() *FlagSet {
	return t.flags(func(v *Var) (help string, hidden bool) { return v.help(), false })
}

// ChatFlags returns the same set with the help of a chat: it lists only what a
// chat uses.
func (t *Table) ChatFlags() *FlagSet {
	return t.flags(func(v *Var) (help string, hidden bool) {
		if v.Chat != "" {
			return v.Chat, false
		}
		return v.help(), v.ServerOnly || v.Unused
	})
}

// help returns the row's sentence with its default.
func (v *Var) help() string {
	help := v.Help
	if v.Unused {
		help += " (not used yet)"
	}
	if v.Default != "" {
		help += fmt.Sprintf(" (default: %s)", v.Default)
	}
	return help
}

func (t *Table) flags(describe func(*Var) (help string, hidden bool)) *FlagSet {
	fields := make([]reflect.StructField, len(t.vars))
	for i := range t.vars {
		v := &t.vars[i]
		help, hidden := describe(v)
		help += fmt.Sprintf(" [$%s]", v.Name)
		typ, placeholder := reflect.TypeFor[*string](), "VALUE"
		if v.Switch {
			typ = reflect.TypeFor[bool]()
		}
		tag := fmt.Sprintf(`name:%q help:%q group:%q`, v.Flag(), help, v.Group)
		if !v.Switch {
			tag += fmt.Sprintf(` placeholder:%q`, placeholder)
		}
		if hidden {
			tag += ` hidden:""`
		}
		fields[i] = reflect.StructField{Name: fieldName(v.Name), Type: typ, Tag: reflect.StructTag(tag)}
	}
	return &FlagSet{table: t, value: reflect.New(reflect.StructOf(fields))}
}

func fieldName(name string) string {
	return "F" + strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return '_'
	}, name)
}

// Struct returns the pointer to give to kong, as an element of kong.Plugins.
func (f *FlagSet) Struct() any { return f.value.Interface() }

// Values returns the flags that were given, by the name of their variable.
func (f *FlagSet) Values() map[string]string {
	values := map[string]string{}
	for i := range f.table.vars {
		v := &f.table.vars[i]
		field := f.value.Elem().Field(i)
		switch {
		case v.Switch && field.Bool():
			values[v.Name] = "1"
		case !v.Switch && !field.IsNil():
			values[v.Name] = field.Elem().String()
		}
	}
	return values
}

// SplitSecrets takes the secrets out of a command line: flags of secret
// variables with their values. They come back by variable.
func (t *Table) SplitSecrets(args []string) (rest []string, secrets map[string]string) {
	names := map[string]string{} // flag -> variable
	for i := range t.vars {
		if v := &t.vars[i]; v.Secret {
			names["--"+v.Flag()] = v.Name
		}
	}
	secrets = map[string]string{}
	for i := 0; i < len(args); i++ {
		if args[i] == "--" {
			return append(rest, args[i:]...), secrets
		}
		flag, value, inline := strings.Cut(args[i], "=")
		name, ok := names[flag]
		switch {
		case !ok:
			rest = append(rest, args[i])
		case inline:
			secrets[name] = value
		case i+1 < len(args):
			i++
			secrets[name] = args[i]
		default: // no value: let the parser say so
			rest = append(rest, args[i])
		}
	}
	return rest, secrets
}
