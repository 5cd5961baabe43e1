package job

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

// StepEvery is how often a job's newest step is stored at most. No step waits for it: replicas hear of steps and keep them in
// memory, this only lets others read it, and tells replicas of each other's hearing.
const StepEvery = 5 * time.Second

// Stall is a standstill that was told.
type Stall struct {
	Generation events.Generation `json:"generation"`
	Detail     string            `json:"detail"`
}

// progressed takes in how far a job is, as a replica has heard it.
func (t *turn) progressed(p events.Progress) {
	v := &t.View
	t.heardStep(p)
	if v.State != events.JobStateRunning || p.Generation != v.Generation || t.now.Before(v.StepAt.Add(StepEvery)) {
		return
	}
	v.Reported, _ = events.MergeMetrics(v.Reported, p.Reported)
	if p.Step == 0 || (p.Generation == t.StepIn && p.Step <= v.Step) {
		return
	}
	if c := p.Commit; c != nil && t.inProcess() && c.Newer(t.Commit) {
		t.Commit = *c
	}
	t.step(p.Generation, p.Step)
	t.View.Slowest = p.Slowest
}

// step notes the newest step that was made.
func (t *turn) step(g events.Generation, step uint64) {
	t.View.Step, t.View.StepAt, t.StepIn = step, t.now, max(t.StepIn, g)
}

// stoodStill takes in that a replica has heard of no step of a generation for as long as the job allows. It counts only if no
// replica has stored a later step, and if nothing else is known to have broken the generation, or if that did not bring
// everybody back in time: who hangs does not hear that the others have left.
func (t *turn) stoodStill(b events.StepsStalled) {
	limit, v := t.View.Spec.Health.Hang.D(), &t.View
	switch {
	case limit == 0, b.For.D() < limit, v.State != events.JobStateRunning:
		return
	case b.Generation != v.Generation, b.Generation <= t.Stall.Generation, t.idle() && !t.heldUp():
		return
	case t.StepIn == b.Generation && v.Step > b.Step:
		return
	}
	if g := t.generation(b.Generation); g != nil && t.now.Before(g.Sealed.Add(limit-v.TimeWithoutStep.D())) {
		return
	}
	last := max(b.Step, v.Step)
	t.Stall = Stall{Generation: b.Generation, Detail: fmt.Sprintf("no worker has made a step for %s, the last one was %d (health.hang is %s)",
		b.For.D().Round(time.Second), last, limit)}
	t.tell(events.JobStalled{Job: v.Job, Generation: b.Generation, Step: last, Detail: t.Stall.Detail})
}

// heldUp tells whether a generation in place of a broken one takes longer than the round itself waits for those that it can
// do without, and before it tries again.
func (t *turn) heldUp() bool {
	since, e := t.Pending.Since, t.View.Spec.Elastic
	return t.inProcess() && !since.IsZero() && !t.now.Before(since.Add(e.LastCall.D()+e.BackOff(t.NoProgress+1)))
}

// hung charges a standstill to the job as a whole when all members came back from it, so that an endless one ends the job.
// If some did not, it is charged to them.
func (t *turn) hung(over events.Generation) {
	if over == 0 || t.Stall.Generation != over {
		return
	}
	for i := range t.View.Workers {
		if !t.Notes[t.View.Workers[i].Place.String()].Behind.IsZero() {
			return
		}
	}
	if !t.owes(over) {
		return
	}
	f := t.silentFault(events.FailureHang, true)
	t.pay(events.CountedFailure{At: t.now, Generation: over, Rank: -1, Step: f.step, Kind: f.kind, Detail: t.Stall.Detail, Poison: f.poison}, t.Stall.Detail)
}

// missed takes in who is asked for in vain while a round cannot be sealed: each list replaces the one before.
func (t *turn) missed(b events.RoundMissed) {
	if b.Proposed != t.View.Generation+1 {
		return
	}
	missing := map[events.Place]events.Incarnation{}
	for _, m := range b.Missing {
		missing[m.Place] = m.Incarnation
	}
	for i := range t.View.Workers {
		w := &t.View.Workers[i]
		if !t.member(w) || w.State.Ended() {
			continue
		}
		gone := missing[w.Place] == w.Incarnation
		t.note(w.Place, func(n *Note) {
			switch {
			case !gone:
				n.Behind = time.Time{}
			case n.Behind.IsZero():
				n.Behind = t.now
			}
		})
	}
}
