package durable

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Raw JSON inside a value keeps its text: key order, numbers, and characters
// that json.Marshal would escape (server S9).
func TestEncode_KeepsRawText(t *testing.T) {
	t.Parallel()
	in := toolInput{Name: "x", Arguments: []byte(`{"b":"<&>","a":12345678901234567890.10}`)}
	require.Contains(t, string(marshalRaw(in)), `{"b":"<&>","a":12345678901234567890.10}`)
}
