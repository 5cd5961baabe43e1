package round

import (
	"fmt"

	"github.com/regroup-io/regroup/events"
)

// exited takes in the end of a process, by notice or by fact, in whatever order they come.
func (t *turn) exited(w events.WorkerExited) {
	x := t.seat(w.Place)
	if x == nil || w.Attempt < x.Attempt || (x.Incarnation != "" && x.Incarnation != w.Incarnation) {
		return // of a life that is over already, or another one's
	}
	switch x.State {
	case dead, blamed, lost, finished:
		return
	}
	rank := t.rankOf(x.Place, w.Incarnation)
	if t.restart() && w.Asked {
		t.madeRoom(x, w, rank)
		return
	}
	x.Incarnation = w.Incarnation
	if x.Leaving {
		t.dropSeats(func(y *Seat) bool { return y.Place == w.Place })
		x = &Seat{Leaving: true}
	}
	switch {
	case w.Failed(!t.restart()):
		x.State = dead
		if rank >= 0 {
			t.blame(events.Cause{Kind: events.CauseWorkerFailed, Place: &w.Place, Node: w.Place.Node, Rank: rank, Detail: w.Detail}, w.AgeMS)
		}
	case x.Leaving && !w.Asked:
	case w.Asked:
		x.State = lost // its agent is going; the scheduler follows. Or it was leaving: with the last one nobody else asks for a round
		if rank >= 0 {
			t.propose(events.Cause{Kind: events.CauseShrink, Place: &w.Place, Node: w.Place.Node, Rank: rank, Detail: w.Detail}, w.AgeMS)
		}
	default:
		x.State = finished
	}
}

// blame proposes the next generation because of an exit. If peers have accused that worker before, which may be sooner
// than its agent knows, it says how their accusation came about.
func (t *turn) blame(c events.Cause, ageMS float64) {
	t.propose(c, ageMS)
	if t.open() && t.View.Cause.Accuses(*c.Place, c.Rank) {
		t.View.Cause = c
	}
}

// madeRoom takes in that an agent has stopped a process for its next generation. A join of that process which was taken
// since was a late repeat: it is not in the next generation.
func (t *turn) madeRoom(x *Seat, w events.WorkerExited, rank int) {
	x.Over = w.Incarnation
	switch {
	case x.State == joined && x.Incarnation == w.Incarnation:
		x.State = coming
	case rank >= 0 && !t.open() && w.Generation < t.View.Generation:
		x.State = coming
		t.propose(events.Cause{
			Kind: events.CauseWorkerLost, Place: &w.Place, Node: w.Place.Node, Rank: rank, Detail: "it had been stopped before",
		}, w.AgeMS)
	}
}

// respawned takes in the registry's grant of another life.
func (t *turn) respawned(b events.JobRespawned) {
	x := t.seat(b.Place)
	if x == nil || x.Leaving {
		return
	}
	switch x.State {
	case dead, blamed, finished, member, joined, coming:
		// member, joined: the verdict came before the exit that it answers; coming: so it did, of a life that never joined, or
		// it was silent for too long and is replaced
		if b.Dead == "" || (b.Dead != x.Incarnation && x.Incarnation != "") || b.Attempt <= x.Attempt {
			return
		}
	default:
		return
	}
	rank := t.rankOf(x.Place, x.Incarnation)
	wasMember := x.State == member
	detail := fmt.Sprintf("attempt %d of %s was granted", b.Attempt, b.Place)
	t.reseat(x, b.Attempt)
	switch {
	case wasMember:
		t.propose(events.Cause{Kind: events.CauseWorkerFailed, Place: &b.Place, Node: b.Place.Node, Rank: rank, Detail: detail}, 0)
	case t.restart() && !t.open():
		t.grow(events.Cause{Kind: events.CauseGrow, Place: &b.Place, Node: b.Place.Node, Rank: -1, Detail: detail})
	}
}

// blamed takes in that a dead worker's place stays empty, unless the place has passed to a newer agent since: the blame was
// for the older one.
func (t *turn) blamed(b events.JobRespawnDenied) {
	x := t.seat(b.Place)
	if x == nil || x.State != dead || x.Incarnation != b.Dead {
		return
	}
	if x.State = blamed; x.Leaving || t.Agents[b.Place.Node] < b.Dead { // ULIDs sort by age
		return
	}
	t.reseat(x, x.Attempt+1)
	if t.restart() && !t.open() {
		t.grow(events.Cause{Kind: events.CauseGrow, Place: &b.Place, Node: b.Place.Node, Rank: -1, Detail: "its node is back"})
	}
}

// reseat empties a seat for the next life.
func (t *turn) reseat(x *Seat, attempt int) {
	*x = Seat{Place: x.Place, State: coming, Attempt: attempt, Leaving: x.Leaving}
	t.Fresh = t.now
}
