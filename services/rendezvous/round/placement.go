package round

import (
	"slices"

	"github.com/regroup-io/regroup/events"
)

// placement takes in which places the job has from now on.
func (t *turn) placement(p events.PlacementSet) {
	if t.in.Number != 0 && t.in.Number <= t.Placement {
		return // an older one, late
	}
	t.Placement = max(t.Placement, t.in.Number)
	t.place(p)
}

// place gives the job its places.
func (t *turn) place(p events.PlacementSet) {
	t.Workers, t.HostOrder = p.Workers, p.Hosts
	if t.Nonce == "" {
		t.Nonce, t.Spec = t.in.Nonce, p.Spec
	}
	for _, place := range p.Places {
		if x := t.seat(place); x == nil {
			t.addSeat(place)
			t.Fresh = t.now
		} else {
			if x.Leaving && (x.State == lost || x.State == blamed || x.State == dead) {
				t.reseat(x, x.Attempt+1) // taken away and given again: whoever sat there is not coming back
			}
			x.Leaving = false
		}
	}
	kept := make(map[events.Place]bool, len(p.Places))
	for _, place := range p.Places {
		kept[place] = true
	}
	var shrunk *Seat // a copy: seats move when others are dropped
	for i := range t.Seats {
		x := &t.Seats[i]
		if kept[x.Place] {
			continue
		}
		if slices.Contains(p.LostNodes, x.Place.Node) {
			continue
		}
		x.Leaving = true
		if t.rankOf(x.Place, x.Incarnation) >= 0 {
			leaving := *x
			shrunk = &leaving
		}
	}
	for _, n := range p.LostNodes {
		t.loseNode(n, events.CauseNodeLost, "node "+string(n)+" is lost", func(x *Seat) bool { return !kept[x.Place] }, false)
	}
	// Seats that nobody sits on any more go; those of members stay until the generation without them is sealed.
	t.dropSeats(func(x *Seat) bool {
		return !kept[x.Place] && (x.State == lost || t.rankOf(x.Place, x.Incarnation) < 0)
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
		t.grow(events.Cause{Kind: events.CauseGrow, Rank: -1, Detail: p.Reason})
	}
}

func (t *turn) anyNewcomer() bool {
	return slices.ContainsFunc(t.Seats, func(x Seat) bool { return (x.State == coming || x.State == joined && x.Cold) && !x.Leaving })
}

// change asks for a planned regroup: in-process members leave at their next commit, others are restarted now.
func (t *turn) change(c events.Cause) {
	if t.open() || t.spent(c) {
		return
	}
	if t.restart() {
		t.propose(c, 0)
		return
	}
	if !t.Planned {
		before := t.View.Cause
		t.Planned, t.Before = true, &before
	}
	t.View.Cause = c
}

// undo takes a planned change back that has lost its reason before the members left: the newcomer has died or lost its
// place, or those who should leave have got theirs back. Nobody regroups for nothing.
func (t *turn) undo() {
	if !t.Planned || t.open() || t.Stopping != nil || t.restart() {
		return
	}
	for i := range t.Seats {
		x := &t.Seats[i]
		if r := t.rankOf(x.Place, x.Incarnation); (x.State == joined && !x.Cold && r < 0 && !t.heldBack(x)) || (x.Leaving && r >= 0) {
			return
		}
	}
	t.Planned = false
	if t.Before != nil {
		t.View.Cause, t.Before = *t.Before, nil
	}
}
