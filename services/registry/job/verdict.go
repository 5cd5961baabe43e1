package job

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// failed decides about a process that failed while the job ran.
// of is the agent that ran it, if the exit is reported by a later one.
func (t *transition) failed(w *tables.WorkerView, b events.WorkerExited, of ident.Incarnation) {
	if t.LastGood == 0 && !b.NodeFault && (b.ExitCode == 126 || b.ExitCode == 127) {
		// As in shells: found but not executable, not found. A retry gives the same result.
		t.recordFirstError(w)
		t.endJob(events.JobStateFailed, errcode.Invalid, fmt.Sprintf("the command cannot be started: worker %s: %s", w.Place, w.Detail))
		return
	}
	if t.permanentFailure(w, b) || t.endsEarly(w, b) {
		return
	}
	if t.Exhaustion != nil {
		t.recordFirstError(w)
		return
	}
	member := t.member(w)
	if member {
		place := w.Place
		t.generationBroken(events.Cause{Kind: b.CauseKind(), Place: &place, Rank: w.Rank, Detail: w.Detail})
	}
	t.Broken = max(t.Broken, b.Generation)
	if b.Generation == 0 && (member || b.Orphaned) {
		b.Generation = t.generationLeft(w) // its agent may not know it: it may be a later one than the one that ran the worker
	}
	if b.Orphaned {
		if !t.countAgentRestart(w, b, of) {
			return
		}
	} else if !b.Departing && !b.LeaseOver && !t.countFailure(w, b.Generation, t.exitFailure(b)) {
		return
	}
	if !t.delayed(w, b) {
		t.replace(w)
	}
	if member || b.Generation > t.View.Generation {
		t.respawnFinished()
	}
}

// replace decides whether a dead worker is started again in its place.
func (t *transition) replace(w *tables.WorkerView) {
	switch {
	case !t.hasPlace(w.Place):
		t.updateSlot(w.Place, func(n *SlotRecord) { n.Displaced = w.Incarnation })
		t.denyRespawn(w, fmt.Sprintf("the job no longer has the place %s", w.Place))
	case t.onLostNode(w):
		t.updateSlot(w.Place, func(n *SlotRecord) { n.Displaced = w.Incarnation })
		t.denyRespawn(w, fmt.Sprintf("the node %s is gone", w.Place.Node))
	default:
		t.respawn(w)
	}
}

// delayed reports whether a dead worker is not replaced at once: with in-process recovery one that
// dies soon after its start and before a step of its own, several times in a row, is started again
// ever later. Under restart recovery the next generation waits.
func (t *transition) delayed(w *tables.WorkerView, b events.WorkerExited) bool {
	soon := t.inProcess() && b.Step == 0 && b.LivedMS > 0 && b.LivedMS < events.Milliseconds(startupLife)
	var wait time.Duration
	t.updateSlot(w.Place, func(n *SlotRecord) {
		if n.RespawnAt = (time.Time{}); !soon {
			n.EarlyDeaths = 0
			return
		}
		n.EarlyDeaths++
		if wait = t.View.Spec.Elastic.BackOff(n.EarlyDeaths); wait > 0 {
			n.RespawnAt = t.now.Add(wait)
		}
	})
	if wait == 0 || !t.hasPlace(w.Place) || t.onLostNode(w) {
		t.updateSlot(w.Place, func(n *SlotRecord) { n.RespawnAt = time.Time{} })
		return false
	}
	t.publish(events.JobDelayed{Job: t.View.Job, Place: w.Place, Dead: w.Incarnation, WaitMS: events.Milliseconds(wait), Attempts: events.Attempts{Attempt: w.Attempt + 1}})
	return true
}

// expireDelays replaces the workers whose wait is over.
func (t *transition) expireDelays() {
	for w := range t.workers() {
		if at := t.Slots[w.Place.String()].RespawnAt; at.IsZero() || t.now.Before(at) {
			continue
		}
		t.updateSlot(w.Place, func(n *SlotRecord) { n.RespawnAt = time.Time{} })
		if w.State == tables.WorkerStateFailed && t.waitingOrRunning() {
			t.replace(w)
		}
	}
}

// countAgentRestart counts the restart of an agent that ended its workers, and reports whether the
// job goes on. ended is the agent before it, if known.
func (t *transition) countAgentRestart(w *tables.WorkerView, b events.WorkerExited, ended ident.Incarnation) bool {
	if !t.claimAgent(b.Place.Node, ended, b.Agent) {
		t.recordFirstError(w)
		t.claimFailure(b.Generation)
		return true
	}
	f := t.silentFailure(events.FailureLost, b.Generation != 0)
	f.agent = ended
	return t.countFailure(w, b.Generation, f)
}

func describeExit(w *tables.WorkerView) string {
	rank := ""
	if w.Rank >= 0 {
		rank = fmt.Sprintf("rank %d, ", w.Rank)
	}
	return fmt.Sprintf("worker %s (%sattempt %d): %s", w.Place, rank, w.Attempt, w.Detail)
}

// respawn publishes that a dead worker is started again in its place.
func (t *transition) respawn(w *tables.WorkerView) {
	if t.recordVerdict(w, respawned) {
		t.publish(events.JobRespawned{Job: t.View.Job, Place: w.Place, Dead: w.Incarnation, Attempt: w.Attempt + 1})
		t.verdictSpan("respawned", w)
	}
}

// respawnDisplaced respawns a worker that was denied it for a place or node that is back.
func (t *transition) respawnDisplaced(w *tables.WorkerView) {
	t.updateSlot(w.Place, func(n *SlotRecord) { n.Verdict, n.Displaced = "", "" })
	t.respawn(w)
}

// displaced reports whether respawnDisplaced applies to a worker.
func (t *transition) displaced(w *tables.WorkerView) bool {
	return t.Slots[w.Place.String()].Displaced == w.Incarnation && w.Incarnation != "" && t.hasPlace(w.Place) && !t.onLostNode(w)
}

func (t *transition) denyRespawn(w *tables.WorkerView, reason string) {
	if t.recordVerdict(w, respawnDenied) {
		t.publish(events.JobRespawnDenied{Job: t.View.Job, Place: w.Place, Dead: w.Incarnation, Reason: reason})
		t.verdictSpan("respawn-denied", w)
	}
}

// recordVerdict records a verdict and reports whether it is new. A denial is final.
func (t *transition) recordVerdict(w *tables.WorkerView, v verdict) bool {
	n := t.Slots[w.Place.String()]
	if n.JudgedIncarnation == w.Incarnation && (n.Verdict == v || n.Verdict == respawnDenied) {
		return false
	}
	t.updateSlot(w.Place, func(n *SlotRecord) { n.JudgedIncarnation, n.Verdict = w.Incarnation, v })
	return true
}

// respawnFinished respawns finished workers when their generation breaks under restart recovery:
// the group restarts as a whole.
func (t *transition) respawnFinished() {
	if t.inProcess() || !t.ongoing() {
		return
	}
	for w := range t.workers() {
		if w.State == tables.WorkerStateSucceeded && t.hasPlace(w.Place) {
			t.respawn(w)
		}
	}
}
