package events

import (
	"reflect"
	"strconv"
	"sync"

	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// bounder applies the limits to one value in place: texts are shortened, everything else is refused.
type bounder func(v reflect.Value, path string, bad *[]spec.FieldError)

// bounders are the bounders of types, made once; nil = there is nothing to bound.
var bounders sync.Map // reflect.Type -> bounder

// bound applies the limits to a body that was just decoded. Fields say with the tag bound which limit is theirs: word, lines, names
// or slots; a plain string without one is a text, and any other string a word.
func bound(v reflect.Value, path string) []spec.FieldError {
	var bad []spec.FieldError
	if b := bounderOf(v.Type()); b != nil {
		b(v, path, &bad)
	}
	return bad
}

func bounderOf(t reflect.Type) bounder {
	if b, ok := bounders.Load(t); ok {
		return b.(bounder)
	}
	b := makeBounder(t, "")
	bounders.Store(t, b)
	return b
}

var bySelf = []reflect.Type{
	reflect.TypeFor[spec.Job](),                                                               // it is checked as a whole, and refused
	reflect.TypeFor[Places](), reflect.TypeFor[MemberTable](), reflect.TypeFor[WorkerTable](), // these bound themselves while they are read
}

func makeBounder(t reflect.Type, tag string) bounder {
	for _, own := range bySelf {
		if t == own {
			return nil
		}
	}
	switch t.Kind() {
	case reflect.String:
		if t == reflect.TypeFor[string]() && tag == "" {
			return func(v reflect.Value, _ string, _ *[]spec.FieldError) {
				if v.Len() > limits.Text.Max {
					v.SetString(limits.Shorten(v.String(), limits.Text.Max))
				}
			}
		}
		return func(v reflect.Value, path string, bad *[]spec.FieldError) {
			refuseOver(limits.Word, path, v.Len(), bad)
		}
	case reflect.Int, reflect.Int64:
		if tag == "slots" || t == reflect.TypeFor[Slot]() {
			return func(v reflect.Value, path string, bad *[]spec.FieldError) {
				refuseOver(limits.Slots, path, int(v.Int()), bad)
			}
		}
	case reflect.Pointer:
		if inner := makeBounder(t.Elem(), tag); inner != nil {
			return func(v reflect.Value, path string, bad *[]spec.FieldError) {
				if !v.IsNil() {
					inner(v.Elem(), path, bad)
				}
			}
		}
	case reflect.Slice, reflect.Array:
		return listBounder(t, tag)
	case reflect.Map:
		return mapBounder(t, tag)
	case reflect.Struct:
		return structBounder(t)
	}
	return nil
}

func listBounder(t reflect.Type, tag string) bounder {
	if tag == "lines" {
		return func(v reflect.Value, _ string, _ *[]spec.FieldError) {
			lines := v.Interface().([]string)
			if len(lines) > 0 {
				v.Set(reflect.ValueOf(limits.ShortenLines(lines)))
			}
		}
	}
	limit := limits.Entries
	if tag == "epochs" {
		limit = limits.Epochs
	}
	inner := makeBounder(t.Elem(), "")
	return func(v reflect.Value, path string, bad *[]spec.FieldError) {
		if refuseOver(limit, path, v.Len(), bad) || inner == nil {
			return
		}
		for i := range v.Len() {
			inner(v.Index(i), path+"["+strconv.Itoa(i)+"]", bad)
		}
	}
}

func mapBounder(t reflect.Type, tag string) bounder {
	limit := limits.Entries
	if tag == "names" {
		limit = limits.Names
	}
	inner := makeBounder(t.Elem(), "")
	return func(v reflect.Value, path string, bad *[]spec.FieldError) {
		if refuseOver(limit, path, v.Len(), bad) {
			return
		}
		for it := v.MapRange(); it.Next(); {
			if k := it.Key(); k.Kind() == reflect.String && refuseOver(limits.Word, path, k.Len(), bad) {
				return
			}
			if inner != nil {
				e := reflect.New(t.Elem()).Elem() // what is in a map cannot be changed in place
				e.Set(it.Value())
				inner(e, path, bad)
				v.SetMapIndex(it.Key(), e)
			}
		}
	}
}

func structBounder(t reflect.Type) bounder {
	type field struct {
		index int
		name  string
		bound bounder
	}
	var fields []field
	for i := range t.NumField() {
		f := t.Field(i)
		name := spec.JSONName(f)
		if name == "-" || !f.IsExported() {
			continue
		}
		if b := makeBounder(f.Type, f.Tag.Get("bound")); b != nil {
			fields = append(fields, field{i, name, b})
		}
	}
	if len(fields) == 0 {
		return nil
	}
	return func(v reflect.Value, path string, bad *[]spec.FieldError) {
		for _, f := range fields {
			at := path
			if f.name != "" {
				at = spec.JoinPath(path, f.name)
			}
			f.bound(v.Field(f.index), at, bad)
		}
	}
}

// refuseOver adds the refusal, if there is one.
func refuseOver(l limits.Limit, path string, have int, bad *[]spec.FieldError) bool {
	f := spec.CheckLimit(path, have, l)
	if f != nil {
		*bad = append(*bad, *f)
	}
	return f != nil
}

// Nesting tells how many lists and objects are inside each other in a JSON text.
func Nesting(data []byte) (deepest int) {
	depth, text := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case text && c == '\\':
			i++
		case c == '"':
			text = !text
		case text:
		case c == '{' || c == '[':
			depth++
			deepest = max(deepest, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return deepest
}
