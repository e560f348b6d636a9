package web

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
)

// registryKey is where an operation's metadata has the schemas of its API.
const registryKey = "registry"

// DiscriminatorKey is the extension of a schema that holds a
// *[huma.Discriminator]. A choice that requests use has it there and not in
// the field: Huma would lose its place in the request at a value without the
// property.
const DiscriminatorKey = "discriminator"

// required matches Huma's message about a property that is missing, which it
// locates at the object.
var required = regexp.MustCompile(`^expected required property (\S+) to be present$`)

// fields turns Huma's errors into the parts of a request that are wrong. Of a
// choice that nothing fits it says what is wrong with the one that is meant.
func fields(ctx huma.Context, errs []error) []ProblemField {
	e := explainer{}
	var body *huma.Schema
	if ctx != nil {
		op := ctx.Operation()
		e.schemas, _ = op.Metadata[registryKey].(huma.Registry)
		if op.RequestBody != nil && op.RequestBody.Content[mediaType] != nil {
			body = op.RequestBody.Content[mediaType].Schema
		}
	}
	return e.explain(body, "body", errs)
}

const mediaType = "application/json"

// explainer explains errors against schemas. Without any, it passes on what
// the errors say.
type explainer struct{ schemas huma.Registry }

// explain returns what errs say of a value at root that has the schema s.
func (e explainer) explain(s *huma.Schema, root string, errs []error) []ProblemField {
	var out []ProblemField
	for _, err := range errs {
		if err == nil {
			continue
		}
		var d huma.ErrorDetailer
		if !errors.As(err, &d) {
			out = append(out, ProblemField{Message: err.Error()})
			continue
		}
		detail := d.ErrorDetail()
		f := ProblemField{detail.Location, detail.Message}
		if m := required.FindStringSubmatch(f.Message); m != nil && f.Location != "" {
			f.Location += "." + m[1]
		}
		if choice := e.at(s, root, f.Location); choice != nil && f.Message == validation.MsgExpectedMatchExactlyOneSchema {
			out = append(out, e.choice(choice, f.Location, detail.Value)...)
			continue
		}
		out = append(out, f)
	}
	return out
}

// at returns the schema of the value at location below root, nil when it is
// not known.
func (e explainer) at(s *huma.Schema, root, location string) *huma.Schema {
	rest, ok := strings.CutPrefix(location, root)
	if !ok || s == nil || e.schemas == nil {
		return nil
	}
	for _, step := range strings.FieldsFunc(rest, func(r rune) bool { return r == '.' || r == '[' }) {
		s = e.resolve(s)
		if strings.HasSuffix(step, "]") {
			s = s.Items
		} else {
			s = s.Properties[step]
		}
		if s == nil {
			return nil
		}
	}
	return e.resolve(s)
}

func (e explainer) resolve(s *huma.Schema) *huma.Schema {
	for s.Ref != "" {
		s = e.schemas.SchemaFromRef(s.Ref)
	}
	return s
}

// choice says what is wrong with a value that fits no schema of a choice.
func (e explainer) choice(s *huma.Schema, location string, value any) []ProblemField {
	if d, ok := s.Extensions[DiscriminatorKey].(*huma.Discriminator); ok {
		object, ok := value.(map[string]any)
		if !ok {
			return []ProblemField{{location, "expected an object, not " + kind(value)}}
		}
		known := strings.Join(slices.Sorted(maps.Keys(d.Mapping)), ", ")
		name, ok := object[d.PropertyName].(string)
		switch {
		case !ok:
			return []ProblemField{{location + "." + d.PropertyName, "expected one of " + known}}
		case d.Mapping[name] == "":
			return []ProblemField{{location + "." + d.PropertyName, fmt.Sprintf("%s is not one of %s", shortened(strconv.Quote(name)), known)}}
		}
		return e.validate(&huma.Schema{Ref: d.Mapping[name]}, location, value)
	}
	var kinds []string
	for _, option := range s.OneOf {
		option = e.resolve(option)
		switch {
		case option.Type == kinded(value):
			return e.validate(option, location, value)
		case option.OneOf != nil:
			return e.choice(option, location, value)
		}
		kinds = append(kinds, article(option.Type))
	}
	return []ProblemField{{location, "expected " + strings.Join(kinds, " or ") + ", not " + kind(value)}}
}

// validate says what is wrong with a value by one schema.
func (e explainer) validate(s *huma.Schema, location string, value any) []ProblemField {
	path := huma.NewPathBuffer(nil, 0)
	path.Push(location)
	res := &huma.ValidateResult{}
	huma.Validate(e.schemas, s, path, huma.ModeWriteToServer, value, res)
	return e.explain(s, location, res.Errors)
}

// kinded returns the schema type that a decoded value has.
func kinded(value any) string {
	switch value.(type) {
	case string:
		return huma.TypeString
	case []any:
		return huma.TypeArray
	case map[string]any:
		return huma.TypeObject
	case bool:
		return huma.TypeBoolean
	case nil:
		return "null"
	}
	return huma.TypeNumber
}

func kind(value any) string { return article(kinded(value)) }

func article(name string) string {
	switch name {
	case "null":
		return name
	case huma.TypeArray, huma.TypeObject, huma.TypeInteger:
		return "an " + name
	}
	return "a " + name
}
