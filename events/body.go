package events

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spec"
)

// EncodeBody writes a request, reply or signal: plain JSON.
func EncodeBody(b Body) ([]byte, error) {
	out, err := json.Marshal(b)
	if err != nil {
		return nil, Errorf(Internal, "encode %s: %w", b.Type(), err)
	}
	return out, nil
}

// DecodeBody reads what EncodeBody wrote. Fields it does not know are ignored, so that a newer peer may add some;
// anything else that does not fit is Invalid with every finding.
func DecodeBody[B Body](data []byte) (B, error) {
	var b B
	body, bad := DecodeBodyAs(b, data, "")
	if len(bad) > 0 {
		return b, Refuse(bad)
	}
	return body.(B), nil
}

// DecodeBodyAs reads JSON into a new value of zero's type; prefix begins the findings' paths.
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
	// The quick way first: only what it refuses is walked again for every finding.
	if err := json.Unmarshal(data, v.Interface()); err != nil || !utf8.Valid(data) {
		bad := spec.CheckShape(data, v.Type().Elem(), prefix)
		var ours *Error
		if len(bad) == 0 && errors.As(err, &ours) { // of a list that reads itself
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

// checkIDs looks at the ids that clients write into commands.
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

// decodeSubmit reads a job.submit strictly: a spec with a field that would be ignored is refused with every finding.
// Paths inside the spec are those of the user's file.
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

// ReadLimited reads everything, unless it is more than most bytes.
func ReadLimited(r io.Reader, most int) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(data) > most {
		return nil, Errorf(TooLarge, "unpacks to more than %d bytes", most)
	}
	return data, err
}
