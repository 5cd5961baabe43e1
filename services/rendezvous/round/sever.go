package round

import "github.com/regroup-io/regroup/events"

// linked takes in what a fact says of a node's connection to the brokers.
func (t *turn) linked(n events.NodeFact) {
	if !n.Disconnected {
		delete(t.Cut, n.Node)
		return
	}
	if t.Cut == nil {
		t.Cut = map[events.NodeID]events.Incarnation{}
	}
	t.Cut[n.Node] = n.Incarnation
}

// cutOff tells whether the broker saw the connection of the seat's agent end.
func (t *turn) cutOff(x *Seat) bool { return x.Agent != "" && t.Cut[x.Place.Node] == x.Agent }

// severed takes the members of a node out of the next generation that two kinds of witnesses miss: the broker its agent,
// and peers one of its workers. One alone proves nothing: links break, and being accused removes nobody. Both together are waited for
// no longer; if the node lives, its workers come in later as newcomers.
func (t *turn) severed() {
	if len(t.Cut) == 0 || !t.open() || t.restart() {
		return
	}
	missed := map[events.NodeID]bool{}
	for i := range t.Seats {
		x := &t.Seats[i]
		accused := x.State == member && !x.Accused.IsZero()
		if t.cutOff(x) && (accused || x.State == dead && t.rankOf(x.Place, x.Incarnation) >= 0) {
			missed[x.Place.Node] = true
		}
	}
	for i := range t.Seats {
		if x := &t.Seats[i]; x.State == member && missed[x.Place.Node] && t.cutOff(x) {
			x.State, x.Accused = coming, zeroTime
		}
	}
}
