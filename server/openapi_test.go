package server_test

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/wp-durable/wp-durable/server"
)

// (S2) The committed document is the server's; go generate writes it.
func TestOpenAPI_Committed(t *testing.T) {
	t.Parallel()
	doc, err := server.OpenAPI()
	require.NoError(t, err)
	committed, err := os.ReadFile("../openapi.yaml")
	require.NoError(t, err)
	if string(doc.YAML) != string(committed) {
		t.Fatal("openapi.yaml is not the server's document: run go generate ./server")
	}
	f := newFixture(t)
	require.Equal(t, string(committed), f.do("GET", "/openapi.yaml", nil).body, "also with test routes")
	require.Equal(t, string(doc.JSON30), f.do("GET", "/openapi-3.0.json", nil).body)
}

type document struct {
	OpenAPI    string                          `json:"openapi"`
	Paths      map[string]map[string]operation `json:"paths"`
	Components struct {
		Schemas map[string]map[string]any `json:"schemas"`
	} `json:"components"`
}

type operation struct {
	OperationID string                    `json:"operationId"`
	Summary     string                    `json:"summary"`
	Tags        []string                  `json:"tags"`
	Security    []any                     `json:"security"`
	RequestBody *content                  `json:"requestBody"`
	Responses   map[string]map[string]any `json:"responses"`
}

type content struct {
	Content map[string]any `json:"content"`
}

// (S2) What generators need to make pleasant clients.
func TestOpenAPI_Quality(t *testing.T) {
	t.Parallel()
	doc, err := server.OpenAPI()
	require.NoError(t, err)
	for version, text := range map[string][]byte{"3.1.0": doc.JSON, "3.0.3": doc.JSON30} {
		var d document
		require.NoError(t, json.Unmarshal(text, &d))
		require.Equal(t, version, d.OpenAPI)
		ids := map[string]bool{}
		for path, methods := range d.Paths {
			for method, op := range methods {
				name := method + " " + path
				require.Regexp(t, `^[a-z][a-zA-Z]+$`, op.OperationID, name)
				require.False(t, ids[op.OperationID], name)
				ids[op.OperationID] = true
				require.NotEmpty(t, op.Summary, name)
				require.Len(t, op.Tags, 1, name)
				require.Equal(t, strings.HasPrefix(path, "/v1"), len(op.Security) == 1, name)
				require.NotContains(t, op.Responses, "422", name)
				require.NotContains(t, op.Responses, "default", name)
				if op.RequestBody != nil {
					require.Len(t, op.RequestBody.Content, 1, "%s: one media type", name)
				}
				for status, r := range op.Responses {
					c, ok := r["content"].(map[string]any)
					require.True(t, ok, "%s %s", name, status)
					require.Len(t, c, 1, "%s %s: one media type", name, status)
					if status >= "400" && (path != "/healthz" || status != "503") {
						require.Contains(t, c, "application/problem+json", "%s %s", name, status)
					}
				}
			}
		}
		for name, s := range d.Components.Schemas {
			require.NotRegexp(t, `(Response|Request|Struct)$`, name, "a name of its own")
			if d, ok := s["discriminator"].(map[string]any); ok {
				requireUnion(t, text, name, s, d)
			}
		}
		refs := regexp.MustCompile(`"#/components/schemas/([^"]+)"`).FindAllStringSubmatch(string(text), -1)
		for _, ref := range refs {
			require.Contains(t, d.Components.Schemas, ref[1])
		}
		if version == "3.0.3" {
			require.NotContains(t, string(text), `"null"`)
			require.NotContains(t, string(text), `"examples"`)
			require.NotContains(t, string(text), `"const"`)
		}
	}
}

// requireUnion requires that each member has the property with one value.
func requireUnion(t *testing.T, text []byte, name string, s, discriminator map[string]any) {
	t.Helper()
	var d document
	require.NoError(t, json.Unmarshal(text, &d))
	property := discriminator["propertyName"].(string)
	mapping := discriminator["mapping"].(map[string]any)
	require.Len(t, s["oneOf"], len(mapping), name)
	for _, value := range slices.Sorted(maps.Keys(mapping)) {
		member := d.Components.Schemas[strings.TrimPrefix(mapping[value].(string), "#/components/schemas/")]
		p := member["properties"].(map[string]any)[property].(map[string]any)
		require.Equal(t, []any{value}, p["enum"], "%s: %s", name, value)
		require.Contains(t, member["required"], property, "%s: %s", name, value)
	}
}
