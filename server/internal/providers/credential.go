package providers

import (
	"errors"

	"github.com/wp-durable/wp-durable/durable/model"
)

// keyed is a provider that says which variable its key is missing from.
type keyed struct {
	model.Provider
	id, variable string
}

// Available asks the provider.
func (p *keyed) Available() error {
	a, ok := p.Provider.(model.Availability)
	if !ok {
		return nil
	}
	err := a.Available()
	if errors.Is(err, model.ErrMissingCredential) {
		return &MissingKeyError{p.id, p.variable}
	}
	return err
}

// MissingKeyError says how to give a provider its credential. It wraps
// [model.ErrMissingCredential].
type MissingKeyError struct{ Provider, Variable string }

func (e *MissingKeyError) Error() string { return e.Provider + ": set " + e.Variable }

// Unwrap returns [model.ErrMissingCredential].
func (e *MissingKeyError) Unwrap() error { return model.ErrMissingCredential }

// Missing returns why the default model has no credential, nil when it has one
// or needs none.
func (m *Models) Missing() *MissingKeyError {
	_, _, err := m.Set.Resolve(m.Default)
	missing, _ := errors.AsType[*MissingKeyError](err)
	return missing
}
