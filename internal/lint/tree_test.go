package lint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const modulePath = "github.com/wp-durable/wp-durable"

// root returns the folder of the module.
func root(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}

// file is a text file of the tree.
type file struct {
	path string // relative to the root, with slashes
	text string
}

func (f *file) test() bool      { return strings.HasSuffix(f.path, "_test.go") }
func (f *file) dir() string     { return filepath.ToSlash(filepath.Dir(f.path)) }
func (f *file) generated() bool { return strings.Contains(f.text, "\n// Code generated ") }

var (
	loadOnce sync.Once
	loaded   []file
	loadErr  error
)

// files returns the text files that are, or would be, committed, in order.
func files(t testing.TB) []file {
	t.Helper()
	dir := root(t)
	loadOnce.Do(func() { loaded, loadErr = load(dir) })
	require.NoError(t, loadErr)
	require.NotEmpty(t, loaded)
	return loaded
}

func load(dir string) ([]file, error) {
	// A clone may belong to another user than the one who checks it.
	cmd := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var all []file
	for name := range strings.SplitSeq(string(out), "\x00") {
		text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if name == "" || err != nil || strings.Contains(string(text), "\x00") {
			continue // removed meanwhile, a link to a folder, or not a text
		}
		all = append(all, file{name, string(text)})
	}
	sort.Slice(all, func(i, j int) bool { return all[i].path < all[j].path })
	return all, nil
}

// source is a Go file with its syntax tree.
type source struct {
	file
	fset *token.FileSet
	ast  *ast.File
}

// at returns "path:line" of a node.
func (s *source) at(n ast.Node) string {
	pos := s.fset.Position(n.Pos())
	return s.path + ":" + strings.TrimPrefix(pos.String()[strings.LastIndex(pos.String(), s.path)+len(s.path):], ":")
}

var (
	parseOnce sync.Once
	parsed    []source
	parseErr  error
)

// sources returns the hand-written Go files outside testdata.
func sources(t testing.TB) []source {
	t.Helper()
	all := files(t)
	parseOnce.Do(func() {
		for _, f := range all {
			if !strings.HasSuffix(f.path, ".go") || strings.Contains(f.path, "testdata/") || f.generated() {
				continue
			}
			s := source{file: f, fset: token.NewFileSet()}
			if s.ast, parseErr = parser.ParseFile(s.fset, f.path, f.text, parser.ParseComments); parseErr != nil {
				return
			}
			parsed = append(parsed, s)
		}
	})
	require.NoError(t, parseErr)
	return parsed
}

// imports reports whether the file imports the package.
func (s *source) imports(path string) bool {
	for _, i := range s.ast.Imports {
		if strings.Trim(i.Path.Value, `"`) == path {
			return true
		}
	}
	return false
}

// calls visits each call of name.method in the file, with the functions around
// it, outermost first.
func (s *source) calls(visit func(call *ast.CallExpr, x *ast.Ident, method string, around []ast.Node)) {
	var around []ast.Node
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if n == nil {
			around = around[:len(around)-1]
			return true
		}
		if call, ok := n.(*ast.CallExpr); ok {
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok {
					visit(call, x, sel.Sel.Name, around)
				}
			}
		}
		around = append(around, n)
		return true
	})
}

// none fails the test with every finding, unless there is none.
func none(t testing.TB, findings []string, rule string) {
	t.Helper()
	require.Empty(t, findings, "%s:\n%s", rule, strings.Join(findings, "\n"))
}
