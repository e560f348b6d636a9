package lint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadme_Snippets: Go code in the README is a program in examples, which is
// compiled and run.
func TestReadme_Snippets(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	require.NoError(t, err)
	program, err := os.ReadFile(filepath.Join("..", "..", "examples", "hello", "main.go"))
	require.NoError(t, err)
	blocks := strings.Split(string(readme), "```go\n")[1:]
	require.NotEmpty(t, blocks)
	for _, b := range blocks {
		snippet, _, _ := strings.Cut(b, "```")
		require.Equal(t, string(program), snippet, "copy it anew from examples/hello")
	}
}
