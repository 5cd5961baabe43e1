package liveness

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Silent names one life of a node.
type Silent struct {
	Node        events.NodeID
	Incarnation events.Incarnation
}

// Ages is how long each node has been silent, as one replica hears it. It is lost with the replica, and each new
// replica gives every node a full grace. Suspicion by age follows SWIM (Das, Gupta, Motivala 2002) in that a direct ping
// comes before the verdict; there are no indirect pings, because all of them would go through the same broker.
type Ages struct {
	SuspectAfter time.Duration // silence after which a node is suspected
	LostAfter    time.Duration // silence after which it is pinged, and lost if that fails
	Gap          time.Duration // a longer gap between two looks means that we, not they, were away
	// ReconnectWithin is how long an agent whose connection was seen to end has to come back before it is pinged.
	ReconnectWithin time.Duration

	nodes  map[events.NodeID]*age
	ends   map[linkKey]time.Time // connections that the broker saw end lately
	paused bool
	looked time.Time
}

type age struct {
	incarnation events.Incarnation
	suspected   bool      // as discovery's record says
	heard       time.Time // last sign of life, or the begin of a grace
	accused     time.Time // last reported as to be suspected
	asked       time.Time // last reported as to be pinged

	link     events.Link // newest connection that is known
	recorded events.Link // as discovery's record says
	cut      time.Time   // since when the end of link is known; zero = it stands
	named    time.Time   // last reported as cut
	told     bool        // discovery's record says that it has ended
}

// Know takes in discovery's own record of a node: only those on record and alive are aged.
func (a *Ages) Know(v events.NodeView, now time.Time) {
	if v.State != events.NodeStateReady && v.State != events.NodeStateSuspected {
		delete(a.nodes, v.Node)
		return
	}
	n := a.nodes[v.Node]
	if n == nil || n.incarnation != v.Incarnation {
		n = &age{incarnation: v.Incarnation, heard: now}
		if a.nodes == nil {
			a.nodes = map[events.NodeID]*age{}
		}
		a.nodes[v.Node] = n
	}
	if n.suspected && v.State == events.NodeStateReady { // another replica has heard it
		n.heard, n.accused, n.asked = now, time.Time{}, time.Time{}
	}
	n.suspected = v.State == events.NodeStateSuspected
	a.record(n, v, now)
}

// Forget drops a node whose record was removed.
func (a *Ages) Forget(n events.NodeID) { delete(a.nodes, n) }

// Hear takes in a sign of life, and over which connection it came. It tells whether the record has to be mended: the node is
// suspected in it, or speaks over a newer connection.
func (a *Ages) Hear(s Silent, l events.Link, now time.Time) (mend bool) {
	n := a.nodes[s.Node]
	if n == nil || n.incarnation != s.Incarnation || !a.speaks(n, l, now) {
		return false
	}
	n.heard, n.accused, n.asked = now, time.Time{}, time.Time{}
	return n.suspected || n.link.After(n.recorded)
}

// Connected says whether this replica can hear anything at all. Ageing stops while it cannot.
func (a *Ages) Connected(is bool, now time.Time) {
	if is && a.paused {
		a.grace(now)
	}
	a.paused = !is
}

// Look returns who is to be suspected and who is to be pinged, by name. Each is named again only after the same time has
// passed once more, in case that nothing came of it.
func (a *Ages) Look(now time.Time) (suspect, ask []Silent) {
	gap := now.Sub(a.looked)
	if !a.looked.IsZero() && (gap > a.Gap || gap < 0) {
		a.grace(now) // paused process, suspended machine, or a clock that was set back
	}
	a.looked = now
	if a.paused {
		return nil, nil
	}
	within := a.reconnectWithin()
	suspectAfter, lostAfter := a.patience(now)
	for id, n := range a.nodes {
		who, silent := Silent{id, n.incarnation}, now.Sub(n.heard)
		if !n.suspected && silent >= suspectAfter && now.Sub(n.accused) >= suspectAfter {
			n.accused = now
			suspect = append(suspect, who)
		}
		gone := !n.cut.IsZero() && now.Sub(n.cut) >= within && now.Sub(n.asked) >= within
		if gone || silent >= lostAfter && now.Sub(n.asked) >= lostAfter {
			n.asked = now
			ask = append(ask, who)
		}
	}
	for _, found := range [][]Silent{suspect, ask} {
		slices.SortFunc(found, func(x, y Silent) int { return cmp.Compare(x.Node, y.Node) })
	}
	return suspect, ask
}

// grace begins all silences anew.
func (a *Ages) grace(now time.Time) {
	for _, n := range a.nodes {
		n.heard, n.accused, n.asked = now, time.Time{}, time.Time{}
		if !n.cut.IsZero() {
			n.cut = now
		}
	}
}

// Paused tells whether ageing has stopped because this replica hears nobody.
func (a *Ages) Paused() bool { return a.paused }

// Asked tells whether a node that is being pinged has not been heard since by any other way: only then does a ping that
// fails say anything.
func (a *Ages) Asked(s Silent) bool {
	n := a.nodes[s.Node]
	return n != nil && n.incarnation == s.Incarnation && !n.asked.IsZero()
}

// Away says that the time since the last look was spent by us on purpose, for pings, and is no gap.
func (a *Ages) Away(now time.Time) { a.looked = now }
