package replay

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// good is the log of a job with one incident.
func good() []events.Event {
	a, b := ident.Place{Node: "a", Slot: 0}, ident.Place{Node: "b", Slot: 0}
	members := []tables.Member{{Place: a, Rank: 0}, {Place: b, Rank: 1, CrossRank: 1}}
	log := []events.Event{
		{Entity: "a", Number: 1, Body: events.NodeJoined{NodeFact: events.NodeFact{Node: "a", Incarnation: "A"}}},
		{Entity: "j", Number: 1, Body: events.JobSubmitted{Job: "j"}},
		{Entity: "j", Number: 1, Body: events.PlacementSet{Job: "j", Places: []ident.Place{a, b}, Workers: spec.Workers{Min: 1, Max: 2}}},
		{Entity: "j", Number: 1, Body: events.RoundOpened{Job: "j", Proposed: 1}},
		{Entity: "j", Number: 2, Body: events.RoundSealed{Job: "j", Generation: 1, Members: members}},
		{Entity: "j", Number: 1, Body: events.IncidentOpened{Job: "j", Incident: 1}},
		{Entity: "j", Number: 2, Body: events.JobRespawned{Job: "j", Dead: "X", Attempt: 2}},
		{Entity: "j", Number: 3, Body: events.RoundSealed{Job: "j", Generation: 2, Members: members}},
		{Entity: "j", Number: 2, Body: events.IncidentClosed{Job: "j", Incident: 1}},
		{Entity: "j", Number: 3, Body: events.JobSucceeded{JobEnd: events.JobEnd{Job: "j", Reason: "done"}}},
		{Entity: "j", Number: 2, Body: events.PlacementReleased{Job: "j"}},
		{Entity: "j", Number: 4, Body: events.RoundClosed{Job: "j"}},
		{Entity: "a", Number: 2, Body: events.NodeLost{NodeFact: events.NodeFact{Node: "a", Incarnation: "A"}}},
	}
	return log
}

func TestReplay(t *testing.T) {
	log := good()
	log = slices.Insert(log, 5, log[4]) // published twice: a reader drops it
	r, err := Fold(log)
	if err != nil {
		t.Fatal(err)
	}
	j := r.Jobs["j"]
	if r.Facts != len(log)-1 || j.State != events.JobStateSucceeded || j.Places != nil || j.Round != events.RoundStateClosed || len(j.Sealed) != 2 ||
		len(j.Incidents) != 1 || r.Nodes["a"].State != events.NodeStateLost {
		t.Errorf("replayed %+v, %+v", r, j)
	}
}

// TestACauseThatIsExplainedLater: the end of a process may reach the registry after the incident
// was closed.
func TestACauseThatIsExplainedLater(t *testing.T) {
	place, other := ident.Place{Node: "b", Slot: 0}, ident.Place{Node: "a", Slot: 0}
	closed := func(c events.Cause) []events.IncidentClosed {
		return []events.IncidentClosed{{Incident: 1}, {Incident: 2, From: 2, Cause: c}}
	}
	lost := closed(events.CauseAt(events.CauseWorkerLost, place, 1, "a lost its connection to rank 1"))
	failed := closed(events.CauseAt(events.CauseWorkerFailed, place, 1, "killed"))
	exit := events.WorkerExited{Detail: "killed"}
	exit.Place, exit.Generation = place, 2
	for _, c := range []struct {
		name   string
		stored []events.IncidentClosed
		change func(*events.WorkerExited)
		same   bool
	}{
		{"all", failed, func(*events.WorkerExited) {}, true},
		{"the newest only", failed[1:], func(*events.WorkerExited) {}, true},
		{"as published", lost, func(*events.WorkerExited) {}, true},
		{"another rank", closed(events.CauseAt(events.CauseWorkerFailed, place, 0, "killed")), func(*events.WorkerExited) {}, false},
		{"another reason", failed, func(x *events.WorkerExited) { x.Detail = "exit status 1" }, false},
		{"another generation", failed, func(x *events.WorkerExited) { x.Generation = 1 }, false},
		{"another place", failed, func(x *events.WorkerExited) { x.Place = other }, false},
	} {
		x := exit
		c.change(&x)
		j := Job{Incidents: lost, exits: []events.WorkerExited{x}}
		got, n := j.Explained(c.stored), len(c.stored)
		if same := reflect.DeepEqual(got[max(0, len(got)-n):], c.stored); same != c.same {
			t.Errorf("%s: explained as %+v", c.name, got)
		}
	}
}

func TestReplayFindsWhatIsWrong(t *testing.T) {
	for _, c := range []struct {
		name    string
		at      int // index of the fact that is replaced
		body    events.Body
		message string
	}{
		{"a generation left out", 7, events.RoundSealed{Job: "j", Generation: 3, Members: []tables.Member{{}}}, "invariant 1"},
		{"a world too large", 4, events.RoundSealed{Job: "j", Generation: 1, Members: make([]tables.Member, 3)}, "invariant 2"},
		{"ranks with a gap", 4, events.RoundSealed{Job: "j", Generation: 1, Members: []tables.Member{{Rank: 1}}}, "invariant 2"},
		{"a slot twice", 2, events.PlacementSet{Job: "j", Places: make([]ident.Place, 2), Workers: spec.Workers{Min: 1, Max: 2}}, "invariant 3"},
		{"opened after it was sealed", 7, events.RoundOpened{Job: "j", Proposed: 1}, "invariant 4"},
		{"ended twice", 6, events.JobFailed{JobEnd: events.JobEnd{Job: "j"}}, "invariant 7"},
		{"an incident left open", 8, events.IncidentOpened{Job: "j", Incident: 2}, "invariant 11"},
		{"a negative phase", 8, events.IncidentClosed{Job: "j", Incident: 1, Phases: events.Phases{Sync: -1}}, "negative"},
	} {
		log := good()
		log[c.at].Body = c.body
		if _, err := Fold(log); err == nil || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.message)
		}
	}
	log := good()
	log[7].Number = 4
	if _, err := Fold(log); err == nil || !strings.Contains(err.Error(), "invariant 9") {
		t.Errorf("a gap: got %v", err)
	}
	log = good()
	log = append(log, events.Event{Entity: "j", Number: 4, Body: events.JobRespawned{Job: "j", Dead: "X", Attempt: 2}})
	if _, err := Fold(log); err == nil || !strings.Contains(err.Error(), "invariant 10") {
		t.Errorf("replaced twice: got %v", err)
	}
}

// TestASlotOfTwoJobs: one decision may name the job that gets a slot before the one that loses it;
// after it no slot belongs to two.
func TestASlotOfTwoJobs(t *testing.T) {
	slot := ident.Place{Node: "a", Slot: 0}
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	placed := func(number uint64, job ident.JobID, at time.Time, places ...ident.Place) events.Event {
		return events.Event{Entity: string(job), Number: number, Time: at, Body: events.PlacementSet{Job: job, Places: places}}
	}
	moved := []events.Event{placed(1, "j", at, slot), placed(2, "k", at.Add(time.Second), slot), placed(3, "j", at.Add(time.Second))}
	if _, err := Fold(moved); err != nil {
		t.Errorf("a slot that moves in one decision: %v", err)
	}
	later := slices.Concat(moved[:2], []events.Event{placed(3, "j", at.Add(2*time.Second))})
	for name, log := range map[string][]events.Event{"at the end": moved[:2], "until the next decision": later} {
		if _, err := Fold(log); err == nil || !strings.Contains(err.Error(), "invariant 3: a/0 belongs to j and to k") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
