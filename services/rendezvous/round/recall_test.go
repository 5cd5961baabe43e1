package round

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestARecalledGenerationHasItsOwnProcesses: that a process of an earlier generation has ended says
// nothing about the process of the same rank in a later one, also where both are made of facts.
func TestARecalledGenerationHasItsOwnProcesses(t *testing.T) {
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	m := Machine{}
	s := m.New("j-1")
	own, agents := events.ServiceSource(events.ServiceRendezvous), events.AgentSource("node-a", "A")
	recall := func(source string, b events.Body) {
		at = at.Add(time.Second)
		s = m.Recall(s, events.Event{ID: at.String(), Source: source, Time: at, Body: b}, at)
	}
	place := ident.Place{Node: "node-a"}
	sealed := func(g ident.Generation, worker ident.Incarnation) events.RoundSealed {
		return events.RoundSealed{Job: "j-1", Generation: g, Members: tables.MemberTable{{Place: place, Incarnation: worker, Agent: "A", Attempt: int(g)}}}
	}
	recall(events.ServiceSource(events.ServiceScheduler), events.PlacementSet{
		Job: "j-1", Places: ident.Places{place}, Workers: spec.Workers{Min: 1, Max: 1}, Spec: spec.Job{Recovery: spec.RecoveryRestart}.WithDefaults(),
	})
	recall(own, sealed(1, "W1"))
	recall(agents, events.WorkerExited{WorkerRef: tables.WorkerRef{Job: "j-1", Place: place, Incarnation: "W1", Agent: "A", Attempt: 1, Generation: 1}, ExitCode: 1})
	if !s.EndedRanks.has(0) {
		t.Fatal("the end of the process of g1 is not known")
	}
	recall(own, sealed(2, "W2"))
	if s.EndedRanks.has(0) {
		t.Error("the process of g2 counts as ended with that of g1")
	}
}
