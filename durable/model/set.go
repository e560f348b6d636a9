package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Ref names a model: provider id and model id.
type Ref struct {
	Provider string `json:"provider"`
	ModelID  string `json:"modelId"`
}

// String returns "provider/model".
func (r Ref) String() string { return r.Provider + "/" + r.ModelID }

// IsZero reports whether no model is named.
func (r Ref) IsZero() bool { return r == Ref{} }

// ParseRef reads "provider/model"; the model's id may hold more slashes.
func ParseRef(s string) (Ref, error) {
	p, m, ok := strings.Cut(s, "/")
	if !ok || p == "" || m == "" {
		return Ref{}, fmt.Errorf("model %q: want provider/model", s)
	}
	return Ref{Provider: p, ModelID: m}, nil
}

// Set holds the providers and models a host offers. The zero Set is empty and
// ready; it is safe for concurrent use and may change while an engine runs:
// each request resolves anew.
type Set struct {
	mu        sync.RWMutex
	providers map[string]Provider
	models    map[Ref]Info
}

// AddProvider offers p under id, replacing an earlier one.
func (s *Set) AddProvider(id string, p Provider) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.providers == nil {
		s.providers = map[string]Provider{}
	}
	s.providers[id] = p
}

// AddModel offers a model, replacing an earlier one of the same name.
func (s *Set) AddModel(infos ...Info) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.models == nil {
		s.models = map[Ref]Info{}
	}
	for _, info := range infos {
		s.models[Ref{info.Provider, info.ID}] = info
	}
}

// Resolve returns the provider and the description of a model. A provider that
// is there may be asked for a model the catalog does not know; its Info then
// holds only the names.
func (s *Set) Resolve(ref Ref) (Provider, Info, error) {
	s.mu.RLock()
	p, ok := s.providers[ref.Provider]
	info, known := s.models[ref]
	s.mu.RUnlock()
	if !ok {
		return nil, Info{}, fmt.Errorf("model %s: provider %q is not set up: %w", ref, ref.Provider, ErrUnknownModel)
	}
	if ref.ModelID == "" {
		return nil, Info{}, fmt.Errorf("model %s: no model id: %w", ref, ErrUnknownModel)
	}
	if !known {
		info = Info{Provider: ref.Provider, ID: ref.ModelID}
	}
	if a, ok := p.(Availability); ok {
		if err := a.Available(); err != nil {
			return nil, Info{}, fmt.Errorf("model %s: %w", ref, err)
		}
	}
	return p, info, nil
}

// Provider returns the provider of that id.
func (s *Set) Provider(id string) (Provider, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	p, ok := s.providers[id]
	return p, ok
}

// Models returns every model of the set whose provider is set up, by provider
// and id.
func (s *Set) Models() []Info {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var all []Info
	for ref, info := range s.models {
		if _, ok := s.providers[ref.Provider]; ok {
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b Info) int {
		return cmp.Or(cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.ID, b.ID))
	})
	return all
}
