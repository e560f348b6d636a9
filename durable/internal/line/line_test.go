package line

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// The line is fair: who asks first is served first (E4.1).
func TestLine_FIFO(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Line
		require.NoError(t, l.Lock(t.Context()))
		var order []int
		for i := range 5 {
			go func() {
				_ = l.Lock(context.Background())
				order = append(order, i)
				l.Unlock()
			}()
			synctest.Wait()
		}
		l.Unlock()
		synctest.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	})
}

// A queued caller can give up, and those behind it still get their turn.
func TestLine_Cancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Line
		require.NoError(t, l.Lock(t.Context()))
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		errs := make(chan error, 1)
		go func() { errs <- l.Lock(ctx) }()
		synctest.Wait()
		served := false
		go func() {
			_ = l.Lock(context.Background())
			served = true
			l.Unlock()
		}()
		synctest.Wait()
		cancel(cause)
		require.ErrorIs(t, <-errs, cause)
		synctest.Wait()
		require.False(t, served)
		l.Unlock()
		synctest.Wait()
		require.True(t, served)
		require.NoError(t, l.Lock(t.Context()), "the line is free again")
	})
}

// A caller whose context ends while the line is handed to it passes it on.
func TestLine_CancelRace(t *testing.T) {
	t.Parallel()
	var l Line
	for range 2000 {
		require.NoError(t, l.Lock(context.Background()))
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan bool)
		go func() { done <- l.Lock(ctx) == nil }()
		go cancel()
		l.Unlock()
		if <-done {
			l.Unlock()
		}
		require.NoError(t, l.Lock(context.Background()))
		l.Unlock()
	}
}
