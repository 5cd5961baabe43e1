package events

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// EncodeBody encodes a request, reply or signal as plain JSON.
func EncodeBody(b Body) ([]byte, error) {
	out, err := json.Marshal(b)
	if err != nil {
		return nil, Errorf(Internal, "encode %s: %w", b.Type(), err)
	}
	return out, nil
}

// DecodeBody decodes what EncodeBody encodes. Unknown fields are ignored, so that a newer peer may
// add some; any other mismatch is Invalid with all errors.
func DecodeBody[B Body](data []byte) (B, error) {
	var b B
	body, bad := DecodeBodyAs(b, data, "")
	if len(bad) > 0 {
		return b, Refuse(bad)
	}
	return body.(B), nil
}

// DecodeBodyAs decodes JSON into a new value of zero's type; prefix begins the paths of errors.
func DecodeBodyAs(zero Body, data []byte, prefix string) (Body, []spec.FieldError) {
	if len(data) == 0 || string(data) == "null" {
		return nil, []spec.FieldError{{Path: prefix, Message: "has no data: send a JSON object"}}
	}
	if f := cmp.Or(spec.CheckLimit(prefix, len(data), limits.Unpacked), spec.CheckLimit(prefix, Nesting(data), limits.Depth)); f != nil {
		return nil, []spec.FieldError{*f}
	}
	if _, ok := zero.(JobSubmit); ok {
		return decodeSubmit(data, prefix)
	}
	v := reflect.New(reflect.TypeOf(zero))
	// Try the fast decoder first: only what it refuses is walked again to collect all errors.
	if err := json.Unmarshal(data, v.Interface()); err != nil || !utf8.Valid(data) {
		bad := spec.CheckShape(data, v.Type().Elem(), prefix)
		var ours *Error
		if len(bad) == 0 && errors.As(err, &ours) { // from a list with its own decoder
			bad = []spec.FieldError{{Path: prefix, Message: ours.Text}}
		} else if len(bad) == 0 {
			bad = []spec.FieldError{{Path: prefix, Message: "does not fit " + string(zero.Type())}}
		}
		return nil, bad
	}
	bad := bound(v.Elem(), prefix)
	body := v.Elem().Interface().(Body)
	return body, append(checkIDs(body, prefix), bad...)
}

// checkIDs checks the ids that clients write into commands.
func checkIDs(b Body, prefix string) []spec.FieldError {
	path, err := "", error(nil)
	switch b := b.(type) {
	case JobScale:
		path, err = "job", b.Job.Check()
	case JobStop:
		path, err = "job", b.Job.Check()
	case NodeDrain:
		path, err = "node", b.Node.Check()
	case NodeQuarantine:
		path, err = "node", b.Node.Check()
	case NodeRelease:
		path, err = "node", b.Node.Check()
	}
	if err == nil {
		return nil
	}
	return []spec.FieldError{{Path: spec.JoinPath(prefix, path), Message: err.Error()}}
}

// decodeSubmit decodes a job.submit strictly: a spec with a field that would be ignored is refused
// with all errors. Paths inside the spec are those of the user's file.
func decodeSubmit(data []byte, prefix string) (Body, []spec.FieldError) {
	var raw struct {
		Spec json.RawMessage `json:"spec"`
	}
	if f := spec.CheckSyntax(data); f != nil {
		f.Path = prefix
		return nil, []spec.FieldError{*f}
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, []spec.FieldError{{Path: prefix, Message: `must be an object with the field "spec"`}}
	}
	if len(raw.Spec) == 0 || string(raw.Spec) == "null" {
		return nil, []spec.FieldError{{Path: spec.JoinPath(prefix, "spec"), Message: "is missing: what should run?"}}
	}
	s, bad := spec.Parse(raw.Spec)
	if len(bad) > 0 {
		return nil, bad
	}
	return JobSubmit{Spec: s}, nil
}

// ReadLimited reads everything, or fails if it is more than most bytes.
func ReadLimited(r io.Reader, most int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(data) > most {
		return nil, Errorf(TooLarge, "unpacks to more than %d bytes", most)
	}
	return data, err
}

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
	reflect.TypeFor[Places](), reflect.TypeFor[MemberTable](), reflect.TypeFor[WorkerTable](),
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

// Nesting returns the nesting depth of a JSON text.
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
