package web

import (
	"bytes"
	"encoding/json"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/yaml"
)

func statusKey(status int) string { return strconv.Itoa(status) }

func (a *API) problemResponse(status int) *huma.Response {
	schema := a.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[Problem](), true, "Problem")
	r := &huma.Response{
		Description: http.StatusText(status),
		Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
	}
	switch status {
	case http.StatusUnauthorized:
		r.Headers = header("WWW-Authenticate", "How to authenticate")
	case http.StatusServiceUnavailable, http.StatusTooManyRequests:
		r.Headers = RetryAfterHeader()
	}
	return r
}

// RetryAfterHeader documents the header Retry-After.
func RetryAfterHeader() map[string]*huma.Param { return header("Retry-After", "Seconds to wait") }

func header(name, doc string) map[string]*huma.Param {
	return map[string]*huma.Param{name: {Description: doc, Schema: &huma.Schema{Type: huma.TypeString}}}
}

// Document is an OpenAPI document in its renderings.
type Document struct {
	JSON, YAML     []byte // OpenAPI 3.1
	JSON30, YAML30 []byte // OpenAPI 3.0, for generators that need it
}

// Document renders the API's document. All operations must be registered.
func (a *API) Document() (*Document, error) {
	doc, err := a.OpenAPI().MarshalJSON()
	if err != nil {
		return nil, err
	}
	if doc, err = openAnswers(doc); err != nil {
		return nil, err
	}
	old, err := downgrade(doc)
	if err != nil {
		return nil, err
	}
	var d Document
	if d.JSON, d.YAML, err = render(doc); err != nil {
		return nil, err
	}
	d.JSON30, d.YAML30, err = render(old)
	return &d, err
}

// render returns a document indented, and as YAML.
func render(doc []byte) (asJSON, asYAML []byte, err error) {
	var v any
	if err := json.Unmarshal(doc, &v); err != nil {
		return nil, nil, err
	}
	var indented, text buffer
	enc := json.NewEncoder(&indented)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return nil, nil, err
	}
	if err := yaml.Convert(&text, bytes.NewReader(indented)); err != nil {
		return nil, nil, err
	}
	return indented, text, nil
}

// downgrade makes an OpenAPI 3.0 document out of one of 3.1.
func downgrade(doc []byte) ([]byte, error) {
	var v map[string]any
	if err := json.Unmarshal(doc, &v); err != nil {
		return nil, err
	}
	v["openapi"] = "3.0.3"
	downgradeNode(v)
	return json.Marshal(v)
}

func downgradeNode(node any) {
	switch n := node.(type) {
	case []any:
		for _, item := range n {
			downgradeNode(item)
		}
	case map[string]any:
		for _, v := range n {
			downgradeNode(v)
		}
		downgradeSchema(n)
	}
}

// downgradeSchema changes what 3.0 says differently in a schema. In another
// object of the document none of these keys has a value of that form.
func downgradeSchema(s map[string]any) {
	if types, ok := s["type"].([]any); ok {
		for _, t := range types {
			if t == "null" {
				s["nullable"] = true
			} else {
				s["type"] = t
			}
		}
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		if list, ok := s[key].([]any); ok {
			nullable(s, key, list)
		}
	}
	if c, ok := s["const"]; ok {
		s["enum"] = []any{c}
		delete(s, "const")
	}
	if s["contentEncoding"] == "base64" {
		s["format"] = "byte"
	}
	delete(s, "contentEncoding")
	delete(s, "contentMediaType")
	if examples, ok := s["examples"].([]any); ok && len(examples) > 0 {
		s["example"] = examples[0]
		delete(s, "examples")
	}
	for bound, exclusive := range map[string]string{"minimum": "exclusiveMinimum", "maximum": "exclusiveMaximum"} {
		if v, ok := s[exclusive].(float64); ok {
			s[bound], s[exclusive] = v, true
		}
	}
}

// nullable takes {type: null} out of a choice. Of a choice between it and one
// reference the reference stays.
func nullable(s map[string]any, key string, list []any) {
	var rest []any
	for _, item := range list {
		if m, ok := item.(map[string]any); ok && m["type"] == "null" {
			s["nullable"] = true
			continue
		}
		rest = append(rest, item)
	}
	if len(rest) == len(list) {
		return
	}
	delete(s, key)
	if len(rest) == 1 {
		key = "allOf"
	}
	s[key] = rest
}

// openAnswers takes "no other properties" from the schemas that no request
// uses: a later server may say more.
func openAnswers(doc []byte) ([]byte, error) {
	var v map[string]any
	if err := json.Unmarshal(doc, &v); err != nil {
		return nil, err
	}
	components, _ := v["components"].(map[string]any)
	schemas, _ := components["schemas"].(map[string]any)
	asked := map[string]bool{}
	var visit func(node any, request bool)
	visit = func(node any, request bool) {
		switch n := node.(type) {
		case []any:
			for _, item := range n {
				visit(item, request)
			}
		case map[string]any:
			ref, _ := n["$ref"].(string)
			if name := strings.TrimPrefix(ref, "#/components/schemas/"); request && ref != "" && !asked[name] {
				asked[name] = true
				visit(schemas[name], true)
			}
			for key, item := range n {
				visit(item, request || key == "requestBody")
			}
		}
	}
	visit(v["paths"], false)
	for name, schema := range schemas {
		if s, ok := schema.(map[string]any); ok && !asked[name] && s["additionalProperties"] == false {
			delete(s, "additionalProperties")
		}
	}
	return json.Marshal(v)
}
