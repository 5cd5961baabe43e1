package events

import (
	"reflect"
	"testing"
	"time"
)

// sampleSpec is valid and fills every field.
func sampleSpec() Spec {
	three := 3
	return Spec{
		Version: "v1", Name: "cifar", Command: []string{"python", "train.py", "--lr=1e-3"}, Workdir: "/srv/cifar",
		Env: map[string]string{"OMP_NUM_THREADS": "1", "NAME": "Zoë \"x\" 100%"}, Workers: Workers{Min: 2, Max: 8}, Recovery: RecoveryInProcess,
		Failures: Failures{Max: &three, Per: Duration(time.Hour), SameStep: 4},
		Elastic:  Elastic{LastCall: Duration(30 * time.Second), RejoinWithin: Duration(500 * time.Millisecond), StartWithin: Duration(10 * time.Minute), Settle: Duration(200 * time.Millisecond), Timeout: Duration(20 * time.Minute), ResetLimit: &three},
		Health:   Health{Hang: Duration(5 * time.Minute)},
		Stop:     Stop{Signal: "SIGINT", Grace: Duration(5 * time.Second)}, Data: Data{Samples: 60000}, Labels: map[string]string{"team": "vision"},
	}
}

// filled returns a body of zero's type in which no field is zero.
func filled(t testing.TB, zero Body) Body {
	v := reflect.New(reflect.TypeOf(zero)).Elem()
	n := 0
	fill(t, v, &n)
	return v.Interface().(Body)
}

func fill(t testing.TB, v reflect.Value, n *int) {
	*n++
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 11, 21, 10, 31, *n%60, 0, time.UTC)))
		return
	case Spec:
		v.Set(reflect.ValueOf(sampleSpec()))
		return
	case Roster:
		v.Set(reflect.ValueOf(great(2, 2)))
		return
	case JobID:
		v.SetString("cifar-1a2b")
		return
	case NodeID:
		v.SetString("node-a")
		return
	case Incarnation:
		v.SetString("01JD0000000000000000000000")
		return
	case CauseKind:
		v.SetString(string(CauseNodeLost))
		return
	case Code:
		v.SetString(string(Exhausted))
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
		v.SetUint(1<<63 + uint64(*n)) // beyond what a float can hold
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.25)
	default:
		t.Fatalf("the sample cannot fill a %s: teach it", v.Type())
	}
}

const sampleTrace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// sampleEvent is a complete event with this row's body.
func sampleEvent(t testing.TB, row Entry) Event {
	e := Event{
		ID: "01JD1111111111111111111111", Source: "/client/suite", Entity: "cifar-1a2b",
		Time: time.Date(2026, 11, 21, 10, 31, 30, 123456789, time.UTC), Cause: "01JD2222222222222222222222", Trace: sampleTrace,
		Body: filled(t, row.New()),
	}
	if row.Type.Family() == FamilyNode {
		e.Entity = "node-a"
	}
	if row.Class == ClassFact {
		e.Source = "/regroup/" + row.Writer
		if row.Writer != ServiceAgent {
			e.Number = 7
		}
	}
	return e
}
