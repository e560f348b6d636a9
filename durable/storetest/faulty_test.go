package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/memstore"
	"github.com/wp-durable/wp-durable/durable/storetest"
)

func claim(key string) *durable.Batch {
	return &durable.Batch{Claims: []durable.Claim{{Scope: "s", Key: key, Value: 1}}}
}

// TestFaulty_FailCommit shows each fault to the caller and in the store.
func TestFaulty_FailCommit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  storetest.Fault
		is     []error
		isNot  []error
		stored bool
	}{
		"rejected": {storetest.Rejected, []error{durable.ErrRejected}, []error{durable.ErrStoreFull}, false},
		"full":     {storetest.Full, []error{durable.ErrRejected, durable.ErrStoreFull}, nil, false},
		"lost":     {storetest.Lost, nil, []error{durable.ErrRejected, durable.ErrStoreFailed}, false},
		"applied":  {storetest.Applied, nil, []error{durable.ErrRejected, durable.ErrStoreFailed}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := memstore.New()
			f := storetest.Faulty(inner)
			f.FailCommit(2, c.fault)
			_, err := f.Commit(t.Context(), claim("1"))
			require.NoError(t, err)
			_, err = f.Commit(t.Context(), claim("2"))
			require.ErrorIs(t, err, storetest.ErrInjected)
			for _, is := range c.is {
				require.ErrorIs(t, err, is)
			}
			for _, not := range c.isNot {
				require.NotErrorIs(t, err, not)
			}
			_, err = inner.Claimed(t.Context(), "s", "2")
			if c.stored {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, durable.ErrNotFound)
			}
			_, err = f.Commit(t.Context(), claim("3"))
			require.NoError(t, err)
			require.Equal(t, 3, f.Commits())
		})
	}
}

func TestFaulty_Failed(t *testing.T) {
	t.Parallel()
	f := storetest.Faulty(memstore.New())
	f.FailCommit(1, storetest.Failed)
	for _, key := range []string{"1", "2"} {
		_, err := f.Commit(t.Context(), claim(key))
		require.ErrorIs(t, err, durable.ErrStoreFailed)
	}
}

func TestFaulty_Hooks(t *testing.T) {
	t.Parallel()
	inner := memstore.New()
	f := storetest.Faulty(inner)
	stored := func() bool {
		_, err := inner.Claimed(t.Context(), "s", "k")
		return err == nil
	}
	var calls []string
	f.Before = func(n int, b *durable.Batch) {
		require.Equal(t, 1, n)
		require.Equal(t, "k", b.Claims[0].Key)
		require.False(t, stored())
		calls = append(calls, "before")
	}
	f.After = func(n int, b *durable.Batch, err error) {
		require.Equal(t, 1, n)
		require.NoError(t, err)
		require.True(t, stored())
		calls = append(calls, "after")
	}
	_, err := f.Commit(t.Context(), claim("k"))
	require.NoError(t, err)
	require.Equal(t, []string{"before", "after"}, calls)
}
