package spec

import (
	"encoding/json"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"
)

func TestParseSpecNamesFieldsNotImplementedYet(t *testing.T) {
	for _, field := range laterFields {
		outer, inner, nested := strings.Cut(field, ".")
		doc := map[string]any{"name": "a", "command": []string{"x"}, "workers": map[string]any{"min": 1, "max": 1}}
		if nested {
			m, _ := doc[outer].(map[string]any)
			if m == nil {
				m = map[string]any{}
			}
			m[inner] = 1
			doc[outer] = m
		} else {
			doc[outer] = map[string]any{"x": 1}
		}
		b, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		if _, bad := Parse(b); len(bad) != 1 || bad[0].Path != field || !strings.Contains(bad[0].Message, "not built yet in this version") {
			t.Errorf("%s: %v", b, bad)
		}
	}
}

// TestNullCountsAsAbsent, also of a number that is written as text.
func TestNullCountsAsAbsent(t *testing.T) {
	type body struct {
		N uint64 `json:"n,string"`
		P *[]int `json:"p"`
	}
	for text, want := range map[string]int{`{"n":null,"p":null}`: 0, `{"n":"7","p":[1,null]}`: 0, `{"n":{"x":[1]},"p":["x"]}`: 2} {
		if bad := CheckShape([]byte(text), reflect.TypeFor[body](), ""); len(bad) != want {
			t.Errorf("%s: %v, want %d errors", text, bad, want)
		}
	}
}

// across matches the errors of rules about several fields, which the schema does not have.
var across = regexp.MustCompile(`^is [1-9]\d*, must be at least (workers|rendezvous)\.|workers on each|: leave workers out$|no Python interpreter|has an effect with processes.spares alone|^is in env too: |must be a multiple of elastic|follows from the nodes of the rendezvous|^is given, |^is "(any|None|2)": `)

// values returns legal and illegal values of a field.
func (r *rule) values() (legal, illegal []any) {
	switch k := r.kind.Kind(); {
	case r.path == "name":
		return []any{"a", "cifar-10"}, []any{"", "A", "-a", "a-", "a b", strings.Repeat("a", maxJobName+1), 7, true, []any{"a"}}
	case r.path == "command":
		return []any{[]any{"python", "train.py", ""}}, []any{[]any{}, []any{""}, []any{"x", 7}, []any{"x", nil}, []any{"x\x00"}, []any{"x", "\x00"}, "x", jsonObject{}}
	case r.path == "processes.preload":
		return []any{[]any{}, []any{"a", "torchvision.transforms"}}, []any{[]any{""}, []any{"a b"}, []any{"a."}, []any{1}, "a"}
	case r.path == "env":
		return []any{jsonObject{}, jsonObject{"A_1": "x", "b": nil}}, []any{jsonObject{"1A": "x"}, jsonObject{"RANK": "0"}, jsonObject{"A": 1}, jsonObject{"A": "\x00"}, []any{"A"}, "A=1"}
	case r.path == "secrets":
		return []any{jsonObject{}, jsonObject{"A_1": "file:/a", "b": "env:B"}}, []any{jsonObject{"A": "x"}, jsonObject{"A": "file:a"}, jsonObject{"RANK": "env:A"}, jsonObject{"A": nil}, "A"}
	case r.path == "processes.user":
		return []any{"alice", "alice:users", "1000:1000", "a.b-c_1"}, []any{"", "a b", "alice:", ":users", "a:b:c", "-a", "../a", "\x1b[2J", 7}[1:]
	case r.path == "processes.limits.memory", r.path == "processes.limits.shm":
		return []any{"24GiB", "800MiB", "1", "999999TiB", "0"}, []any{"", "24 GiB", "24GB", "-1", "1.5GiB", "9999999TiB", 7, "\x1b[2J"}
	case r.path == "processes.limits.cpus":
		return []any{2, 0.5, minCPUs, maxCPUs}, []any{0.001, -1, maxCPUs + 1, "2", true}
	case r.path == "gpu.model":
		return []any{"H100", "A100 80GB", "NVIDIA A100-SXM4-40GB MIG 3g.20gb", "L4"}, []any{" ", "H100:8", "\x1b[2J", strings.Repeat("a", 101), 7}
	case r.path == "gpu.memory":
		return []any{"80GB", "80GiB", "81559MiB"}, []any{"0GB", "80", "80G", "80 GB", "1.5GB", "80gb", "99999999MiB", 80}
	case r.pattern != nil: // workdir
		return []any{"/srv/cifar"}, []any{"srv", 7, []any{}}
	case r.enum != nil:
		for _, word := range r.enum {
			legal = append(legal, word)
		}
		return legal, []any{"else", strings.ToLower(r.enum[0]) + "x", 7, jsonObject{}}
	case r.kind == durationType:
		for _, text := range []string{"1h", "10s", "1h30m", "11.5s", "+20s", "60000ms", "1ms", ".5s", "0h1m", Duration(r.min).D().String()} {
			var d Duration
			if err := d.UnmarshalText([]byte(text)); err == nil && int64(d) >= r.min && int64(d) <= r.max { // the schema has no bounds of durations
				legal = append(legal, text)
			}
		}
		illegal = []any{"", "soon", "-1m", "30", "5 s", "1..5s", 30, false, jsonObject{}}
		if r.defaultValue.IsValid() {
			return legal, append(illegal, "0s", "0", "0m0.0s")
		}
		return append(legal, "0s", "0"), illegal
	case k == reflect.Slice:
		return []any{[]any{}, []any{"a", ""}}, []any{[]any{1}, []any{nil}, "a"}
	case k == reflect.Map:
		return []any{jsonObject{}, jsonObject{"a": "b", "c": nil}}, []any{jsonObject{"a": 1}, []any{}, "a"}
	case k == reflect.String:
		return []any{"x"}, []any{7}
	case k == reflect.Bool:
		return []any{true, false}, []any{"true", 1}
	default:
		legal, illegal = []any{7}, []any{1.5, "1", true, []any{1}, jsonObject{}}
		if r.min != math.MinInt64 {
			legal, illegal = append(legal, r.min), append(illegal, min(r.min-1, -1)) // 0 may count as absent
		}
		if r.max != math.MaxInt64 {
			legal, illegal = append(legal, r.max), append(illegal, r.max+1)
		}
		if k == reflect.Uint64 {
			illegal = append(illegal, -1)
		}
		return legal, illegal
	}
}

