// Package bodies encodes and decodes the bodies of events, requests, replies and signals as JSON,
// and applies the limits to what it decodes.
package bodies

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// Encode encodes a request, reply or signal as plain JSON.
func Encode(b events.Body) ([]byte, error) {
	out, err := json.Marshal(b)
	if err != nil {
		return nil, errcode.Errorf(errcode.Internal, "encode %s: %w", b.Type(), err)
	}
	return out, nil
}

// Decode decodes what Encode encodes. Unknown fields are ignored, so that a newer peer may add
// some; any other mismatch is Invalid with all errors.
func Decode[B events.Body](data []byte) (B, error) {
	var b B
	body, bad := DecodeAs(b, data, "")
	if len(bad) > 0 {
		return b, errcode.Refuse(bad)
	}
	return body.(B), nil
}

// DecodeAs decodes JSON into a new value of zero's type; prefix begins the paths of errors.
func DecodeAs(zero events.Body, data []byte, prefix string) (events.Body, []spec.FieldError) {
	if len(data) == 0 || string(data) == "null" {
		return nil, []spec.FieldError{{Path: prefix, Message: "has no data: send a JSON object"}}
	}
	if f := cmp.Or(spec.CheckLimit(prefix, len(data), limits.Unpacked), spec.CheckLimit(prefix, limits.Nesting(data), limits.Depth)); f != nil {
		return nil, []spec.FieldError{*f}
	}
	if _, ok := zero.(events.JobSubmit); ok {
		return decodeSubmit(data, prefix)
	}
	v := reflect.New(reflect.TypeOf(zero))
	// Try the fast decoder first: only what it refuses is walked again to collect all errors.
	if err := json.Unmarshal(data, v.Interface()); err != nil || !utf8.Valid(data) {
		bad := spec.CheckShape(data, v.Type().Elem(), prefix)
		var ours *errcode.Error
		if len(bad) == 0 && errors.As(err, &ours) { // from a list with its own decoder
			bad = []spec.FieldError{{Path: prefix, Message: ours.Text}}
		} else if len(bad) == 0 {
			bad = []spec.FieldError{{Path: prefix, Message: "does not fit " + string(zero.Type())}}
		}
		return nil, bad
	}
	bad := bound(v.Elem(), prefix)
	body := v.Elem().Interface().(events.Body)
	return body, append(checkIDs(body, prefix), bad...)
}

// checkIDs checks the ids that clients write into commands.
func checkIDs(b events.Body, prefix string) []spec.FieldError {
	path, err := "", error(nil)
	switch b := b.(type) {
	case events.JobScale:
		path, err = "job", b.Job.Check()
	case events.JobStop:
		path, err = "job", b.Job.Check()
	case events.NodeDrain:
		path, err = "node", b.Node.Check()
	case events.NodeQuarantine:
		path, err = "node", b.Node.Check()
	case events.NodeRelease:
		path, err = "node", b.Node.Check()
	}
	if err == nil {
		return nil
	}
	return []spec.FieldError{{Path: spec.JoinPath(prefix, path), Message: err.Error()}}
}

// decodeSubmit decodes a job.submit strictly: a spec with a field that would be ignored is refused
// with all errors. Paths inside the spec are those of the user's file.
func decodeSubmit(data []byte, prefix string) (events.Body, []spec.FieldError) {
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
	return events.JobSubmit{Spec: s}, nil
}
