package registry

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/registry/job"
)

// TestStoredPlacesReachAJobOnce: the record is read every ten seconds, and with thousands of places
// every read would cost a transition.
func TestStoredPlacesReachAJobOnce(t *testing.T) {
	m := job.Machine{}
	s := m.New("demo")
	step := func(number uint64, b events.Body) {
		s, _ = m.Step(s, events.Input{ID: "x", Number: number, Body: b}, time.Unix(1000, 0))
	}
	step(0, events.JobSubmit{Spec: spec.Job{Name: "demo", Command: []string{"x"}, Workers: spec.Workers{Min: 1, Max: 1}}.WithDefaults()})
	set := events.PlacementSet{Job: "demo", Places: ident.Places{{Node: "node-a"}}}
	step(4, set)
	if s.View.State != events.JobStateWaiting {
		t.Fatalf("the job is %q", s.View.State)
	}
	for _, c := range []struct {
		id     string
		number uint64
		want   int
	}{{"", 4, 0}, {"", 3, 0}, {"", 5, 1}, {"", 0, 1}, {"fact", 4, 1}} {
		for _, b := range []events.Body{set, events.PlacementWaiting{Job: "demo"}} {
			got := route(events.Input{ID: c.id, Number: c.number, Body: b}, nil, func(string) (job.State, bool) { return s, true })
			if len(got) != c.want {
				t.Errorf("%s %d %q reaches %v, want %d jobs", b.Type(), c.number, c.id, got, c.want)
			}
		}
	}
}
