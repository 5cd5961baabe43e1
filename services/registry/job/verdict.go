package job

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
)

// failed judges a process that ended badly while the job was at work.
func (t *transition) failed(w *events.WorkerView, b events.WorkerExited) {
	if t.LastGood == 0 && (b.ExitCode == 126 || b.ExitCode == 127) {
		// As shells have it: found but not executable, not found. Trying again gives the same
		// answer.
		t.recordFirstError(w)
		t.endJob(events.JobStateFailed, events.Invalid, fmt.Sprintf("the command cannot be started: worker %s: %s", w.Place, w.Detail))
		return
	}
	if t.permanentFailure(w, b) {
		return
	}
	if t.Exhaustion != nil {
		t.recordFirstError(w)
		return
	}
	member := t.member(w)
	if member {
		place := w.Place
		t.generationBroken(events.Cause{Kind: events.CauseWorkerFailed, Place: &place, Rank: w.Rank, Detail: w.Detail})
	}
	t.Broken = max(t.Broken, b.Generation)
	if b.Generation == 0 && member {
		b.Generation = w.Generation // its agent need not know: it may be a later one than the one that ran it
	}
	if b.Orphaned {
		if !t.countAgentRestart(w, b) {
			return
		}
	} else if !b.Departing && !t.countFailure(w, b.Generation, t.exitFailure(b)) {
		return
	}
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
	if member || b.Generation > t.View.Generation {
		t.respawnFinished()
	}
}

// countAgentRestart charges a worker that ended with an earlier life of its agent, and tells
// whether the job goes on. One restart is one failure, however many workers it takes along, and
// whether the new agent reports it first, by their exits, or discovery.
func (t *transition) countAgentRestart(w *events.WorkerView, b events.WorkerExited) bool {
	n := t.Nodes[b.Place.Node]
	if n.Restarted == b.Agent && b.Agent != "" {
		t.recordFirstError(w)
		t.claimFailure(b.Generation)
		return true
	}
	n = t.nodeRecord(b.Place.Node)
	n.Restarted = b.Agent
	t.Nodes[b.Place.Node] = n
	return t.countFailure(w, b.Generation, t.silentFailure(events.FailureLost, b.Generation != 0))
}

// describeExit says which worker died, and how.
func describeExit(w *events.WorkerView) string {
	rank := ""
	if w.Rank >= 0 {
		rank = fmt.Sprintf("rank %d, ", w.Rank)
	}
	return fmt.Sprintf("worker %s (%sattempt %d): %s", w.Place, rank, w.Attempt, w.Detail)
}

// respawn says that a dead worker is started again in its place.
func (t *transition) respawn(w *events.WorkerView) {
	if t.recordVerdict(w, respawned) {
		t.publish(events.JobRespawned{Job: t.View.Job, Place: w.Place, Dead: w.Incarnation, Attempt: w.Attempt + 1})
		t.verdictSpan("respawned", w)
	}
}

// respawnDisplaced starts a dead worker again that was blamed only because its place or node was
// gone: they are back.
func (t *transition) respawnDisplaced(w *events.WorkerView) {
	t.updateSlot(w.Place, func(n *SlotRecord) { n.Verdict, n.Displaced = "", "" })
	t.respawn(w)
}

// displaced tells whether a worker is one that unstrand is for.
func (t *transition) displaced(w *events.WorkerView) bool {
	return t.Slots[w.Place.String()].Displaced == w.Incarnation && w.Incarnation != "" && t.hasPlace(w.Place) && !t.onLostNode(w)
}

// denyRespawn says that a dead worker's place stays empty.
func (t *transition) denyRespawn(w *events.WorkerView, reason string) {
	if t.recordVerdict(w, respawnDenied) {
		t.publish(events.JobRespawnDenied{Job: t.View.Job, Place: w.Place, Dead: w.Incarnation, Reason: reason})
		t.verdictSpan("blamed", w)
	}
}

// recordVerdict writes a verdict down and tells whether it is news. Blame takes a respawn back,
// never the other way round.
func (t *transition) recordVerdict(w *events.WorkerView, v verdict) bool {
	n := t.Slots[w.Place.String()]
	if n.JudgedIncarnation == w.Incarnation && (n.Verdict == v || n.Verdict == respawnDenied) {
		return false
	}
	t.updateSlot(w.Place, func(n *SlotRecord) { n.JudgedIncarnation, n.Verdict = w.Incarnation, v })
	return true
}

// respawnFinished gives new lives to those who have finished already when their generation breaks
// under restart recovery: the group starts again as a whole.
func (t *transition) respawnFinished() {
	if t.inProcess() || !t.ongoing() {
		return
	}
	for i := range t.View.Workers {
		if w := &t.View.Workers[i]; w.State == events.WorkerStateSucceeded && t.hasPlace(w.Place) {
			t.respawn(w)
		}
	}
}
