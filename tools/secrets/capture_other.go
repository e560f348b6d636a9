//go:build !linux

package secrets

import (
	"errors"
	"fmt"
	"os"
)

// leave removes the secrets from the environment of this process, which is as
// far as this system goes.
func (e *Environment) leave() error {
	if err := e.unset(); err != nil {
		return fmt.Errorf("capture secrets: %w", err)
	}
	return nil
}

func receive(string) (*sealed, error) {
	return nil, errors.New(marker + " is set, but means nothing on this system")
}

func protect() error { return nil }

// unset removes the secrets from the environment of this process.
func (e *Environment) unset() error {
	var errs []error
	for name := range e.secret {
		errs = append(errs, os.Unsetenv(name))
	}
	for _, name := range e.Dropped {
		errs = append(errs, os.Unsetenv(name))
	}
	return errors.Join(errs...)
}
