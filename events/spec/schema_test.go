package spec

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/regroup-io/regroup/internal/golden"
)

// TestJobDocs generates docs/jobfile.md and docs/job.schema.json from the types.
func TestJobDocs(t *testing.T) {
	golden.Compare(t, "../../docs/jobfile.md", jobFilePage(t))
	golden.Compare(t, "../../docs/job.schema.json", string(jobSchema(t)))
}

// descriptions returns the first paragraph of the comment of each field of a struct, by type and
// name: Workers.Min.
func descriptions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range []string{"job.go", "gpu.go", "rendezvous.go"} {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if declared, ok := n.(*ast.TypeSpec); ok {
				if s, ok := declared.Type.(*ast.StructType); ok {
					for _, f := range s.Fields.List {
						text, _, _ := strings.Cut(f.Doc.Text(), "\n\n")
						all[declared.Name.Name+"."+f.Names[0].Name] = strings.Join(strings.Fields(text), " ")
					}
				}
			}
			return true
		})
	}
	return all
}

// describe returns the description of a field with what its tags say.
func (r *rule) describe(t *testing.T, descriptions map[string]string) string {
	t.Helper()
	owner := reflect.TypeFor[Job]()
	if n := len(r.index) - 1; n > 0 {
		owner = owner.FieldByIndex(r.index[:n]).Type
	}
	if owner.Kind() == reflect.Pointer {
		owner = owner.Elem()
	}
	text := descriptions[owner.Name()+"."+r.tags().Name]
	if text == "" {
		t.Errorf("%s has no comment that describes it", r.path)
	}
	if named := func(word string) bool { return strings.Contains(text, "`"+word+"`") }; len(r.enum) > 0 && !slices.ContainsFunc(r.enum, named) {
		text += " One of `" + strings.Join(r.enum, "`, `") + "`."
	}
	if span := r.span(); span != "" && (r.kind != durationType || r.min > 1 || r.max != math.MaxInt64) {
		text += " " + strings.ToUpper(span[:1]) + span[1:] + "."
	}
	if r.required {
		text += " Required."
	}
	return text
}

func (r *rule) tags() reflect.StructField { return reflect.TypeFor[Job]().FieldByIndex(r.index) }

func jobFilePage(t *testing.T) string {
	intro, err := os.ReadFile("testdata/jobfile.md")
	if err != nil {
		t.Fatal(err)
	}
	page, words := string(intro), descriptions(t)
	for i := range rules {
		r := &rules[i]
		initial := r.defaultText
		if initial != "" {
			initial = "`" + initial + "`"
		}
		page += "| `" + r.path + "` | " + typeName(r.kind) + " | " + initial + " | " + r.describe(t, words) + " |\n"
	}
	return page
}

func typeName(t reflect.Type) string {
	switch {
	case t == durationType:
		return "time"
	case t == reflect.TypeFor[Bytes]():
		return "size"
	case t.Kind() == reflect.Slice:
		return "list of " + typeName(t.Elem())
	case t.Kind() == reflect.Map:
		return "names with " + typeName(t.Elem())
	case t.Kind() == reflect.String:
		return "text"
	case t.Kind() == reflect.Bool:
		return "true or false"
	}
	return "number"
}

type jsonObject = map[string]any

