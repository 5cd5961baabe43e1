package cloudevent

import (
	"errors"
	"reflect"
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/spec"
)

// FuzzDecode: no input panics, a refusal has field errors, and what is accepted can be encoded in
// both modes.
func FuzzDecode(f *testing.F) {
	for _, row := range events.Catalog() {
		e := sampleEvent(f, row)
		b, err := Encode(e)
		if err != nil {
			f.Fatal(err)
		}
		s, err := EncodeStructured(e)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(true, "ce-extra", "a%20b", e.ID, string(row.Type), b.Data)
		f.Add(false, "", "", "", "", s.Data)
	}
	f.Add(true, "CE-ID", `"%`, "", "dev.regroup.job.stop.v1", []byte(`{"job":{}}`))
	f.Add(false, "Content-Type", "application/cloudevents", "", "", []byte(`{"id":1e999,"data":[]}`))
	f.Add(false, "", "", "", "", []byte(`{"specversion":"1.0","id":" 1","source":" ","subject":" a ","type":"dev.regroup.node.drain.v1","data":{"node":"0"}}`))
	f.Add(true, "", "", "1", "dev.regroup.job.submitted.v1", []byte(`{"spec":{"env":{},"command":[]}}`))
	f.Fuzz(func(t *testing.T, binary bool, name, value, id, typ string, data []byte) {
		h := map[string][]string{name: {value}}
		if binary {
			h["ce-specversion"], h["ce-source"], h["ce-subject"] = []string{"1.0"}, []string{"/x"}, []string{"x"}
			h["ce-id"], h["ce-type"] = []string{id}, []string{typ}
		}
		e, err := Decode(h, data)
		if err != nil {
			if c := errcode.Of(err); c != errcode.Invalid && c != errcode.TooLarge {
				t.Fatalf("refused with %q: %v", c, err)
			}
			if len(errcode.FieldErrorsOf(err)) == 0 || err.Error() == "" || e.Body != nil {
				t.Fatalf("refused without a reason, or with a body: %v", err)
			}
			return
		}
		for mode, encode := range map[string]func(events.Event) (broker.Message, error){"binary": Encode, "structured": EncodeStructured} {
			m, err := encode(e)
			if errors.Is(err, errcode.ErrTooLarge) {
				continue // escapes may make JSON longer
			}
			if err != nil {
				t.Fatalf("%s: accepted %+v but cannot say it: %v", mode, e, err)
			}
			again, err := Decode(m.Header, m.Data)
			if err != nil || !reflect.DeepEqual(withoutEmpty(again), withoutEmpty(e)) {
				t.Fatalf("%s: %+v came back as %+v, %v", mode, e, again, err)
			}
		}
	})
}

// withoutEmpty returns the event with nil in the place of empty maps and lists, which JSON leaves
// out.
func withoutEmpty(e events.Event) events.Event {
	body := reflect.New(reflect.TypeOf(e.Body)).Elem()
	body.Set(reflect.ValueOf(e.Body))
	dropEmpty(body)
	e.Body = body.Interface().(events.Body)
	return e
}

// dropEmpty changes what v refers to, too.
func dropEmpty(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			dropEmpty(v.Elem())
		}
	case reflect.Struct:
		for _, f := range v.Fields() {
			if f.CanSet() {
				dropEmpty(f)
			}
		}
	case reflect.Slice:
		if v.Len() == 0 {
			v.SetZero()
		}
		for i := range v.Len() {
			dropEmpty(v.Index(i))
		}
	case reflect.Map:
		if v.Len() == 0 {
			v.SetZero()
		}
		for _, k := range v.MapKeys() {
			item := reflect.New(v.Type().Elem()).Elem()
			item.Set(v.MapIndex(k))
			dropEmpty(item)
			v.SetMapIndex(k, item)
		}
	}
}

// FuzzParseSpec: no input panics, errors have a message, and a spec without errors passes Check.
func FuzzParseSpec(f *testing.F) {
	f.Add([]byte(`{"name":"cifar","command":["python","train.py"],"workers":{"min":2,"max":8}}`))
	f.Add([]byte(`{"name":"a","command":["x"],"workers":{"min":"two","mx":2},"stop":{"grace":"0s"},"env":{"RANK":null}}`))
	f.Add([]byte(`{"NAME":"a","failures":{"max":null},"data":{"samples":18446744073709551616}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, bad := spec.Parse(b)
		for _, x := range bad {
			if x.Message == "" {
				t.Fatalf("empty finding in %v", bad)
			}
		}
		if len(bad) > 0 {
			return
		}
		if more := s.WithDefaults().Check(); len(more) > 0 {
			t.Fatalf("accepted, but Check finds %v", more)
		}
		e := events.Event{ID: "1", Source: "/x", Body: events.JobSubmit{Spec: s}}
		m, err := Encode(e)
		if err != nil {
			if errors.Is(err, errcode.ErrTooLarge) {
				return
			}
			t.Fatal(err)
		}
		if _, err := Decode(m.Header, m.Data); err != nil {
			t.Fatalf("accepted, but not as part of a command: %v", err)
		}
	})
}
