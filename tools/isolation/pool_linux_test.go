package isolation

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/tools/isolation/isolationtest"
)

// S6.2: each tree has its own user id, also when more than there are ids are
// used for the first time at once.
func TestRange_FirstUse(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		m := manager(t, &Options{AgentUIDs: isolationtest.UIDs(t, 4)})
		for round := range int64(5) {
			var wg sync.WaitGroup
			var mu sync.Mutex
			users, refused := map[string]int64{}, 0
			for i := range int64(8) {
				tree := 1 + i
				e := environmentOf(t, m, tree)
				wg.Go(func() {
					o := execute(t.Context(), e, "id -u; stat -c %u .")
					mu.Lock()
					defer mu.Unlock()
					if o.err != nil {
						refused++
						if !errors.Is(o.err, ErrLimit) {
							t.Error(o.err)
						}
						return
					}
					if other := users[o.text]; other != 0 {
						t.Errorf("trees %d and %d both have %s", tree, other, o.text)
					}
					users[o.text] = tree
				})
			}
			wg.Wait()
			require.Len(t, users, 4, "round %d", round)
			require.Equal(t, 4, refused)
			for _, tree := range users {
				require.NoError(t, m.Remove(t.Context(), tree))
			}
		}
	})
}

// An id is a tree's from before its folder is there until nobody uses it.
func TestPool_Reserved(t *testing.T) {
	t.Parallel()
	atLevel(t, Root, func(t *testing.T) {
		m := manager(t, &Options{AgentUIDs: isolationtest.UIDs(t, 2)})
		h := m.host
		for tree := range int64(2) {
			h.tree(tree + 1).use.RLock()
			_, err := h.pool.uid(tree + 1)
			require.NoError(t, err)
		}
		_, err := h.pool.uid(3)
		require.ErrorIs(t, err, ErrLimit)
		e := environmentOf(t, m, 3).(*environment)
		_, err = e.plan([]string{"true"}, "/")
		require.ErrorIs(t, err, ErrLimit, "never a plan without a user")
		h.tree(2).use.RUnlock()
		uid, err := h.pool.uid(3)
		require.NoError(t, err)
		require.Equal(t, h.pool.ids.last, uid)
		h.tree(1).use.RUnlock()
	})
}
