package view

import (
	"testing"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// TestRedundancy says what was reported, for as long as it holds.
func TestRedundancy(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	ago := func(s int) time.Time { return now.Add(-time.Duration(s) * time.Second) }
	member := func(rank ident.Rank, s tables.WorkerState) tables.WorkerView {
		return tables.WorkerView{WorkerRef: tables.WorkerRef{Generation: 3}, Rank: rank, State: s}
	}
	incident := func(kind events.CauseKind, from ident.Generation) *events.IncidentOpened {
		return &events.IncidentOpened{From: from, Cause: events.Cause{Kind: kind}}
	}
	const whole, unknown = "newest whole commit: step 40, 30s old", "; what it survives is unknown until the workers report again; reported 20s ago"
	const survives = whole + ", survives the loss of any 2 workers, or of any 1 node; reported 20s ago"
	for _, c := range []struct {
		name   string
		change func(*events.JobView)
		want   string
	}{
		{"all is known", func(*events.JobView) {}, survives},
		{"nothing was reported", func(v *events.JobView) { v.Redundancy = nil }, "newest whole commit: unknown, none was reported"},
		{"one worker more than none", func(v *events.JobView) { v.Redundancy.Losses, v.Redundancy.NodeLosses = 1, 0 }, whole + ", survives the loss of any 1 worker, but of no node; reported 20s ago"},
		{"none", func(v *events.JobView) { v.Redundancy.Losses, v.Redundancy.NodeLosses = 0, 0 }, whole + ", survives no loss; reported 20s ago"},
		{"a commit that was received", func(v *events.JobView) { v.Redundancy.CommittedAt = time.Time{} }, "newest whole commit: step 40, of unknown age, survives the loss of any 2 workers, or of any 1 node; reported 20s ago"},
		{"a checkpoint", func(v *events.JobView) {
			v.Redundancy.Checkpoint, v.Redundancy.CheckpointAt = &tables.Commit{Step: 30}, ago(240)
		}, whole + ", survives the loss of any 2 workers, or of any 1 node; checkpoint: step 30, 4m00s old; reported 20s ago"},
		{"a checkpoint of before", func(v *events.JobView) { v.Redundancy.Checkpoint = &tables.Commit{Step: 30} }, whole + ", survives the loss of any 2 workers, or of any 1 node; checkpoint: step 30, of unknown age; reported 20s ago"},
		{"the next generation has not reported yet", func(v *events.JobView) { v.Generation = 4 }, whole + unknown},
		{"a member was lost", func(v *events.JobView) {
			v.Workers = tables.WorkerTable{member(0, tables.WorkerStateReady), member(1, tables.WorkerStateLost)}
		}, whole + unknown},
		{"one that is no member was lost", func(v *events.JobView) {
			v.Workers = tables.WorkerTable{member(ident.NoRank, tables.WorkerStateFailed)}
		}, survives},
		{"a member has completed", func(v *events.JobView) { v.Workers = tables.WorkerTable{member(1, tables.WorkerStateSucceeded)} }, survives},
		{"the generation is broken", func(v *events.JobView) { v.OpenIncident = incident(events.CauseWorkerFailed, 3) }, whole + unknown},
		{"the one before is, and this one has no step yet", func(v *events.JobView) { v.OpenIncident = incident(events.CauseWorkerFailed, 2) }, survives},
		{"a planned change", func(v *events.JobView) { v.OpenIncident = incident(events.CauseGrow, 3) }, survives},
		{"no generation yet", func(v *events.JobView) { v.Generation, v.Redundancy = 0, nil }, ""},
		{"the job has ended", func(v *events.JobView) { v.State = events.JobStateStopped }, ""},
		{"a program that is restarted", func(v *events.JobView) { v.Spec.Recovery = spec.RecoveryRestart }, ""},
	} {
		v := events.JobView{
			State: events.JobStateRunning, Generation: 3, Spec: spec.Job{Recovery: spec.RecoveryInProcess},
			Redundancy: &events.Redundancy{Generation: 3, ReportedAt: ago(20), Commit: tables.Commit{Generation: 3, Step: 40}, CommittedAt: ago(30), Losses: 2, NodeLosses: 1},
		}
		c.change(&v)
		if got := RedundancyText(v, now); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
