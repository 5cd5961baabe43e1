package timeline_test

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/timeline"
)

// TestUnobservedFrom: of a job of which nobody has heard for a time it is unknown what its workers
// do since, and it stays known what they did before, and what had ended.
func TestUnobservedFrom(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return noon.Add(time.Duration(s) * time.Second) }
	ref := func(slot ident.Slot) tables.WorkerRef {
		return tables.WorkerRef{Job: "x", Place: ident.Place{Node: "a", Slot: slot}, Attempt: 1, Generation: 1}
	}
	facts := []events.Event{
		{Entity: "x", Time: at(0), Body: events.JobSubmitted{Spec: spec.Job{Recovery: spec.RecoveryInProcess}}},
		{Entity: "x", Time: at(0), Body: events.WorkerStarted{WorkerRef: ref(0)}},
		{Entity: "x", Time: at(0), Body: events.WorkerStarted{WorkerRef: ref(1)}},
		{Entity: "x", Time: at(10), Body: events.WorkerReady{WorkerRef: ref(0), Step: 1}},
		{Entity: "x", Time: at(20), Body: events.WorkerExited{WorkerRef: ref(1), Signal: "SIGKILL"}},
	}
	for s := 15; s < 60; s += 5 {
		facts = append(facts, events.Event{Entity: "x", Time: at(s), Body: events.JobProgressed{Job: "x", Generation: 1, Step: uint64(s)}})
	}
	for since, want := range map[time.Time]time.Duration{at(30): 20 * time.Second, {}: 45 * time.Second, at(60): 50 * time.Second, at(5): 0} {
		line := timeline.New(facts, at(60))
		line.UnobservedFrom(since)
		sums := map[timeline.Doing]time.Duration{}
		for _, l := range line.Incarnations {
			for _, s := range l.Stretches {
				sums[s.Doing] += s.To.Sub(s.From)
			}
		}
		if sums[timeline.Training] != want || sums[timeline.Rendezvous] != 30*time.Second || sums[timeline.Unobserved] != 50*time.Second-want {
			t.Errorf("heard last at %s: %v, want %s of training", since, sums, want)
		}
	}
	over := timeline.New(append(facts, events.Event{Entity: "x", Time: at(56), Body: events.JobSucceeded{}}), at(60))
	over.UnobservedFrom(at(30))
	if last := over.Incarnations[0].Stretches; last[len(last)-1].Doing != timeline.Training {
		t.Errorf("of a job that has ended: %v", last)
	}
}
