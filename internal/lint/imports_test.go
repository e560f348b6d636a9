package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// listed is a package as go list -json describes it.
type listed struct {
	ImportPath string
	Standard   bool
	Module     *struct{ Path string }
	Deps       []string
	Imports    []string
}

// list returns the packages of the module and all they link, by import path.
// GOOS is Linux: the tree is the same wherever it is checked.
func list(t *testing.T) map[string]*listed {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-e", "-deps", "-json=ImportPath,Standard,Module,Deps,Imports", "./...")
	cmd.Dir = root(t)
	cmd.Env = append(cmd.Environ(), "GOOS=linux", "CGO_ENABLED=0")
	out, err := cmd.Output()
	require.NoError(t, err)
	all := map[string]*listed{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := &listed{}
		err := dec.Decode(p)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all[p.ImportPath] = p
	}
}

// under reports whether path is one of the trees, or below one.
func under(path string, trees ...string) bool {
	return slices.ContainsFunc(trees, func(tree string) bool {
		return path == tree || strings.HasPrefix(path, tree+"/")
	})
}

var (
	http      = []string{"net/http", "github.com/danielgtaylor/huma/v2", "github.com/gorilla/websocket"}
	vendors   = []string{"github.com/anthropics", "github.com/openai", "google.golang.org/genai", "github.com/sashabaranov"}
	docker    = []string{"github.com/docker", "github.com/moby"}
	browser   = []string{"github.com/chromedp", "github.com/go-rod"}
	testOnly  = []string{"testing", "github.com/stretchr/testify", "pgregory.net/rapid", "go.uber.org/goleak"}
	databases = []string{"database/sql", "github.com/uptrace/bun", "modernc.org/sqlite", "github.com/jackc/pgx"}
)

func join(groups ...[]string) []string { return slices.Concat(groups...) }

// rule says what a tree of packages must not link, directly or through others.
type rule struct {
	of     []string // below the module; the packages the rule is for
	except []string // below the module; parts of them that it is not for
	not    []string // import paths, or paths below the module that start with "./"
	but    []string // parts of not that are allowed, spelled the same way
	why    string
}

// The arrows of the module. A package that does not exist yet is held to them
// from its first file on.
var rules = []rule{
	{of: []string{"durable"}, except: []string{"durable/sqlstore", "durable/model", "durable/storetest", "durable/durabletest", "durable/env", "durable/memstore", "durable/internal/crashtest"},
		not: join(http, databases, []string{"os/exec", "./durable/sqlstore", "./durable/memstore", "./durable/model/anthropic", "./durable/model/openai", "./durable/model/faux", "./durable/model/demo", "./durable/model/catalog"}),
		why: "the engine knows stores, models and tools by their interfaces only; its users choose them"},
	{of: []string{"durable"}, except: []string{"durable/storetest", "durable/durabletest", "durable/env/envtest", "durable/model/aimocktest", "durable/internal/crashtest"},
		not: testOnly, why: "production code does not link test code"},
	{of: []string{"durable"}, not: []string{"./tools", "./extensions", "./server", "./bridge", "./examples"},
		why: "durable <- tools <- extensions <- server; never back"},
	{of: []string{"tools"}, not: []string{"./extensions", "./server", "./bridge", "./examples"},
		why: "durable <- tools <- extensions <- server; never back"},
	{of: []string{"extensions"}, not: []string{"./server", "./bridge", "./examples"}, but: []string{"./bridge/protocol"},
		why: "every extension works in a program without the server (X1.1); frames are all it shares with the bridge"},
	{of: []string{"extensions"}, except: []string{"extensions/macbridge"}, not: []string{"./bridge"},
		why: "only macbridge speaks to a bridge"},
	{of: []string{"bridge"}, not: []string{"./durable", "./tools", "./extensions", "./server", "./examples"},
		why: "the bridge runs on a person's machine and links nothing of the engine"},
	{of: []string{"bridge/protocol"}, not: []string{"./bridge"}, but: []string{"./bridge/protocol"},
		why: "both ends import the frames, neither imports the other"},
	{of: []string{"server"}, not: []string{"./bridge", "./examples"}, but: []string{"./bridge/protocol"},
		why: "the server reaches a bridge by frames"},

	{of: []string{"durable", "tools", "extensions"}, except: []string{"durable/model"},
		not: join(vendors, docker, browser), why: "an embedder gets no vendor SDK, Docker or browser"},
	{of: []string{"durable/sqlstore/sqlite"}, not: join(http, vendors, docker, browser),
		why: "an importer of durable and sqlite links no Huma, vendor SDK, Docker or browser"},
	{of: []string{"durable/model"}, not: join(vendors, databases), why: "the adapters are our own codecs (E16)"},
	{of: []string{"extensions"}, except: []string{"extensions/jev/routes", "extensions/apify/routes", "extensions/subagent/routes", "extensions/macbridge/routes", "extensions/gatekeeper/routes"},
		not: []string{"github.com/danielgtaylor/huma/v2", "github.com/gorilla/websocket"},
		why: "HTTP of an extension is in its routes package (X1.2)"},
	{of: []string{"server/cmd", "bridge/cmd"},
		not: join(testOnly, []string{"./durable/storetest", "./durable/durabletest", "./durable/env/envtest", "./extensions/gatekeeper/gatekeepertest"}),
		why: "a program that is shipped holds no test code (G8)"},
}

