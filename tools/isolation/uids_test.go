package isolation

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// S6.2: one user id, or a range of them.
func TestParseRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]uidRange{
		"61337": {61337, 61337}, "61000-61999": {61000, 61999}, " 61000 - 61001 ": {61000, 61001}, "5000-5000": {5000, 5000},
	} {
		got, err := parseRange(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "agent", "0", "999", "0-61337", "61337-", "-61337", "61999-61000", "60000-70000", "61337-2147483647", "1-2-3"} {
		_, err := parseRange(text)
		require.Error(t, err, text)
	}
	require.Equal(t, "61337", uidRange{61337, 61337}.String())
	require.Equal(t, "61000-61999", uidRange{61000, 61999}.String())
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for field, o := range map[string]*Options{
		"DataDir": {}, "Level": {DataDir: "x", Level: "docker"}, "Network": {DataDir: "x", Network: "maybe"},
		"AgentUIDs": {DataDir: "x", AgentUIDs: "0"}, "NPROC": {DataDir: "x", NPROC: 3}, "FSize": {DataDir: "x", FSize: -1},
		"ConcurrentCommands": {DataDir: "x", ConcurrentCommands: -1}, "ReadOnly": {DataDir: "x", ReadOnly: []string{"opt"}},
		"Private": {DataDir: "x", Private: []string{"db"}},
	} {
		_, err := Open(t.Context(), o)
		require.ErrorContains(t, err, "options: "+field)
	}
	_, err := Open(t.Context(), nil)
	require.ErrorContains(t, err, "options: DataDir")
	got, err := (&Options{DataDir: "x"}).withDefaults()
	require.NoError(t, err)
	require.Equal(t, "61337", got.AgentUIDs)
	require.Equal(t, 256, got.NPROC)
	require.EqualValues(t, 2<<30, got.FSize)
	require.Equal(t, 16, got.ConcurrentCommands)
}
