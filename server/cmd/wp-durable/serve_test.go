package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// (S1.4) A shutdown takes the time it was given, in all, whatever hangs.
func TestShutdown(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		require.ErrorIs(t, shutdown(func(context.Context) error { return broken }, time.Second), broken)
		began := time.Now()
		release := make(chan struct{})
		require.NoError(t, shutdown(func(ctx context.Context) error {
			<-release
			return broken
		}, 10*time.Second))
		require.Equal(t, 10*time.Second, time.Since(began))
		close(release)
	})
}
