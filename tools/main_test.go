package tools

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/wp-durable/wp-durable/durable"
	"github.com/wp-durable/wp-durable/durable/env"
	"github.com/wp-durable/wp-durable/durable/env/local"
	"github.com/wp-durable/wp-durable/durable/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newEnv(t *testing.T) *local.Env {
	t.Helper()
	e, err := local.New(t.TempDir(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func put(t *testing.T, e env.Environment, path, content string) {
	t.Helper()
	require.NoError(t, e.Write(t.Context(), path, strings.NewReader(content), env.WriteOptions{}))
}

func content(t *testing.T, e env.Environment, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(e.WorkDir(), path))
	require.NoError(t, err)
	return string(b)
}

// shown is the text of a result.
func shown(r durable.ToolResult) string {
	m := model.Message{Content: r.Content}
	return m.Text()
}

// detail decodes the details of a result.
func detail[T any](t *testing.T, r durable.ToolResult) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal(r.Details, &v), "%s", r.Details)
	return v
}
