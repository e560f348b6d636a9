package lint

import (
	"cmp"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// pages are the specifications, by the letter of their numbers.
var pages = map[string]string{
	"E": "durable/SPEC.md",
	"S": "server/SPEC.md",
	"X": "extensions/SPEC.md",
	"G": "extensions/gatekeeper/SPEC.md",
	"B": "bridge/SPEC.md",
	"A": "bridge/acp/SPEC.md",
}

var (
	heading  = regexp.MustCompile(`^#+ ([A-Z]\d+(?:\.\d+)*)\b`)
	inline   = regexp.MustCompile(`^(?:\*\*)?([A-Z]\d+\.\d+)\b`)
	numbered = regexp.MustCompile(`^(\d+)\. `)
	// cited is a parenthesis that holds spec numbers and nothing else.
	cited  = regexp.MustCompile(`\(((?:see )?[ESXGBA]\d+(?:\.\d+)*(?:(?:, | and |-|–)[ESXGBA]\d+(?:\.\d+)*)*)\)`)
	number = regexp.MustCompile(`[ESXGBA]\d+(?:\.\d+)*`)
)

// numbers returns every number that a page defines.
func numbers(text string) map[string]bool {
	all := map[string]bool{}
	section, paragraph := "", ""
	for line := range strings.Lines(text) {
		switch {
		case heading.MatchString(line):
			section, paragraph = heading.FindStringSubmatch(line)[1], ""
			all[section] = true
		case inline.MatchString(line):
			paragraph = inline.FindStringSubmatch(line)[1]
			all[paragraph] = true
		case section != "" && numbered.MatchString(line):
			all[cmp.Or(paragraph, section)+"."+numbered.FindStringSubmatch(line)[1]] = true
		}
	}
	return all
}

// TestDocs_Citations: a number in a comment leads to a rule.
func TestDocs_Citations(t *testing.T) {
	t.Parallel()
	defined := map[string]bool{}
	for letter, page := range pages {
		text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(page)))
		require.NoError(t, err)
		for n := range numbers(string(text)) {
			require.Equal(t, letter, n[:1], "%s defines %s", page, n)
			defined[n] = true
		}
	}
	require.Greater(t, len(defined), 100)
	citations := 0
	var found []string
	for _, f := range files(t) {
		if !strings.HasSuffix(f.path, ".go") && !strings.HasSuffix(f.path, ".md") || f.dir() == "internal/lint" {
			continue
		}
		for i, line := range strings.Split(f.text, "\n") {
			for _, group := range cited.FindAllString(line, -1) {
				for _, n := range number.FindAllString(group, -1) {
					citations++
					if !defined[n] {
						found = append(found, f.path+":"+strconv.Itoa(i+1)+": "+n)
					}
				}
			}
		}
	}
	require.Greater(t, citations, 50)
	none(t, found, "numbers that no SPEC.md defines")
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

// TestDocs_Links: a link within the repository leads somewhere.
func TestDocs_Links(t *testing.T) {
	t.Parallel()
	var found []string
	for _, f := range files(t) {
		if !strings.HasSuffix(f.path, ".md") {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(f.text, -1) {
			u, err := url.Parse(m[1])
			if err != nil || u.Scheme != "" || u.Path == "" {
				continue
			}
			target := path.Join(f.dir(), u.Path)
			if _, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(target))); err != nil || strings.HasPrefix(target, "../") {
				found = append(found, f.path+": "+m[1])
			}
		}
	}
	none(t, found, "links that lead nowhere")
}

// TestDocs_NoPlaces: nothing names the machine it was written on, or the
// registry that machine was served by.
func TestDocs_NoPlaces(t *testing.T) {
	t.Parallel()
	// A folder counts where a path begins, a host anywhere.
	folders := []string{"/" + "root/", "/" + "work/", "/" + "farm/", "../" + "facts/", "../" + "shared/"}
	var hosts []string
	cmd := exec.CommandContext(t.Context(), "go", "env", "GOPROXY")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	require.NoError(t, err)
	for _, proxy := range strings.FieldsFunc(string(out), func(r rune) bool { return strings.ContainsRune(",|\n", r) }) {
		if u, err := url.Parse(proxy); err == nil && strings.Contains(u.Hostname(), ".") {
			hosts = append(hosts, u.Hostname())
		}
	}
	named := func(line string) bool {
		for _, folder := range folders {
			for rest := line; ; {
				before, after, ok := strings.Cut(rest, folder)
				if !ok {
					break
				}
				if !midPath(before) {
					return true
				}
				rest = after
			}
		}
		return slices.ContainsFunc(hosts, func(host string) bool { return strings.Contains(line, host) })
	}
	var found []string
	for _, f := range files(t) {
		if path.Base(f.path) == "go.sum" {
			continue
		}
		n := 0
		for line := range strings.Lines(f.text) {
			if n++; named(line) {
				found = append(found, f.path+":"+strconv.Itoa(n)+": "+strings.TrimSpace(line))
			}
		}
	}
	none(t, found, "places of one machine")
}

// midPath reports whether a path goes on after the text.
func midPath(text string) bool {
	if text == "" {
		return false
	}
	c := text[len(text)-1]
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("_.>}/-", c) >= 0
}

// TestDocs_Layout: the top of the tree is fixed, so that everybody knows where
// a thing lives.
func TestDocs_Layout(t *testing.T) {
	t.Parallel()
	allowed := []string{
		"durable", "tools", "extensions", "bridge", "server", "examples", "internal", ".ci",
		"openapi.yaml", "go.mod", "go.sum", "doc.go", "README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md",
		"Makefile", "Dockerfile", ".dockerignore", ".gitignore", ".gitattributes", ".golangci.yml",
	}
	var found []string
	for _, f := range files(t) {
		top, _, _ := strings.Cut(f.path, "/")
		if !slices.Contains(allowed, top) && !slices.Contains(found, top) {
			found = append(found, top)
		}
		for _, part := range strings.Split(f.dir(), "/") {
			if slices.Contains([]string{"pkg", "util", "utils", "common", "helpers", "models"}, part) {
				found = append(found, f.path)
			}
		}
	}
	none(t, found, "not in the layout")
}
