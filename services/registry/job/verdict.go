package job

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
)

// failed judges a process that ended badly while the job was at work.
func (t *turn) failed(w *events.WorkerView, b events.WorkerExited) {
	if t.LastGood == 0 && (b.ExitCode == 126 || b.ExitCode == 127) {
		// As shells have it: found but not executable, not found. Trying again gives the same answer.
		t.first(w)
		t.end(events.JobStateFailed, events.Invalid, fmt.Sprintf("the command cannot be started: worker %s: %s", w.Place, w.Detail))
		return
	}
	if t.futile(w, b) {
		return
	}
	if t.Exhaustion != nil {
		t.first(w)
		return
	}
	member := t.member(w)
	if member {
		place := w.Place
		t.broke(events.Cause{Kind: events.CauseWorkerFailed, Place: &place, Rank: w.Rank, Detail: w.Detail})
	}
	t.Broken = max(t.Broken, b.Generation)
	if b.Generation == 0 && member {
		b.Generation = w.Generation // its agent need not know: it may be a later one than the one that ran it
	}
	if b.Orphaned {
		if !t.restarted(w, b) {
			return
		}
	} else if !b.Departing && !t.charge(w, b.Generation, t.exitFault(b)) {
		return
	}
	switch {
	case !t.hasPlace(w.Place):
		t.note(w.Place, func(n *Note) { n.Unplaced = w.Incarnation })
		t.blame(w, fmt.Sprintf("the job no longer has the place %s", w.Place))
	case t.nodeIsGone(w):
		t.note(w.Place, func(n *Note) { n.Unplaced = w.Incarnation })
		t.blame(w, fmt.Sprintf("the node %s is gone", w.Place.Node))
	default:
		t.respawn(w)
	}
	if member || b.Generation > t.View.Generation {
		t.startAgain()
	}
}

// restarted charges a worker that ended with an earlier life of its agent, and tells whether the job goes on. One restart is one failure,
// however many workers it takes along, and whether the new agent reports it first, by their exits, or discovery.
func (t *turn) restarted(w *events.WorkerView, b events.WorkerExited) bool {
	n := t.Nodes[b.Place.Node]
	if n.Restarted == b.Agent && b.Agent != "" {
		t.first(w)
		t.owes(b.Generation)
		return true
	}
	n = t.remember(b.Place.Node)
	n.Restarted = b.Agent
	t.Nodes[b.Place.Node] = n
	return t.charge(w, b.Generation, t.silentFault(events.FailureLost, b.Generation != 0))
}

// died says which worker died, and how.
func died(w *events.WorkerView) string {
	rank := ""
	if w.Rank >= 0 {
		rank = fmt.Sprintf("rank %d, ", w.Rank)
	}
	return fmt.Sprintf("worker %s (%sattempt %d): %s", w.Place, rank, w.Attempt, w.Detail)
}

// respawn says that a dead worker is started again in its place.
func (t *turn) respawn(w *events.WorkerView) {
	if t.judged(w, respawned) {
		t.tell(events.JobRespawned{Job: t.View.Job, Place: w.Place, Dead: w.Incarnation, Attempt: w.Attempt + 1})
		t.verdictSpan("respawned", w)
	}
}

// unstrand starts a dead worker again that was blamed only because its place or node was gone: they are back.
func (t *turn) unstrand(w *events.WorkerView) {
	t.note(w.Place, func(n *Note) { n.Verdict, n.Unplaced = "", "" })
	t.respawn(w)
}

// stranded tells whether a worker is one that unstrand is for.
func (t *turn) stranded(w *events.WorkerView) bool {
	return t.Notes[w.Place.String()].Unplaced == w.Incarnation && w.Incarnation != "" && t.hasPlace(w.Place) && !t.nodeIsGone(w)
}

// blame says that a dead worker's place stays empty.
func (t *turn) blame(w *events.WorkerView, reason string) {
	if t.judged(w, blamed) {
		t.tell(events.JobRespawnDenied{Job: t.View.Job, Place: w.Place, Dead: w.Incarnation, Reason: reason})
		t.verdictSpan("blamed", w)
	}
}

// judged writes a verdict down and tells whether it is news. Blame takes a respawn back, never the other way round.
func (t *turn) judged(w *events.WorkerView, v verdict) bool {
	n := t.Notes[w.Place.String()]
	if n.Charged == w.Incarnation && (n.Verdict == v || n.Verdict == blamed) {
		return false
	}
	t.note(w.Place, func(n *Note) { n.Charged, n.Verdict = w.Incarnation, v })
	return true
}

// startAgain gives new lives to those who have finished already when their generation breaks under restart recovery: the
// group starts again as a whole.
func (t *turn) startAgain() {
	if t.inProcess() || !t.live() {
		return
	}
	for i := range t.View.Workers {
		if w := &t.View.Workers[i]; w.State == events.WorkerStateSucceeded && t.hasPlace(w.Place) {
			t.respawn(w)
		}
	}
}
