package lint

import (
	"go/ast"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestCode_FileSizes: a file holds one concept. Past 500 lines it is time to
// look for the second one; 700 is the stop, 1,000 for tests.
func TestCode_FileSizes(t *testing.T) {
	t.Parallel()
	var found []string
	for _, s := range sources(t) {
		lines, most := strings.Count(s.text, "\n"), 700
		if s.test() {
			most = 1000
		}
		if lines > most {
			found = append(found, s.path+": "+strconv.Itoa(lines)+" lines")
		}
	}
	none(t, found, "split by concept")
}

// TestCode_PackageComments: each package says what it is for.
func TestCode_PackageComments(t *testing.T) {
	t.Parallel()
	documented, seen := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			continue
		}
		seen[s.dir()] = true
		if s.ast.Doc != nil {
			documented[s.dir()] = true
		}
	}
	var found []string
	for dir := range seen {
		if !documented[dir] {
			found = append(found, dir)
		}
	}
	slices.Sort(found)
	none(t, found, "packages without a package comment")
}

// TestCode_NoSleep: tests wait for what they wait for. In a synctest bubble
// sleeping takes no time and is exact.
func TestCode_NoSleep(t *testing.T) {
	t.Parallel()
	var found []string
	for _, s := range sources(t) {
		if !s.imports("testing") || s.imports("testing/synctest") {
			continue
		}
		s.calls(func(call *ast.CallExpr, x *ast.Ident, method string, _ []ast.Node) {
			if x.Name == "time" && method == "Sleep" {
				found = append(found, s.at(call))
			}
		})
	}
	none(t, found, "time.Sleep in a test: wait on a signal, a channel or a fake clock")
}

// TestCode_NoSilentSkip: a test is skipped only by a helper that fails instead
// when CI is set, where everything is installed.
func TestCode_NoSilentSkip(t *testing.T) {
	t.Parallel()
	var found []string
	for _, s := range sources(t) {
		s.calls(func(call *ast.CallExpr, x *ast.Ident, method string, around []ast.Node) {
			if !strings.HasPrefix(method, "Skip") || !testingType(x) {
				return
			}
			for _, n := range around {
				if f, ok := n.(*ast.FuncDecl); ok && failsInCI(f) {
					return
				}
				if fuzzed(n) {
					return // an input, not a test
				}
			}
			found = append(found, s.at(call))
		})
	}
	none(t, found, "a skip must be in a function that fails when os.Getenv(\"CI\") is set")
}

// testingType reports whether x is declared as one of testing's types.
func testingType(x *ast.Ident) bool {
	if x.Obj == nil {
		return false
	}
	field, ok := x.Obj.Decl.(*ast.Field)
	if !ok {
		return false
	}
	typ := field.Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	sel, ok := typ.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := sel.X.(*ast.Ident)
	return ok && pkg.Name == "testing"
}

// failsInCI reports whether a function asks for CI and can fail the test.
func failsInCI(f *ast.FuncDecl) bool {
	asks, fails := false, false
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			asks = asks || n.Value == `"CI"`
		case *ast.SelectorExpr:
			pkg, _ := n.X.(*ast.Ident)
			fails = fails || strings.HasPrefix(n.Sel.Name, "Fatal") || strings.HasPrefix(n.Sel.Name, "Fail") || pkg != nil && pkg.Name == "require"
		}
		return true
	})
	return asks && fails
}

func fuzzed(n ast.Node) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Fuzz"
}

// TestCode_LeakChecks: a package that starts goroutines is held to ending them.
func TestCode_LeakChecks(t *testing.T) {
	t.Parallel()
	starts, tested, checked := map[string]string{}, map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if s.test() {
			tested[s.dir()] = true
			if s.imports("go.uber.org/goleak") {
				checked[s.dir()] = true
			}
			continue
		}
		if s.ast.Name.Name == "main" {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok && starts[s.dir()] == "" {
				starts[s.dir()] = s.at(g)
			}
			return true
		})
	}
	var found []string
	for dir, at := range starts {
		if tested[dir] && !checked[dir] && !strings.HasSuffix(path.Base(dir), "test") {
			found = append(found, dir+": goroutine at "+at)
		}
	}
	slices.Sort(found)
	none(t, found, "packages with goroutines need goleak in TestMain")
}

var leftOver = regexp.MustCompile(`\b(TODO|FIXME|XXX|DO NOT USE|not implemented)\b`)

// TestCode_NothingLeftOver: what is not done is not in the tree.
func TestCode_NothingLeftOver(t *testing.T) {
	t.Parallel()
	var found []string
	for _, s := range sources(t) {
		if s.dir() == "internal/lint" {
			continue
		}
		for i, line := range strings.Split(s.text, "\n") {
			if leftOver.MatchString(line) {
				found = append(found, s.path+":"+strconv.Itoa(i+1)+": "+strings.TrimSpace(line))
			}
		}
	}
	none(t, found, "left-overs")
}