func TestImports_Arrows(t *testing.T) {
	t.Parallel()
	all := list(t)
	abs := func(path string) string {
		if below, ok := strings.CutPrefix(path, "./"); ok {
			return modulePath + "/" + below
		}
		return path
	}
	each := func(paths []string, f func(string) string) []string {
		var out []string
		for _, p := range paths {
			out = append(out, f(p))
		}
		return out
	}
	own := func(path string) string { return modulePath + "/" + path }
	for _, r := range rules {
		of, except := each(r.of, own), each(r.except, own)
		not, but := each(r.not, abs), each(r.but, abs)
		var found []string
		for path, p := range all {
			if !under(path, of...) || under(path, except...) {
				continue
			}
			for _, dep := range p.Deps {
				if under(dep, not...) && !under(dep, but...) && !linkedByExcepted(all, p, dep, except) {
					found = append(found, strings.TrimPrefix(path, modulePath+"/")+" links "+dep)
				}
			}
		}
		slices.Sort(found)
		none(t, found, strings.Join(r.of, ", ")+": "+r.why)
	}
}

// linkedByExcepted reports whether p has dep only through packages that the
// rule is not for.
func linkedByExcepted(all map[string]*listed, p *listed, dep string, except []string) bool {
	seen := map[string]bool{}
	var reach func(path string) bool
	reach = func(path string) bool {
		if path == dep {
			return true
		}
		if seen[path] || under(path, except...) || all[path] == nil {
			return false
		}
		seen[path] = true
		return slices.ContainsFunc(all[path].Imports, reach)
	}
	return !slices.ContainsFunc(p.Imports, reach)
}

// TestImports_Modules: each dependency of the engine must earn its place.
func TestImports_Modules(t *testing.T) {
	t.Parallel()
	all := list(t)
	for pkg, allowed := range map[string][]string{
		"durable":                     {"github.com/google/jsonschema-go", "github.com/google/uuid", "golang.org/x/sync"},
		"durable/memstore":            {"github.com/google/jsonschema-go", "github.com/google/uuid", "golang.org/x/sync"},
		"durable/model":               {},
		"durable/model/anthropic":     {},
		"durable/model/openai":        {},
		"durable/model/faux":          {},
		"durable/model/demo":          {},
		"durable/internal/transcript": {},
		"durable/env":                 {},
		"bridge/protocol":             {},
		"bridge/guard":                {"golang.org/x/sys"},
	} {
		p := all[modulePath+"/"+pkg]
		if p == nil {
			continue
		}
		var found []string
		for _, dep := range p.Deps {
			d := all[dep]
			if d == nil || d.Standard || d.Module == nil || d.Module.Path == modulePath || slices.Contains(allowed, d.Module.Path) {
				continue
			}
			found = append(found, dep)
		}
		none(t, found, pkg+" links modules beyond "+strings.Join(allowed, ", "))
	}
	transcript := all[modulePath+"/durable/internal/transcript"]
	require.NotNil(t, transcript)
	require.NotContains(t, transcript.Deps, modulePath+"/durable", "durable imports it")
}