const (
	noNUL        = `^[^\x00]*$`
	digits       = `([0-9]+\.?[0-9]*|\.[0-9]+)`
	notZero      = `([0-9]*[1-9][0-9]*\.?[0-9]*|[0-9]*\.[0-9]*[1-9][0-9]*)`
	unit         = `(ns|us|µs|μs|ms|s|m|h)`
	span         = `^\+?(0|(` + digits + unit + `)+)$`
	spanNotZero  = `^\+?(` + digits + unit + `)*` + notZero + unit + `(` + digits + unit + `)*$`
	labelPattern = `^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
)

// coded are the rules that Check has in Go and not in tags. A rule about several fields is not in
// the schema.
func coded() map[string]jsonObject {
	var set []any
	for _, v := range AgentVariables {
		set = append(set, v.Name)
	}
	present := func(section string) jsonObject {
		return jsonObject{"required": []any{section}, "properties": jsonObject{section: jsonObject{"type": "object"}}}
	}
	return map[string]jsonObject{
		"":                  {"anyOf": []any{present("workers"), present("rendezvous")}},
		"name":              {"pattern": labelPattern, "maxLength": maxJobName},
		"processes.preload": {"items": jsonObject{"type": "string", "pattern": module.String()}, "maxItems": maxPreload},
		"command":           {"prefixItems": []any{jsonObject{"type": "string", "minLength": 1, "pattern": noNUL}}, "items": jsonObject{"type": "string", "pattern": noNUL}, "minItems": 1},
		"env": {
			"propertyNames":        jsonObject{"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": jsonObject{"enum": set}},
			"additionalProperties": jsonObject{"type": []any{"string", "null"}, "pattern": noNUL},
		},
		"secrets": {
			"propertyNames":        jsonObject{"pattern": "^[A-Za-z_][A-Za-z0-9_]*$", "not": jsonObject{"anyOf": []any{jsonObject{"enum": set}, jsonObject{"pattern": "^REGROUP_"}}}},
			"additionalProperties": jsonObject{"type": "string", "pattern": `^(file:/[^\x00]*|env:[A-Za-z_][A-Za-z0-9_]*)$`},
		},
		"processes.limits.cpus": {"minimum": minCPUs, "maximum": maxCPUs},
	}
}

// jobSchema returns the JSON Schema of a job. Null counts as absent, as in the job
// file, but for an object that may be empty.
func jobSchema(t *testing.T) []byte {
	t.Helper()
	words := descriptions(t)
	var section func(of reflect.Type, prefix string) jsonObject
	section = func(of reflect.Type, prefix string) jsonObject {
		properties, required := jsonObject{}, []any{}
		for i := range of.NumField() {
			f := of.Field(i)
			name := JSONName(f)
			path := JoinPath(prefix, name)
			var s jsonObject
			if n := slices.IndexFunc(rules, func(r rule) bool { return r.path == path }); n >= 0 {
				s = rules[n].schema()
				s["description"] = rules[n].describe(t, words)
			} else if f.Type.Kind() == reflect.Pointer {
				s = section(f.Type.Elem(), path)
			} else {
				s = section(f.Type, path)
			}
			for keyword, value := range coded()[path] {
				s[keyword] = value
			}
			if f.Tag.Get("required") == "true" {
				required = append(required, name)
			} else if f.Tag.Get("null") == "" {
				s["type"] = []any{s["type"], "null"}
				if values, ok := s["enum"].([]any); ok {
					s["enum"] = append(values, nil)
				}
			}
			properties[name] = s
		}
		s := jsonObject{"type": "object", "properties": properties, "additionalProperties": false}
		if len(required) > 0 {
			s["required"] = required
		}
		return s
	}
	s := section(reflect.TypeFor[Job](), "")
	s["$schema"], s["title"] = "https://json-schema.org/draft/2020-12/schema", "Regroup job file"
	s["anyOf"] = coded()[""]["anyOf"]
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(s); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// schema returns the JSON Schema of a field.
func (r *rule) schema() jsonObject {
	s := jsonObject{}
	if r.defaultText != "" {
		s["default"] = r.defaultText
	}
	switch k := r.kind.Kind(); {
	case r.kind == durationType:
		s["type"], s["pattern"] = "string", spanNotZero
		if !r.defaultValue.IsValid() {
			s["pattern"] = span
		}
	case r.kind == reflect.TypeFor[Bytes]():
		s["type"], s["pattern"] = "string", bytesPattern.String()
	case k == reflect.Float64:
		s["type"] = "number"
	case k == reflect.String:
		s["type"] = "string"
		for _, word := range r.enum {
			values, _ := s["enum"].([]any)
			s["enum"] = append(values, word)
		}
		if r.pattern != nil {
			s["pattern"] = r.pattern.String()
		}
	case k == reflect.Slice:
		s["type"], s["items"] = "array", jsonObject{"type": "string"}
	case k == reflect.Map:
		s["type"], s["additionalProperties"] = "object", jsonObject{"type": []any{"string", "null"}}
	case k == reflect.Bool:
		s["type"] = "boolean"
	default:
		s["type"] = "integer"
		if r.defaultValue.IsValid() {
			s["default"] = r.defaultValue.Interface()
		}
		if r.min != math.MinInt64 {
			s["minimum"] = r.min
		} else if k == reflect.Uint64 {
			s["minimum"] = 0
		}
		if r.max != math.MaxInt64 {
			s["maximum"] = r.max
		}
	}
	return s
}
