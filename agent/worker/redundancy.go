package worker

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// reported is how much the job can lose, as a worker has said it.
type reported struct {
	workerprotocol.Redundancy
	at time.Time
}

// recordRedundancy stores what a worker reports. It is about the job, so only rank 0 is listened
// to. What it said in another generation does not hold, and a report that is impossible counts as
// none.
func (w *incarnation) recordRedundancy(r *workerprotocol.Redundancy, now time.Time) {
	if r == nil || w.rank != 0 || ident.Generation(r.Generation) != w.ref.Generation {
		return
	}
	w.redundancy = nil
	if r.Losses >= 0 && r.Losses < w.world && r.NodeLosses >= 0 && r.NodeLosses <= r.Losses {
		w.redundancy = &reported{*r, now}
	}
}

// redundancyReport returns what to pass on of that in a generation; nil = nothing.
func (w *incarnation) redundancyReport(g ident.Generation, now time.Time) *events.RedundancyReport {
	r := w.redundancy
	if r == nil || ident.Generation(r.Generation) != g {
		return nil
	}
	x := &events.RedundancyReport{
		AgeMS: events.Milliseconds(max(0, now.Sub(r.at))), Commit: commit(r.Commit), CommitAgeMS: age(r.Made, now),
		Losses: r.Losses, NodeLosses: r.NodeLosses,
	}
	if r.Checkpoint != nil {
		c := commit(*r.Checkpoint)
		x.Checkpoint, x.CheckpointAgeMS = &c, age(r.Written, now)
	}
	return x
}

// age returns the milliseconds since a time on the clock of this machine; nil = unknown.
func age(at, now time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	return new(events.Milliseconds(max(0, now.Sub(at))))
}
