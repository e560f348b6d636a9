package durable

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Registry holds the extensions a host offers. It may change while an engine
// runs: work already started keeps what it took, the next phase, request or
// call sees the new state. It is safe for concurrent use.
type Registry struct {
	mu         sync.RWMutex
	extensions []*Extension // in order of first installation
	watchers   []*func()
}

// NewRegistry returns a registry with the given extensions. It panics when one
// of them is not valid.
func NewRegistry(extensions ...Extension) *Registry {
	r := &Registry{}
	for _, x := range extensions {
		if err := r.Install(x); err != nil {
			panic("durable.NewRegistry: " + err.Error())
		}
	}
	return r
}

// Install adds an extension, or replaces the one of the same name in its
// place. The registry with it is validated first; on an error nothing changed.
func (r *Registry) Install(x Extension) error {
	r.mu.Lock()
	next := slices.Clone(r.extensions)
	if i := slices.IndexFunc(next, func(o *Extension) bool { return o.Name == x.Name }); i >= 0 {
		next[i] = &x
	} else {
		next = append(next, &x)
	}
	if err := validateExtensions(next); err != nil {
		r.mu.Unlock()
		return fmt.Errorf("install extension %q: %w", x.Name, err)
	}
	r.extensions = next
	watchers := slices.Clone(r.watchers)
	r.mu.Unlock()
	for _, w := range watchers {
		(*w)()
	}
	return nil
}

// Uninstall removes an extension and reports whether it was there.
func (r *Registry) Uninstall(name string) bool {
	r.mu.Lock()
	next := slices.DeleteFunc(slices.Clone(r.extensions), func(x *Extension) bool { return x.Name == name })
	found := len(next) != len(r.extensions)
	r.extensions = next
	watchers := slices.Clone(r.watchers)
	r.mu.Unlock()
	if found {
		for _, w := range watchers {
			(*w)()
		}
	}
	return found
}

// Names returns the names of the installed extensions, in order.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	names := make([]string, len(r.extensions))
	for i, x := range r.extensions {
		names[i] = x.Name
	}
	return names
}

// Select returns what the named extensions offer together, in the order of the
// names; unknown names are skipped and repeated ones count once. A later extension's tool
// or section of the same name replaces the earlier one in its place; then wraps
// apply.
func (r *Registry) Select(names []string) Selection {
	r.mu.RLock()
	all := r.extensions
	r.mu.RUnlock()
	var s Selection
	for n, name := range names {
		if slices.Contains(names[:n], name) {
			continue
		}
		i := slices.IndexFunc(all, func(x *Extension) bool { return x.Name == name })
		if i < 0 {
			continue
		}
		s.add(all[i])
	}
	for _, w := range s.wraps {
		for i, t := range s.Tools {
			if w.Tool == "*" || w.Tool == t.Name() {
				s.Tools[i] = w.Wrap(t)
			}
		}
	}
	return s
}

// Selection is what a list of extensions offers together.
type Selection struct {
	Tools    []*Tool
	Sections []Section
	Hooks    []Hooks
	wraps    []Wrap
	owner    map[string]string // tool name -> extension name
}

// ToolExtension returns the name of the extension a tool came from.
func (s *Selection) ToolExtension(tool string) string { return s.owner[tool] }

func (s *Selection) add(x *Extension) {
	if s.owner == nil {
		s.owner = map[string]string{}
	}
	for _, t := range x.Tools {
		if i := slices.IndexFunc(s.Tools, func(o *Tool) bool { return o.Name() == t.Name() }); i >= 0 {
			s.Tools[i] = t
		} else {
			s.Tools = append(s.Tools, t)
		}
		s.owner[t.Name()] = x.Name
	}
	for _, sec := range x.Sections {
		if i := slices.IndexFunc(s.Sections, func(o Section) bool { return o.Key == sec.Key }); i >= 0 {
			s.Sections[i] = sec
		} else {
			s.Sections = append(s.Sections, sec)
		}
	}
	s.Hooks = append(s.Hooks, x.Hooks)
	s.wraps = append(s.wraps, x.Wraps...)
}

// Tool returns the selected tool of that name, or nil.
func (s *Selection) Tool(name string) *Tool {
	for _, t := range s.Tools {
		if t.Name() == name {
			return t
		}
	}
	return nil
}

// task returns the installed definition of a task kind, or nil.
func (r *Registry) task(kind string) *taskDef {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, x := range r.extensions {
		for _, d := range x.Tasks {
			if d.taskDef().name == kind {
				return d.taskDef()
			}
		}
	}
	return nil
}

// watch calls f after every change of the registry until stop is called.
func (r *Registry) watch(f func()) (stop func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, &f)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.watchers = slices.DeleteFunc(slices.Clone(r.watchers), func(w *func()) bool { return w == &f })
	}
}

func validateExtensions(all []*Extension) error {
	tasks := map[string]string{}
	for _, x := range all {
		if x.Name == "" {
			return fmt.Errorf("extension without a name: %w", ErrInvalid)
		}
		tools := map[string]bool{}
		for _, t := range x.Tools {
			if t == nil {
				return fmt.Errorf("extension %s: nil tool: %w", x.Name, ErrInvalid)
			}
			if tools[t.Name()] {
				return fmt.Errorf("extension %s: two tools named %s: %w", x.Name, t.Name(), ErrInvalid)
			}
			tools[t.Name()] = true
		}
		keys := map[string]bool{}
		for _, s := range x.Sections {
			if s.Key == "" || s.Render == nil || strings.ContainsAny(s.Key, "<>/ \n") {
				return fmt.Errorf("extension %s: section %q needs a key without <>/ or space, and Render: %w", x.Name, s.Key, ErrInvalid)
			}
			if keys[s.Key] {
				return fmt.Errorf("extension %s: two sections named %s: %w", x.Name, s.Key, ErrInvalid)
			}
			keys[s.Key] = true
		}
		for _, w := range x.Wraps {
			if w.Tool == "" || w.Wrap == nil {
				return fmt.Errorf("extension %s: wrap without tool or function: %w", x.Name, ErrInvalid)
			}
		}
		for _, d := range x.Tasks {
			name := d.taskDef().name
			if strings.HasPrefix(name, "pi.") {
				return fmt.Errorf("extension %s: task kind %s: names that start with pi. are the engine's: %w", x.Name, name, ErrInvalid)
			}
			if other, ok := tasks[name]; ok {
				return fmt.Errorf("extension %s: task kind %s is declared by %s too: %w", x.Name, name, other, ErrInvalid)
			}
			tasks[name] = x.Name
		}
	}
	return nil
}
