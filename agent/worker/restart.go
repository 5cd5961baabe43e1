package worker

import (
	"cmp"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// restart reconciles a launch with the processes of a job that starts new processes in each
// generation.
func (t *transition) restart(j *job) {
	l := j.launch
	for _, slot := range j.slots() {
		w := j.incarnations[slot]
		_, ok := j.listed(slot)
		switch {
		case w.alive() && (!ok || w.ref.Generation < l.Generation):
			t.stop(j, w, false)
		case w.phase == planned && !ok:
			delete(j.incarnations, slot)
		}
	}
	for _, m := range l.Members {
		if l.Phase == events.PhaseRun && m.Rank >= 0 {
			t.run(j, m)
		} else {
			t.plan(j, m)
		}
	}
}

// plan joins on behalf of a process that is not started yet.
func (t *transition) plan(j *job, m events.LaunchMember) {
	w := j.incarnations[m.Place.Slot]
	switch {
	case (w == nil || w.ref.Attempt < m.Attempt) && t.awaitsSpares(j, m):
		return
	case w == nil:
		w = t.planIncarnation(j, m, nil)
	case w.alive():
		return
	case w.phase == planned:
		// What has joined for an earlier generation may have been sealed in that and not started:
		// its launch was replaced before it arrived, or there was no lease. To the rendezvous it
		// runs until a newer one joins.
		if w.ref.Attempt != m.Attempt || j.launch.Phase != events.PhaseRun && j.launch.Generation > w.joinsFor {
			w = t.planIncarnation(j, m, w)
		}
	case w.stopRequested && !w.leaseFailure || w.ref.Attempt < m.Attempt:
		w = t.planIncarnation(j, m, w)
	default:
		return // it ended by itself: the registry will set the next attempt
	}
	t.planMaster(j)
	if w.address == "" {
		w.address = j.master.address
	}
	if w.join == nil {
		w.join = &join{req: workerprotocol.JoinRequest{Left: uint64(w.previousGeneration)}, receivedAt: t.now, sendAt: t.now}
	}
	w.joinsFor = j.launch.Generation
	if j.launch.Phase == events.PhaseRun {
		w.joinsFor++ // this one was sealed without it
	}
}

// planIncarnation creates the next incarnation of a place; the times of the previous one become
// part of its recovery.
func (t *transition) planIncarnation(j *job, m events.LaunchMember, old *incarnation) *incarnation {
	w := t.newIncarnation(j, m)
	w.phase = planned
	switch {
	case old == nil:
	case old.phase == planned:
		w.previousGeneration, w.survivor, w.stopping, w.endedAt = old.previousGeneration, old.survivor, old.stopping, old.endedAt
	default:
		w.previousGeneration, w.survivor, w.endedAt = old.ref.Generation, old.stopRequested, old.endedAt
		if old.stopRequested {
			w.stopping = old.endedAt.Sub(old.stoppedAt)
		}
	}
	return w
}

// run starts the process of a member for which this agent has joined.
func (t *transition) run(j *job, m events.LaunchMember) {
	w := j.incarnations[m.Place.Slot]
	if w == nil || w.phase != planned || w.ref.Incarnation != m.Incarnation || !t.mayStart() || !t.gpuIsFree(j, m.Place.Slot) {
		return
	}
	w.join = nil
	t.useMaster(j)
	w.ref.Generation, w.rank, w.localRank, w.world = j.launch.Generation, m.Rank, m.LocalRank, j.launch.World
	w.trace = j.formationTrace()
	if !w.endedAt.IsZero() {
		w.rejoining = t.now.Sub(w.endedAt)
	}
	t.start(j, w, m)
	w.trace = cmp.Or(w.trace, w.process.Self)
}
