package cloudevent

import (
	"reflect"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/eventstest"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// filled returns a body of zero's type in which no field is zero.
func filled(t testing.TB, zero events.Body) events.Body {
	v := reflect.New(reflect.TypeOf(zero)).Elem()
	n := 0
	fill(t, v, &n)
	return v.Interface().(events.Body)
}

func fill(t testing.TB, v reflect.Value, n *int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 21, 10, 31, *n%60, 0, time.UTC)))
		return
	case spec.Job:
		v.Set(reflect.ValueOf(eventstest.SampleJob()))
		return
	case tables.MemberTable:
		v.Set(reflect.ValueOf(eventstest.SampleMembers(2, 2)))
		return
	case ident.JobID:
		v.SetString("cifar-1a2b")
		return
	case ident.NodeID:
		v.SetString("node-a")
		return
	case ident.Incarnation:
		v.SetString("01JD0000000000000000000000")
		return
	case events.CauseKind:
		v.SetString(string(events.CauseNodeLost))
		return
	case errcode.Code:
		v.SetString(string(errcode.Exhausted))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), n)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(t, v.Index(0), n)
		fill(t, v.Index(1), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(t, v.Index(i), n)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(t, key, n)
		fill(t, value, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("text – no. " + string(rune('A'+*n%26)))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(1<<63 + uint64(*n)) // exceeds the precision of a float
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	default:
		t.Fatalf("the sample cannot fill a %s: teach it", v.Type())
	}
}

const sampleTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// sampleEvent is a complete event with this row's body.
func sampleEvent(t testing.TB, row events.Entry) events.Event {
	e := events.Event{
		ID: "01JD1111111111111111111111", Source: "/client/suite", Entity: "cifar-1a2b",
		Time: time.Date(2026, 11, 21, 10, 31, 30, 123456789, time.UTC), Cause: "01JD2222222222222222222222", Trace: sampleTrace,
		Body: filled(t, row.New()),
	}
	if row.Type.Family() == events.FamilyNode {
		e.Entity = "node-a"
	}
	if row.Class == events.ClassFact {
		e.Source = "/regroup/" + row.Writer
		if row.Writer != events.ServiceAgent {
			e.Number = 7
		}
	}
	return e
}
