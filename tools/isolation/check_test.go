package isolation

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who reads settings can judge them as Open does, and name the setting.
func TestCheck(t *testing.T) {
	t.Parallel()
	for n, ok := range map[int]bool{
		MinNPROC - 1: false, MinNPROC: true, DefaultNPROC: true, MaxNPROC: true, MaxNPROC + 1: false, -1: false,
	} {
		require.Equal(t, ok, CheckNPROC(n) == nil, "%d", n)
		_, err := (&Options{DataDir: "/x", NPROC: n}).withDefaults()
		require.Equal(t, ok, err == nil, "%d", n)
	}
	for s, ok := range map[string]bool{
		DefaultAgentUIDs: true, strconv.Itoa(MinAgentUID): true, strconv.Itoa(MinAgentUID - 1): false,
		"1000-" + strconv.Itoa(MaxAgentUID):  false, // nobody is among them
		"70000-" + strconv.Itoa(MaxAgentUID): true, "70000-" + strconv.Itoa(MaxAgentUID+1): false,
		"x": false, "": false, "5000-4000": false,
	} {
		require.Equal(t, ok, CheckAgentUIDs(s) == nil, s)
		if s != "" { // which is the default
			_, err := (&Options{DataDir: "/x", AgentUIDs: s}).withDefaults()
			require.Equal(t, ok, err == nil, s)
		}
	}
}
