package bodies

import (
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// bounder applies the limits to one value in place: texts are shortened, other excesses refused.
type bounder func(v reflect.Value, path string, bad *[]spec.FieldError)

// bounders caches the bounders of types; nil = there is nothing to bound.
var bounders sync.Map // reflect.Type -> bounder

// bound applies the limits to a body that was just decoded. The tag bound selects a field's limit:
// word, lines, names or slots; a plain string without a tag is a text, and any other string a word.
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
	reflect.TypeFor[spec.Job](), // checked as a whole, and refused
	// These check their limits while decoding.
	reflect.TypeFor[ident.Places](), reflect.TypeFor[tables.MemberTable](), reflect.TypeFor[tables.WorkerTable](),
}

func makeBounder(t reflect.Type, tag string) bounder {
	if slices.Contains(bySelf, t) {
		return nil
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
		if tag == "slots" || t == reflect.TypeFor[ident.Slot]() {
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
				e := reflect.New(t.Elem()).Elem() // values in a map cannot be changed in place
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

func refuseOver(l limits.Limit, path string, have int, bad *[]spec.FieldError) bool {
	f := spec.CheckLimit(path, have, l)
	if f != nil {
		*bad = append(*bad, *f)
	}
	return f != nil
}
