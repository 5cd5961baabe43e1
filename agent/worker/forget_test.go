package worker

import (
	"fmt"
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestStoppedJobsAreForgotten, the oldest first, so that thousands of short jobs cost a node no
// more than some do. One that runs is kept.
func TestStoppedJobsAreForgotten(t *testing.T) {
	s, now := New(Config{Node: "node-a", Agent: "01A"}), time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	launch := func(id ident.JobID, revision uint64, phase events.Phase, members ...events.LaunchMember) {
		now = now.Add(time.Millisecond)
		s, _ = Step(s, Launched{events.Launch{Node: "node-a", Job: id, Revision: revision, Phase: phase, Generation: 1, Spec: spec.Job{Command: []string{"x"}}, Members: members}}, now)
	}
	launch("running", 1, events.PhasePrepare, events.LaunchMember{Member: tables.Member{Place: ident.Place{Node: "node-a"}, Rank: -1, Attempt: 1}})
	const all = 3 * rememberIdle
	var ids []ident.JobID
	for i := range all {
		ids = append(ids, ident.JobID(fmt.Sprintf("j-%04d", (i*7)%all))) // the names are in another order
		launch(ids[i], 1, events.PhasePrepare)
		launch(ids[i], 2, events.PhaseStop)
	}
	held := s.Revisions()
	if len(held) != rememberIdle+1 || held["running"] != 1 {
		t.Errorf("%d jobs are held, the one that runs with revision %d", len(held), held["running"])
	}
	for i, id := range ids {
		if _, ok := held[id]; ok != (i >= all-rememberIdle) {
			t.Fatalf("the job that was stopped as number %d is held: %v", i, ok)
		}
	}
}
