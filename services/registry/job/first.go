package job

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

// causeFor is how long the end of a job waits for what made a worker lose its peers: that peer's own exit is under way.
const causeFor = 2 * time.Second

// Exhaustion is a failure budget that was used up by a worker which says that it lost a peer: how that peer ended is waited for.
type Exhaustion struct {
	By         time.Time         `json:"by"`
	Generation events.Generation `json:"generation"`
	Last       string            `json:"last,omitempty"` // failure that was one too many, for people
}

// first keeps the first failure: with many workers most others are its consequence. Facts of several nodes come in any order, and who
// loses a peer may end before it: within a generation the one that does not speak of a peer counts, then the one that was earlier.
func (t *turn) first(w *events.WorkerView) {
	at := t.now
	if b, ok := t.in.Body.(events.WorkerExited); ok && b.Incarnation == w.Incarnation {
		age := max(0, b.AgeMS)
		if b.Exception != nil {
			age += max(0, b.Exception.BeforeMS)
		}
		at = at.Add(-min(time.Duration(age*float64(time.Millisecond)), causeFor)) // a late report is not believed to the hour
	}
	if f := t.View.FirstError; f != nil && !t.before(w, at, f) {
		return
	}
	f := *w
	f.FailedAt = at
	t.View.FirstError = &f
}

// before tells whether a worker that failed at a moment is rather the first one than f.
func (t *turn) before(w *events.WorkerView, at time.Time, f *events.WorkerView) bool {
	if w.Incarnation == f.Incarnation || f.FailedAt.IsZero() || w.Generation == 0 || w.Generation != f.Generation {
		return false
	}
	if a, b := ofPeer(w), ofPeer(f); a != b {
		return b
	}
	return at.Before(f.FailedAt)
}

// ofPeer tells whether a worker failed because of another one, as it says.
func ofPeer(w *events.WorkerView) bool { return w.Exception != nil && w.Exception.Peer }

// confess takes a worker that was stopped for the first to fail if it had an exception of its own before, and what is known to have failed
// says that it lost a peer.
func (t *turn) confess(w *events.WorkerView, b events.WorkerExited) {
	f := t.View.FirstError
	if w.State != events.WorkerStateStopped || w.Exception == nil || ofPeer(w) || f == nil || w.Generation != f.Generation || !ofPeer(f) {
		return
	}
	t.first(w)
	t.rather(w, events.Cause{Kind: events.CauseWorkerFailed, Place: &b.Place, Node: b.Place.Node, Rank: w.Rank, Detail: b.Detail})
}

// hearsay tells whether all that is known of the end of a generation is that workers lost a peer, and others of its members have not
// ended yet.
func (t *turn) hearsay(g events.Generation) bool {
	f := t.View.FirstError
	if f == nil || g == 0 || f.Generation != g || !ofPeer(f) {
		return false
	}
	for i := range t.View.Workers {
		if w := &t.View.Workers[i]; w.Generation == g && !w.State.Ended() {
			return true
		}
	}
	return false
}

// exhausted ends a job whose failure budget is used up, once it is known what failed.
func (t *turn) exhausted(g events.Generation, last string) {
	if t.hearsay(g) {
		t.Exhaustion = &Exhaustion{By: t.now.Add(causeFor), Generation: g, Last: last}
		return
	}
	t.exhaust(last)
}

// exhaust ends the job now.
func (t *turn) exhaust(last string) {
	budget := t.View.Spec.Failures
	reason := fmt.Sprintf("the failure budget is used up: %d within %s, %d allowed", len(t.View.Failures), budget.Per.D(), *budget.Max)
	if f := t.View.FirstError; f != nil {
		reason += "; first: " + died(f)
		if last == died(f) {
			last = ""
		}
	}
	if last != "" {
		reason += "; last: " + last
	}
	t.end(events.JobStateFailed, events.Exhausted, reason)
}

// heard ends a job whose end waits for the cause, when it has come or does not come.
func (t *turn) heard() bool {
	x := t.Exhaustion
	if x == nil || (t.hearsay(x.Generation) && t.now.Before(x.By)) {
		return false
	}
	if f := t.View.FirstError; f.Generation == x.Generation && !ofPeer(f) {
		x.Last = "" // only its consequence
	}
	t.exhaust(x.Last)
	return true
}
