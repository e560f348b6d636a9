package server

import (
	"bytes"
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/wp-durable/wp-durable/server/internal/web"
)

const schemaPrefix = "#/components/schemas/"

// named puts a schema among the document's components and returns a reference
// to it.
func named(r huma.Registry, name string, s *huma.Schema) *huma.Schema {
	if _, ok := r.Map()[name]; !ok {
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: schemaPrefix + name}
}

// union puts a choice of types, told apart by a property, among the components
// and returns a reference to it.
func union(r huma.Registry, name, property string, types map[string]reflect.Type) *huma.Schema {
	if _, ok := r.Map()[name]; ok {
		return &huma.Schema{Ref: schemaPrefix + name}
	}
	by := &huma.Discriminator{PropertyName: property, Mapping: map[string]string{}}
	s := &huma.Schema{Extensions: map[string]any{web.DiscriminatorKey: by}}
	r.Map()[name] = s // before the members, which may contain it
	for _, value := range slices.Sorted(maps.Keys(types)) {
		member := r.Schema(types[value], true, types[value].Name())
		s.OneOf = append(s.OneOf, member)
		by.Mapping[value] = member.Ref
	}
	s.PrecomputeMessages()
	return &huma.Schema{Ref: schemaPrefix + name}
}

// Change is a field of a change: absent it stays, null clears it, a value
// replaces it.
type Change[T any] struct {
	Set   bool
	Value *T // nil clears
}

// UnmarshalJSON is called for a field that is there.
func (c *Change[T]) UnmarshalJSON(data []byte) error {
	*c = Change[T]{Set: true}
	if bytes.Equal(bytes.TrimSpace(data), []byte("null")) {
		return nil
	}
	c.Value = new(T)
	return json.Unmarshal(data, c.Value)
}

// MarshalJSON writes the value or null.
func (c Change[T]) MarshalJSON() ([]byte, error) { return json.Marshal(c.Value) }

// IsZero reports whether the field stays, so that omitzero leaves it out.
func (c Change[T]) IsZero() bool { return !c.Set }

// Schema describes T or null.
func (Change[T]) Schema(r huma.Registry) *huma.Schema {
	s := r.Schema(reflect.TypeFor[T](), true, "")
	if s.Ref == "" && s.Type != "" {
		s.Nullable = true
		return s
	}
	// The enum lets Huma, which does not know the type null, tell it apart.
	return &huma.Schema{OneOf: []*huma.Schema{s, {Type: "null", Enum: []any{nil}}}}
}

// exactly decodes an object into v, taking only fields that are spelled as v's
// are: encoding/json would take other casings too.
func exactly(data []byte, v any) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(data, &fields); err != nil {
		return err
	}
	known := map[string]bool{}
	t := reflect.TypeOf(v).Elem()
	for i := range t.NumField() {
		name, _, _ := bytes.Cut([]byte(t.Field(i).Tag.Get("json")), []byte(","))
		known[string(name)] = true
	}
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return !known[name] })
	clean, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return json.Unmarshal(clean, v)
}
