package spec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// shape walks a JSON text along a Go type and collects all mismatches; the decoder of the standard
// library stops at the first one.
type shape struct {
	strict bool // unknown fields are errors
	bad    []FieldError
}

type object struct {
	keys []string
	vals map[string]any
	dups []string
}

// CheckSyntax returns the JSON syntax error of b, with line and column, or nil.
func CheckSyntax(b []byte) *FieldError {
	if !utf8.Valid(b) {
		return &FieldError{Message: "is not valid UTF-8"}
	}
	var raw json.RawMessage
	err := json.Unmarshal(b, &raw)
	if err == nil {
		return nil
	}
	f := &FieldError{Message: err.Error()}
	var se *json.SyntaxError
	if errors.As(err, &se) {
		before := b[:max(0, min(int(se.Offset)-1, len(b)))]
		f.Line = bytes.Count(before, []byte("\n")) + 1
		f.Column = utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	}
	return f
}

// CheckShape returns all mismatches of b with t, except unknown fields.
func CheckShape(b []byte, t reflect.Type, prefix string) []FieldError {
	return (&shape{}).run(b, t, prefix)
}

func (s *shape) run(b []byte, t reflect.Type, prefix string) []FieldError {
	if f := CheckSyntax(b); f != nil {
		f.Path = prefix
		return []FieldError{*f}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	n, err := readNode(d)
	if err != nil && !errors.Is(err, io.EOF) {
		return []FieldError{{Path: prefix, Message: err.Error()}}
	}
	s.walk(prefix, n, t)
	return s.bad
}

// readNode decodes one value: nil, bool, string, json.Number, []any or *object (which records
// repeated keys).
func readNode(d *json.Decoder) (any, error) {
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('['):
		list := []any{}
		for d.More() {
			n, err := readNode(d)
			if err != nil {
				return nil, err
			}
			list = append(list, n)
		}
		_, err = d.Token()
		return list, err
	case json.Delim('{'):
		o := &object{vals: map[string]any{}}
		for d.More() {
			k, err := d.Token()
			if err != nil {
				return nil, err
			}
			n, err := readNode(d)
			if err != nil {
				return nil, err
			}
			key := k.(string)
			if _, twice := o.vals[key]; twice {
				o.dups = append(o.dups, key)
			} else {
				o.keys = append(o.keys, key)
			}
			o.vals[key] = n
		}
		_, err = d.Token()
		return o, err
	}
	return t, nil
}

func (s *shape) add(path, message string) {
	s.bad = append(s.bad, FieldError{Path: path, Message: message})
}

func (s *shape) walk(path string, n any, t reflect.Type) {
	if n == nil {
		return // null counts as absent
	}
	if t.Kind() == reflect.Pointer {
		s.walk(path, n, t.Elem())
		return
	}
	if u, ok := reflect.New(t).Interface().(encoding.TextUnmarshaler); ok {
		text, isText := n.(string)
		if !isText {
			s.add(path, "must be text, got "+describe(n))
		} else if err := u.UnmarshalText([]byte(text)); err != nil {
			s.add(path, err.Error())
		} else if d, isDuration := u.(*Duration); isDuration && s.strict && (*d < 0 || *d == 0 && hasDefault(path)) {
			s.add(path, strconv.Quote(text)+" is not more than 0: write 500ms, 30s or 1h")
		}
		return
	}
	if _, ok := reflect.New(t).Interface().(json.Unmarshaler); ok && t.Kind() == reflect.Slice {
		return // it accepts forms that its type does not show
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		o, ok := n.(*object)
		if !ok {
			s.add(path, "must be an object, got "+describe(n))
			return
		}
		if t.Kind() == reflect.Map {
			s.walkMap(path, o, t)
		} else {
			s.walkStruct(path, o, t)
		}
	case reflect.Slice:
		list, ok := n.([]any)
		if !ok {
			s.add(path, "must be a list, got "+describe(n))
			return
		}
		for i, item := range list {
			if item == nil && s.strict {
				s.add(fmt.Sprintf("%s[%d]", path, i), "is null")
			}
			s.walk(fmt.Sprintf("%s[%d]", path, i), item, t.Elem())
		}
	default:
		s.scalar(path, n, t)
	}
}

func (s *shape) walkMap(path string, o *object, t reflect.Type) {
	for _, k := range o.keys {
		if t.Key().Kind() != reflect.String {
			if _, err := strconv.Atoi(k); err != nil {
				s.add(JoinPath(path, k), "the name must be a whole number")
			}
		}
		s.walk(JoinPath(path, k), o.vals[k], t.Elem())
	}
	s.repeated(path, o)
}

func (s *shape) repeated(path string, o *object) {
	for _, k := range o.dups {
		if s.strict {
			s.add(JoinPath(path, k), "is given twice")
		}
	}
}

func (s *shape) walkStruct(path string, o *object, t reflect.Type) {
	fields := map[string]reflect.StructField{}
	jsonFields(t, fields)
	for _, k := range o.keys {
		f, ok := fields[k]
		at := JoinPath(path, k)
		switch {
		case ok && strings.Contains(f.Tag.Get("json"), ",string"):
			s.walkQuoted(at, o.vals[k], f.Type)
		case ok:
			s.walk(at, o.vals[k], f.Type)
		case !s.strict:
		case slices.Contains(laterFields, at):
			s.add(at, "is not built yet in this version: leave it out")
		default:
			s.bad = append(s.bad, FieldError{Path: at, Message: "unknown field", Hint: DidYouMean(k, slices.Sorted(maps.Keys(fields)))})
		}
	}
	s.repeated(path, o)
}

func (s *shape) walkQuoted(path string, n any, t reflect.Type) {
	text, ok := n.(string)
	if !ok {
		s.add(path, "must be a number written as text, got "+describe(n))
		return
	}
	s.scalar(path, json.Number(text), t)
}

func (s *shape) scalar(path string, n any, t reflect.Type) {
	var want string
	var ok bool
	switch t.Kind() {
	case reflect.String:
		want = "text"
		_, ok = n.(string)
	case reflect.Bool:
		want = "true or false"
		_, ok = n.(bool)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		want = "a whole number"
		num, isNumber := n.(json.Number)
		_, err := strconv.ParseInt(string(num), 10, t.Bits())
		ok = isNumber && err == nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		want = "a whole number that is not negative"
		num, isNumber := n.(json.Number)
		_, err := strconv.ParseUint(string(num), 10, t.Bits())
		ok = isNumber && err == nil
	case reflect.Float64:
		want = "a number"
		num, isNumber := n.(json.Number)
		_, err := strconv.ParseFloat(string(num), 64)
		ok = isNumber && err == nil
	default:
		ok = true
	}
	if !ok {
		s.add(path, "must be "+want+", got "+describe(n))
	}
}

// jsonFields collects the JSON names of a struct, including those of embedded structs.
func jsonFields(t reflect.Type, into map[string]reflect.StructField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			jsonFields(f.Type, into)
		case name != "-" && name != "":
			into[name] = f
		}
	}
}

func describe(n any) string {
	switch n := n.(type) {
	case bool:
		return strconv.FormatBool(n)
	case string:
		if len(n) > 40 {
			return "a long text"
		}
		return "the text " + strconv.Quote(n)
	case json.Number:
		return string(n)
	case []any:
		return "a list"
	}
	return "an object"
}

// JoinPath appends a name to the path of a field.
func JoinPath(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}
