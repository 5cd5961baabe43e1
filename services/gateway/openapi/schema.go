// Package openapi makes JSON Schemas of Go types, as OpenAPI 3.1 wants them, so that a description
// of an interface cannot differ from what it sends.
package openapi

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Schema is a JSON Schema.
type Schema = map[string]any

// Schemas collects the schemas of named types, which refer to each other.
type Schemas struct {
	Named map[string]Schema
	names map[reflect.Type]string
	known map[reflect.Type]Schema
}

// New returns a collection. known has the schemas of types that encode themselves.
func New(known map[reflect.Type]Schema) *Schemas {
	return &Schemas{Named: map[string]Schema{}, names: map[reflect.Type]string{}, known: known}
}

var (
	timeType = reflect.TypeFor[time.Time]()
	textType = reflect.TypeFor[encoding.TextMarshaler]()
	jsonType = reflect.TypeFor[json.Marshaler]()
)

// Of returns the schema of a type.
func (s *Schemas) Of(t reflect.Type) Schema {
	if k, ok := s.known[t]; ok {
		return k
	}
	switch {
	case t == timeType:
		return Schema{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return Schema{}
	case t.Kind() != reflect.Pointer && t.Implements(textType):
		return Schema{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return Schema{"type": "boolean"}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Schema{"type": "integer"}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return Schema{"type": "integer", "minimum": 0}
	case reflect.Float32, reflect.Float64:
		return Schema{"type": "number"}
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Pointer:
		return nullable(s.Of(t.Elem()))
	case reflect.Slice:
		return Schema{"type": []string{"array", "null"}, "items": s.Of(t.Elem())}
	case reflect.Array:
		return Schema{"type": "array", "items": s.Of(t.Elem()), "minItems": t.Len(), "maxItems": t.Len()}
	case reflect.Map:
		return Schema{"type": []string{"object", "null"}, "additionalProperties": s.Of(t.Elem())}
	case reflect.Struct:
		return s.named(t)
	}
	return Schema{} // any
}

func nullable(of Schema) Schema {
	switch t := of["type"].(type) {
	case string:
		out := Schema{}
		for k, v := range of {
			out[k] = v
		}
		out["type"] = []string{t, "null"}
		return out
	case []string:
		return of
	}
	return Schema{"anyOf": []Schema{of, {"type": "null"}}}
}

// named returns a reference to the schema of a struct, or the schema of one without a name.
func (s *Schemas) named(t reflect.Type) Schema {
	if t.Name() == "" {
		return s.object(t)
	}
	name, ok := s.names[t]
	if !ok {
		name = t.Name()
		if _, taken := s.Named[name]; taken { // of another package
			p := strings.Split(t.PkgPath(), "/")
			of := p[len(p)-1]
			name = strings.ToUpper(of[:1]) + of[1:] + name
		}
		s.names[t] = name
		s.Named[name] = nil // it may contain itself
		s.Named[name] = s.object(t)
	}
	return Schema{"$ref": "#/components/schemas/" + name}
}

// object is the schema of a struct, by the rules of encoding/json: of several fields of one name
// the least deep counts.
func (s *Schemas) object(t reflect.Type) Schema {
	properties, required := Schema{}, []string{}
	level := []reflect.Type{t}
	for len(level) > 0 {
		var next []reflect.Type
		met := map[string]bool{}
		for _, of := range level {
			for i := range of.NumField() {
				f := of.Field(i)
				name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
				embedded := f.Type
				if embedded.Kind() == reflect.Pointer {
					embedded = embedded.Elem()
				}
				switch {
				case name == "-" || (!f.IsExported() && !f.Anonymous):
					continue
				case f.Anonymous && name == "" && embedded.Kind() == reflect.Struct && !embedded.Implements(jsonType):
					next = append(next, embedded)
					continue
				case name == "":
					name = f.Name
				}
				if _, shadowed := properties[name]; shadowed {
					continue
				}
				met[name] = true
				p := s.Of(f.Type)
				if strings.Contains(options, "string") {
					p = Schema{"type": "string"}
				}
				properties[name] = p
				if !strings.Contains(options, "omitempty") && !strings.Contains(options, "omitzero") {
					required = append(required, name)
				}
			}
		}
		level = next
	}
	slices.Sort(required)
	out := Schema{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}
