package events

import (
	"cmp"
	"encoding/json"
	"errors"
	"reflect"
	"unicode/utf8"
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
	body, bad := decodeData(b, data, "")
	if len(bad) > 0 {
		return b, Refuse(bad)
	}
	return body.(B), nil
}

// decodeData reads JSON into a new value of zero's type; prefix begins the findings' paths.
func decodeData(zero Body, data []byte, prefix string) (Body, []Finding) {
	if len(data) == 0 || string(data) == "null" {
		return nil, []Finding{{Path: prefix, Message: "has no data: send a JSON object"}}
	}
	if f := cmp.Or(LimitUnpacked.Over(prefix, len(data)), LimitDepth.Over(prefix, nested(data))); f != nil {
		return nil, []Finding{*f}
	}
	if _, ok := zero.(JobSubmit); ok {
		return decodeSubmit(data, prefix)
	}
	v := reflect.New(reflect.TypeOf(zero))
	// The quick way first: only what it refuses is walked again for every finding.
	if err := json.Unmarshal(data, v.Interface()); err != nil || !utf8.Valid(data) {
		bad := shapeOf(data, v.Type().Elem(), prefix)
		var ours *Error
		if len(bad) == 0 && errors.As(err, &ours) { // of a list that reads itself
			bad = []Finding{{Path: prefix, Message: ours.Text}}
		} else if len(bad) == 0 {
			bad = []Finding{{Path: prefix, Message: "does not fit " + string(zero.Type())}}
		}
		return nil, bad
	}
	bad := bound(v.Elem(), prefix)
	body := v.Elem().Interface().(Body)
	return body, append(checkIDs(body, prefix), bad...)
}

// checkIDs looks at the ids that clients write into commands.
func checkIDs(b Body, prefix string) []Finding {
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
	return []Finding{{Path: join(prefix, path), Message: err.Error()}}
}

// decodeSubmit reads a job.submit strictly: a spec with a field that would be ignored is refused with every finding.
// Paths inside the spec are those of the user's file.
func decodeSubmit(data []byte, prefix string) (Body, []Finding) {
	var raw struct {
		Spec json.RawMessage `json:"spec"`
	}
	if f := syntax(data); f != nil {
		f.Path = prefix
		return nil, []Finding{*f}
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return nil, []Finding{{Path: prefix, Message: `must be an object with the field "spec"`}}
	}
	if len(raw.Spec) == 0 || string(raw.Spec) == "null" {
		return nil, []Finding{{Path: join(prefix, "spec"), Message: "is missing: what should run?"}}
	}
	s, bad := ParseSpec(raw.Spec)
	if len(bad) > 0 {
		return nil, bad
	}
	return JobSubmit{Spec: s}, nil
}
