package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/durable"
)

var partialTests = map[string]func(t *testing.T, h Harness){
	"appends in order":    testPartialAppend,
	"starts over":         testPartialReset,
	"keeps bytes as such": testPartialBytes,
}

func requirePartial(t *testing.T, s durable.Store, id durable.TaskID, want ...string) {
	t.Helper()
	got, err := s.Partial(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], string(got[i]))
	}
}

func testPartialAppend(t *testing.T, h Harness) {
	s := h.Store
	requirePartial(t, s, 1)
	mustCommit(t, s, durable.Batch{Partials: []durable.PartialWrite{{TaskID: 1, Data: []byte("a")}}})
	mustCommit(t, s, durable.Batch{Partials: []durable.PartialWrite{{TaskID: 2, Data: []byte("x")}}})
	mustCommit(t, s, durable.Batch{Partials: []durable.PartialWrite{
		{TaskID: 1, Data: []byte("b")}, {TaskID: 2, Data: []byte("y")}, {TaskID: 1, Data: []byte("c")}, {TaskID: 1},
	}})
	requirePartial(t, s, 1, "a", "b", "c")
	requirePartial(t, s, 2, "x", "y")
}

func testPartialReset(t *testing.T, h Harness) {
	s := h.Store
	add := func(writes ...durable.PartialWrite) {
		mustCommit(t, s, durable.Batch{Partials: writes})
	}
	add(durable.PartialWrite{TaskID: 1, Data: []byte("a")}, durable.PartialWrite{TaskID: 2, Data: []byte("other")})
	add(durable.PartialWrite{TaskID: 1, Reset: true, Data: []byte("b")})
	requirePartial(t, s, 1, "b")
	add(durable.PartialWrite{TaskID: 1, Data: []byte("c")}, durable.PartialWrite{TaskID: 1, Reset: true, Data: []byte("d")}, durable.PartialWrite{TaskID: 1, Data: []byte("e")})
	requirePartial(t, s, 1, "d", "e")
	add(durable.PartialWrite{TaskID: 1, Reset: true})
	requirePartial(t, s, 1)
	add(durable.PartialWrite{TaskID: 1, Reset: true}, durable.PartialWrite{TaskID: 1, Data: []byte("f")})
	requirePartial(t, s, 1, "f")
	requirePartial(t, s, 2, "other")
}

func testPartialBytes(t *testing.T, h Harness) {
	data := "\x00\xff\xfe not text \xc3\x28"
	mustCommit(t, h.Store, durable.Batch{Partials: []durable.PartialWrite{{TaskID: 1, Data: []byte(data)}}})
	requirePartial(t, h.Store, 1, data)
}
