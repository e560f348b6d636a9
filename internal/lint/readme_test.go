package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme_Snippets: Go code in the README is cut from an Example, which is
// compiled and run.
func TestReadme_Snippets(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	examples, err := filepath.Glob(filepath.Join("..", "..", "durable", "example*_test.go"))
	require.NoError(t, err)
	var code string
	for _, path := range examples {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		code += flat(string(text))
	}
	blocks := strings.Split(string(readme), "```go\n")[1:]
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		snippet, _, _ := strings.Cut(b, "```")
		require.Contains(t, code, flat(snippet), "cut it anew from durable/example_test.go")
	}
}

// flat drops the indentation.
func flat(s string) string {
	var b strings.Builder
	for line := range strings.Lines(s) {
		b.WriteString(strings.TrimLeft(line, "\t "))
	}
	return b.String()
}
