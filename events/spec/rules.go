package spec

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/regroup-io/regroup/events/limits"
)

// rule is what is legal in one field of Job that is not itself an object with fields. It is
// declared by the field's tags:
//
//	required  its zero value is checked, it does not count as absent
//	default   replaces the zero value
//	min, max  bounds of a number or a duration; max may be the name of a limit
//	enum      the legal texts, separated by spaces
//	pattern   regular expression that a text matches
//	error     message about an illegal value, instead of the generated one
//	null      of an object that may be empty: message about null, which elsewhere counts as absent
//
// The minimum of a duration is 1ns. A zero value of a field that is neither required nor has a
// default counts as absent.
type rule struct {
	path         string       // names with dots, as in errors
	index        []int        // of the field in Job
	kind         reflect.Type // of the field, without a pointer
	required     bool
	defaultText  string
	defaultValue reflect.Value // invalid = none
	min, max     int64
	limit        limits.Limit // that max is; without a name = none
	enum         []string
	pattern      *regexp.Regexp
	message      string
}

var durationType = reflect.TypeFor[Duration]()

// rules are those of all fields of Job, in their order.
var rules = rulesOf(reflect.TypeFor[Job](), "", nil)

func rulesOf(t reflect.Type, prefix string, index []int) (all []rule) {
	for i := range t.NumField() {
		f := t.Field(i)
		r := rule{path: JoinPath(prefix, JSONName(f)), index: append(slices.Clone(index), i), kind: f.Type}
		if r.kind.Kind() == reflect.Pointer {
			r.kind = r.kind.Elem()
		}
		if r.kind.Kind() == reflect.Struct {
			all = append(all, rulesOf(r.kind, r.path, r.index)...)
			continue
		}
		r.parse(f.Tag)
		all = append(all, r)
	}
	return all
}

// parse panics if a tag is no value of the field's type.
func (r *rule) parse(tag reflect.StructTag) {
	r.required, r.message, r.min, r.max = tag.Get("required") == "true", tag.Get("error"), math.MinInt64, math.MaxInt64
	if r.defaultText = tag.Get("default"); r.defaultText != "" {
		r.defaultValue = r.decode(r.defaultText)
	}
	if r.kind == durationType {
		r.min = 1
	}
	if text := tag.Get("min"); text != "" {
		r.min = number(r.decode(text))
	}
	if text := tag.Get("max"); text != "" {
		if i := slices.IndexFunc(limits.All(), func(l limits.Limit) bool { return l.Name == text }); i >= 0 {
			r.limit = limits.All()[i]
			r.max = int64(r.limit.Max)
		} else {
			r.max = number(r.decode(text))
		}
	}
	if text := tag.Get("enum"); text != "" {
		r.enum = strings.Fields(text)
	}
	if text := tag.Get("pattern"); text != "" {
		r.pattern = regexp.MustCompile(text)
	}
}

func (r *rule) decode(text string) reflect.Value {
	v := reflect.New(r.kind)
	if r.kind.Kind() == reflect.String || r.kind == durationType {
		text = strconv.Quote(text)
	}
	if err := json.Unmarshal([]byte(text), v.Interface()); err != nil {
		panic(fmt.Sprintf("a tag of %s: %v", r.path, err))
	}
	return v.Elem()
}

// number returns the value of a number or a duration.
func number(v reflect.Value) int64 {
	if v.CanUint() {
		return int64(min(v.Uint(), math.MaxInt64))
	}
	return v.Int()
}

// value returns the field in a job; it is invalid in a section that the job does not have.
func (r *rule) value(s *Job) reflect.Value {
	v, err := reflect.ValueOf(s).Elem().FieldByIndexErr(r.index)
	if err != nil {
		return reflect.Value{}
	}
	return v
}

// fill replaces a zero value with the default.
func (r *rule) fill(s *Job) {
	v := r.value(s)
	if !r.defaultValue.IsValid() || !v.IsValid() || !v.IsZero() {
		return
	}
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(r.kind))
		v = v.Elem()
	}
	v.Set(r.defaultValue)
}

// check appends the error of the field, if it has one.
func (r *rule) check(s *Job, bad []FieldError) []FieldError {
	v := r.value(s)
	if !v.IsValid() || v.IsZero() && (v.Kind() == reflect.Pointer || !r.required && !r.defaultValue.IsValid()) {
		return bad
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	refuse := func(format string, args ...any) []FieldError {
		return append(bad, FieldError{Path: r.path, Message: fmt.Sprintf(format, args...)})
	}
	switch {
	case r.enum != nil && !slices.Contains(r.enum, v.String()):
		if r.message != "" {
			return refuse("%q %s", v, r.message)
		}
		bad = refuse("%q is not one of %s", v, strings.Join(r.enum, ", "))
		bad[len(bad)-1].Hint = DidYouMean(v.String(), r.enum)
	case r.pattern != nil && !r.pattern.MatchString(v.String()):
		return refuse("%q %s", v, cmp.Or(r.message, "does not match "+r.pattern.String()))
	case !v.CanInt() && !v.CanUint():
	case number(v) > r.max && r.limit.Name != "":
		return refuse("is %s, at most %d are allowed (limit %s)", show(v), r.max, r.limit.Name)
	case number(v) < r.min || number(v) > r.max:
		return refuse("is %s, %s", show(v), cmp.Or(r.message, "must be "+r.span()))
	}
	return bad
}

// span describes the bounds: "at least 1".
func (r *rule) span() string {
	least, most := r.min != math.MinInt64, r.max != math.MaxInt64
	text := func(n int64) string { return show(reflect.ValueOf(n).Convert(r.kind)) }
	switch {
	case r.kind == durationType && r.min == 1 && most:
		return "more than 0 and at most " + text(r.max)
	case r.kind == durationType && r.min == 1:
		return "more than 0: write 500ms, 30s or 1h"
	case least && most:
		return text(r.min) + " to " + text(r.max)
	case least:
		return "at least " + text(r.min)
	case most:
		return "at most " + text(r.max)
	}
	return ""
}

// Default returns the default of the field at a path as text, or "" if there is none.
func Default(path string) string {
	i := slices.IndexFunc(rules, func(r rule) bool { return r.path == path })
	if i < 0 {
		return ""
	}
	return rules[i].defaultText
}

// CheckUser returns the error of a value of processes.user, or nil; an empty one has none.
func CheckUser(user string) *FieldError {
	const path = "processes.user"
	i := slices.IndexFunc(rules, func(r rule) bool { return r.path == path })
	if bad := rules[i].check(&Job{Processes: Processes{User: user}}, nil); len(bad) > 0 {
		return &bad[0]
	}
	return nil
}

// RunAs makes the workers run as a user, unless it is empty. It returns an error if the spec names
// another one; by is whose jobs run as that user.
func (s *Job) RunAs(user, by string) *FieldError {
	if named := s.Processes.User; user != "" && named != "" && named != user {
		return &FieldError{Path: "processes.user", Message: fmt.Sprintf("is %q: jobs of %s run as %s, leave it out", named, by, user)}
	}
	s.Processes.User = cmp.Or(user, s.Processes.User)
	return nil
}

// JSONName returns the name of a field in JSON; empty = its fields belong to the enclosing object.
func JSONName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "" && !f.Anonymous {
		return f.Name
	}
	return name
}
