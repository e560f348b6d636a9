package local_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable/env/envtest"
	"github.com/wp-durable/wp-durable/durable/env/local"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newEnv(t *testing.T, opts *local.Options) *local.Env {
	t.Helper()
	e, err := local.New(t.TempDir(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

// The contract of an environment (E19).
func TestEnv(t *testing.T) {
	t.Parallel()
	for name, shell := range map[string]string{"default shell": "", "sh": "/bin/sh"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envtest.Run(t, func(t *testing.T) *envtest.Harness {
				return &envtest.Harness{
					Env:          newEnv(t, &local.Options{Shell: shell}),
					Merges:       true,
					RawOutput:    true,
					PrivateSpill: true,
				}
			})
		})
	}
}