// set sets the field in a document.
func (r *rule) set(doc jsonObject, value any) {
	names := strings.Split(r.path, ".")
	for _, name := range names[:len(names)-1] {
		if _, ok := doc[name].(jsonObject); !ok {
			doc[name] = jsonObject{}
		}
		doc = doc[name].(jsonObject)
	}
	doc[names[len(names)-1]] = value
}

// agree compares what Parse and the schema find in a document; want is the path of an
// error that both have, or empty.
func agree(t rapid.TB, schema *jsonschema.Schema, doc jsonObject, want string) {
	t.Helper()
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	refused := schema.Validate(instance)
	var bad []FieldError
	_, all := Parse(text)
	for _, f := range all {
		if !across.MatchString(f.Message) {
			bad = append(bad, f)
		}
	}
	if (refused != nil) != (len(bad) > 0) {
		t.Fatalf("%s\nParse finds %v\nthe schema %v", text, all, refused)
	}
	if want != "" && !slices.ContainsFunc(bad, func(f FieldError) bool { return strings.HasPrefix(f.Path, want) }) {
		t.Errorf("%s\nParse finds %v, want an error of %s", text, all, want)
	}
}

// smallest returns a document with the required fields.
func smallest(selfRegistered bool) jsonObject {
	doc := jsonObject{"name": "a", "command": []any{"x"}, "workers": jsonObject{"min": 1, "max": 100_000}}
	if selfRegistered {
		delete(doc, "workers")
		doc["rendezvous"] = jsonObject{"nodes": jsonObject{"min": 1, "max": 8}}
	}
	return doc
}

// TestSchemaAgreesWithParse validates documents against docs/job.schema.json with a library: Parse
// refuses the same ones, except for rules about several fields.
func TestSchemaAgreesWithParse(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(string(jobSchema(t))))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("job.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("job.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for i := range rules {
		r := &rules[i]
		legal, illegal := r.values()
		selfRegistered := strings.HasPrefix(r.path, "rendezvous.")
		try := func(value any, want string) {
			doc := smallest(selfRegistered)
			r.set(doc, value)
			agree(t, schema, doc, want)
		}
		for _, v := range legal {
			try(v, "")
		}
		for _, v := range illegal {
			try(v, r.path)
		}
		if !r.required {
			try(nil, "")
		}
		if section, _, nested := strings.Cut(r.path, "."); nested {
			for _, v := range []any{nil, 7, "x", []any{}, jsonObject{}, jsonObject{"unknown": 1}} {
				doc := smallest(selfRegistered)
				doc[section] = v
				agree(t, schema, doc, "")
			}
		}
	}
	for _, field := range append([]string{"unknown", "stop.unknown", "rendezvous.nodes.unknown"}, laterFields...) {
		doc := smallest(strings.HasPrefix(field, "rendezvous."))
		(&rule{path: field}).set(doc, "x")
		agree(t, schema, doc, field)
	}
	rapid.Check(t, func(t *rapid.T) {
		doc := smallest(rapid.Bool().Draw(t, "self-registered"))
		for i := range rules {
			r := &rules[i]
			if _, has := doc["rendezvous"]; !has && strings.HasPrefix(r.path, "rendezvous.") {
				continue
			}
			legal, illegal := r.values()
			switch draw := rapid.IntRange(0, 99).Draw(t, r.path); {
			case draw < 60: // absent or as in the smallest document
			case draw < 95:
				r.set(doc, rapid.SampledFrom(legal).Draw(t, "legal"))
			case draw < 98:
				r.set(doc, rapid.SampledFrom(illegal).Draw(t, "illegal"))
			case !r.required:
				r.set(doc, nil)
			}
		}
		agree(t, schema, doc, "")
	})
}
