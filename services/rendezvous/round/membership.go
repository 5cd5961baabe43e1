package round

import (
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// placement takes in which places the job has from now on.
func (t *turn) placement(p events.PlacementSet) {
	if t.in.Number != 0 && t.in.Number <= t.Placement {
		return // an older one, late
	}
	t.Placement = max(t.Placement, t.in.Number)
	t.Workers = p.Workers
	if t.Nonce == "" {
		t.Nonce, t.Spec = t.in.Nonce, p.Spec
	}
	for _, place := range p.Places {
		if x := t.seat(place); x == nil {
			t.addSeat(place)
		} else {
			if x.Leaving && (x.State == lost || x.State == blamed || x.State == dead) {
				t.reseat(x, x.Attempt+1) // taken away and given again: whoever sat there is not coming back
			}
			x.Leaving = false
		}
	}
	var shrunk *Seat
	for i := range t.Seats {
		x := &t.Seats[i]
		if slices.Contains(p.Places, x.Place) {
			continue
		}
		if slices.Contains(p.Gone, x.Place.Node) {
			continue
		}
		x.Leaving = true
		if t.rankOf(x.Place, x.Incarnation) >= 0 {
			shrunk = x
		}
	}
	for _, n := range p.Gone {
		t.loseNode(n, events.CauseNodeLost, "node "+string(n)+" is lost", func(x *Seat) bool { return !slices.Contains(p.Places, x.Place) }, false)
	}
	// Seats that nobody sits on any more go; those of members stay until the generation without them is sealed.
	t.dropSeats(func(x *Seat) bool {
		return !slices.Contains(p.Places, x.Place) && (x.State == lost || t.rankOf(x.Place, x.Incarnation) < 0)
	})
	switch {
	case t.View.Generation == 0:
		t.propose(events.Cause{Kind: events.CauseStart, Rank: -1, Detail: p.Reason}, 0)
	case shrunk != nil && (t.restart() || t.survivors() >= t.Workers.Min):
		// Else the job moves: those who leave train on until others are warm, whose join then asks for the change.
		t.change(events.Cause{
			Kind: events.CauseShrink, Place: &shrunk.Place, Node: shrunk.Place.Node,
			Rank: t.rankOf(shrunk.Place, shrunk.Incarnation), Detail: p.Reason,
		})
	case t.restart() && t.anyNewcomer():
		t.change(events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: p.Reason})
	}
}

func (t *turn) anyNewcomer() bool {
	return slices.ContainsFunc(t.Seats, func(x Seat) bool { return x.State == coming })
}

// change asks for a planned regroup: in-process members leave at their next commit, others are restarted now.
func (t *turn) change(c events.Cause) {
	if t.open() {
		return
	}
	if t.restart() {
		t.propose(c, 0)
		return
	}
	t.Planned = true
	t.View.Cause = c
}

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
			t.propose(events.Cause{Kind: events.CauseWorkerFailed, Place: &w.Place, Node: w.Place.Node, Rank: rank, Detail: w.Detail}, w.AgeMS)
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
		t.change(events.Cause{Kind: events.CauseGrow, Place: &b.Place, Node: b.Place.Node, Rank: -1, Detail: detail})
	}
}

// blamed takes in that a dead worker's place stays empty, unless the place has passed to a newer agent since: the blame was
// for the older one.
func (t *turn) blamed(b events.JobBlamed) {
	x := t.seat(b.Place)
	if x == nil || x.State != dead || x.Incarnation != b.Dead {
		return
	}
	if x.State = blamed; x.Leaving || t.Agents[b.Place.Node] < b.Dead { // ULIDs sort by age
		return
	}
	t.reseat(x, x.Attempt+1)
	if t.restart() && !t.open() {
		t.change(events.Cause{Kind: events.CauseGrow, Place: &b.Place, Node: b.Place.Node, Rank: -1, Detail: "its node is back"})
	}
}

// reseat empties a seat for the next life.
func (t *turn) reseat(x *Seat, attempt int) {
	*x = Seat{Place: x.Place, State: coming, Attempt: attempt, Leaving: x.Leaving}
}

// gone takes a seat's worker out because its node is gone, and returns its rank in the sealed generation, or -1.
func (t *turn) gone(x *Seat) int {
	rank := -1
	if x.State == member || x.State == joined {
		rank = t.rankOf(x.Place, x.Incarnation)
	}
	x.State = lost
	return rank
}

// nextOf tells whether the input is the newest fact about a node so far, and remembers that.
func (t *turn) nextOf(n events.NodeID) bool {
	if t.Overtaken(n, t.in.Number) {
		return false
	}
	if t.in.Number != 0 {
		if t.NodeFacts == nil {
			t.NodeFacts = map[events.NodeID]uint64{}
		}
		t.NodeFacts[n] = t.in.Number
	}
	return true
}

// nodeGone takes in discovery's verdict about one incarnation of a node.
func (t *turn) nodeGone(n events.NodeID, inc events.Incarnation, kind events.CauseKind) {
	back := t.Agents[n] > inc // ULIDs sort by age: a newer life of the node is known, so only seats of the old one are lost
	t.loseNode(n, kind, "node "+string(n)+" is gone", func(x *Seat) bool {
		return (x.Agent == "" && !back) || x.Agent == inc
	}, back)
}

// loseNode takes out the seats of a node that which selects, opens the next generation if one of them had a rank, and
// with reseat empties them for the node's next life.
func (t *turn) loseNode(n events.NodeID, kind events.CauseKind, detail string, which func(*Seat) bool, reseat bool) {
	cause := events.Cause{Kind: kind, Node: n, Rank: -1, Detail: detail}
	for i := range t.Seats {
		x := &t.Seats[i]
		if x.Place.Node != n || !which(x) {
			continue
		}
		if r := t.gone(x); r >= 0 && cause.Rank < 0 {
			place := x.Place
			cause.Place, cause.Rank = &place, r
		}
		if reseat && !x.Leaving {
			t.reseat(x, x.Attempt+1)
		}
	}
	if cause.Rank >= 0 {
		t.propose(cause, 0)
	}
}

// nodeBack gives the seats that a node lost with an older life to its new one.
func (t *turn) nodeBack(n events.NodeFact) {
	if t.seatsOn(n.Node) == 0 || t.Agents[n.Node] > n.Incarnation {
		return
	}
	if t.Agents == nil {
		t.Agents = map[events.NodeID]events.Incarnation{}
	}
	t.Agents[n.Node] = n.Incarnation
	t.loseNode(n.Node, events.CauseNodeLost, "node "+string(n.Node)+" came back", func(x *Seat) bool {
		switch x.State {
		case lost: // even if it was only out of reach: its workers were told that they are out
			return true
		case dead, blamed: // of an unknown agent if it has never joined
			return x.Agent != n.Incarnation
		}
		return x.Agent != n.Incarnation && x.Agent != "" // a seat that nobody ever started belongs to the new agent as it is
	}, true)
}

func (t *turn) seatsOn(n events.NodeID) int {
	k := 0
	for _, x := range t.Seats {
		if x.Place.Node == n {
			k++
		}
	}
	return k
}
