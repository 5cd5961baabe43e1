package liveness

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Incarnation names one life of a node.
type Incarnation struct {
	Node        events.NodeID
	Incarnation events.Incarnation
}

// HeartbeatTracker is how long each node has been silent, as one replica hears it. It is lost with
// the replica, and each new replica gives every node a full grace. Suspicion by age follows SWIM
// (Das, Gupta, Motivala 2002) in that a direct ping comes before the verdict; there are no indirect
// pings, because all of them would go through the same broker.
type HeartbeatTracker struct {
	SuspectAfter time.Duration // silence after which a node is suspected
	LostAfter    time.Duration // silence after which it is pinged, and lost if that fails
	Gap          time.Duration // a longer gap between two looks means that we, not they, were away
	// ReconnectWithin is how long an agent whose connection was seen to end has to come back before
	// it is pinged.
	ReconnectWithin time.Duration

	nodes       map[events.NodeID]*trackedNode
	closedConns map[connKey]time.Time // connections that the broker saw end lately
	paused      bool
	lastCheck   time.Time
}

type trackedNode struct {
	incarnation  events.Incarnation
	suspected    bool      // as discovery's record says
	lastSeen     time.Time // last sign of life, or the begin of a grace
	lastReported time.Time // last reported as to be suspected
	pingedAt     time.Time // last reported as to be pinged

	link                 events.Link // newest connection that is known
	recorded             events.Link // as discovery's record says
	disconnectedAt       time.Time   // since when the end of link is known; zero = it stands
	disconnectReportedAt time.Time   // last reported as cut
	recordedDisconnected bool        // discovery's record says that it has ended
}

// Update takes in discovery's own record of a node: only those on record and alive are aged.
func (a *HeartbeatTracker) Update(v events.NodeView, now time.Time) {
	if v.State != events.NodeStateReady && v.State != events.NodeStateSuspected {
		delete(a.nodes, v.Node)
		return
	}
	n := a.nodes[v.Node]
	if n == nil || n.incarnation != v.Incarnation {
		n = &trackedNode{incarnation: v.Incarnation, lastSeen: now}
		if a.nodes == nil {
			a.nodes = map[events.NodeID]*trackedNode{}
		}
		a.nodes[v.Node] = n
	}
	if n.suspected && v.State == events.NodeStateReady { // another replica has heard it
		n.lastSeen, n.lastReported, n.pingedAt = now, time.Time{}, time.Time{}
	}
	n.suspected = v.State == events.NodeStateSuspected
	a.updateConnection(n, v, now)
}

// Forget drops a node whose record was removed.
func (a *HeartbeatTracker) Forget(n events.NodeID) { delete(a.nodes, n) }

// Observe takes in a sign of life, and over which connection it came. It tells whether the record
// has to be mended: the node is suspected in it, or speaks over a newer connection.
func (a *HeartbeatTracker) Observe(s Incarnation, l events.Link, now time.Time) (mend bool) {
	n := a.nodes[s.Node]
	if n == nil || n.incarnation != s.Incarnation || !a.noteConnection(n, l, now) {
		return false
	}
	n.lastSeen, n.lastReported, n.pingedAt = now, time.Time{}, time.Time{}
	return n.suspected || n.link.After(n.recorded)
}

// Connected says whether this replica can hear anything at all. Ageing stops while it cannot.
func (a *HeartbeatTracker) Connected(is bool, now time.Time) {
	if is && a.paused {
		a.restartTimeouts(now)
	}
	a.paused = !is
}

// Check returns who is to be suspected and who is to be pinged, by name. Each is named again only
// after the same time has passed once more, in case that nothing came of it.
func (a *HeartbeatTracker) Check(now time.Time) (suspect, ask []Incarnation) {
	gap := now.Sub(a.lastCheck)
	if !a.lastCheck.IsZero() && (gap > a.Gap || gap < 0) {
		a.restartTimeouts(now) // paused process, suspended machine, or a clock that was set back
	}
	a.lastCheck = now
	if a.paused {
		return nil, nil
	}
	within := a.reconnectWithin()
	suspectAfter, lostAfter := a.timeouts(now)
	for id, n := range a.nodes {
		who, silent := Incarnation{id, n.incarnation}, now.Sub(n.lastSeen)
		if !n.suspected && silent >= suspectAfter && now.Sub(n.lastReported) >= suspectAfter {
			n.lastReported = now
			suspect = append(suspect, who)
		}
		gone := !n.disconnectedAt.IsZero() && now.Sub(n.disconnectedAt) >= within && now.Sub(n.pingedAt) >= within
		if gone || silent >= lostAfter && now.Sub(n.pingedAt) >= lostAfter {
			n.pingedAt = now
			ask = append(ask, who)
		}
	}
	for _, found := range [][]Incarnation{suspect, ask} {
		slices.SortFunc(found, func(x, y Incarnation) int { return cmp.Compare(x.Node, y.Node) })
	}
	return suspect, ask
}

// restartTimeouts begins all silences anew.
func (a *HeartbeatTracker) restartTimeouts(now time.Time) {
	for _, n := range a.nodes {
		n.lastSeen, n.lastReported, n.pingedAt = now, time.Time{}, time.Time{}
		if !n.disconnectedAt.IsZero() {
			n.disconnectedAt = now
		}
	}
}

// Paused tells whether ageing has stopped because this replica hears nobody.
func (a *HeartbeatTracker) Paused() bool { return a.paused }

// PingPending tells whether a node that is being pinged has not been heard since by any other way:
// only then does a ping that fails say anything.
func (a *HeartbeatTracker) PingPending(s Incarnation) bool {
	n := a.nodes[s.Node]
	return n != nil && n.incarnation == s.Incarnation && !n.pingedAt.IsZero()
}

// Skip says that the time since the last look was spent by us on purpose, for pings, and is no gap.
func (a *HeartbeatTracker) Skip(now time.Time) { a.lastCheck = now }

// closedConnsKept is how long the end of a connection is remembered: it may be told before the
// hello that names the connection.
const closedConnsKept = time.Minute

// connKey names a connection as brokers do.
type connKey struct {
	server string
	client uint64
}

func keyOf(l events.Link) connKey { return connKey{l.Server, l.Client} }

// ConnectionClosed takes in that the broker saw a connection end. If it is the one over which a
// living node was last heard, the node is named: it is to be suspected now, and pinged if it has no
// newer one within ReconnectWithin.
func (a *HeartbeatTracker) ConnectionClosed(l events.Link, now time.Time) (cut events.Disconnected, ok bool) {
	if a.closedConns == nil {
		a.closedConns = map[connKey]time.Time{}
	}
	maps.DeleteFunc(a.closedConns, func(_ connKey, at time.Time) bool { return now.Sub(at) > closedConnsKept })
	a.closedConns[keyOf(l)] = now
	for id, n := range a.nodes { // at most one has it
		if n.link.Same(l) {
			n.disconnectedAt, n.disconnectReportedAt = now, now
			return events.Disconnected{Node: id, Incarnation: n.incarnation, Link: n.link}, true
		}
	}
	return events.Disconnected{}, false
}

// Disconnections returns the nodes whose connection has ended and whose record does not say so yet,
// by name: nobody knew whose it was when it was told, or nothing came of it. Each is named again
// only after a time.
func (a *HeartbeatTracker) Disconnections(now time.Time) []events.Disconnected {
	var cuts []events.Disconnected
	for id, n := range a.nodes {
		if !n.disconnectedAt.IsZero() && !n.recordedDisconnected && !a.paused && now.Sub(n.disconnectReportedAt) >= a.SuspectAfter {
			n.disconnectReportedAt = now
			cuts = append(cuts, events.Disconnected{Node: id, Incarnation: n.incarnation, Link: n.link})
		}
	}
	slices.SortFunc(cuts, func(x, y events.Disconnected) int { return cmp.Compare(x.Node, y.Node) })
	return cuts
}

// noteConnection takes in over which connection a node speaks, and tells whether that is a living
// one.
func (a *HeartbeatTracker) noteConnection(n *trackedNode, l events.Link, now time.Time) bool {
	if _, ended := a.closedConns[keyOf(l)]; ended && l.Known() {
		if l.After(n.link) {
			n.link, n.disconnectedAt = l, now // its end was told before anybody knew whose it was
		}
		return false
	}
	if l.After(n.link) {
		n.link, n.disconnectedAt = l, time.Time{}
	}
	return n.disconnectedAt.IsZero()
}

// updateConnection takes in what discovery's record says of a node's connection. The replica that
// heard of its end may be gone since.
func (a *HeartbeatTracker) updateConnection(n *trackedNode, v events.NodeView, now time.Time) {
	n.recorded, n.recordedDisconnected = v.Link, v.Disconnected
	if v.Link.After(n.link) { // it has said hello over a new one, to whichever replica
		n.link, n.disconnectedAt, n.lastSeen = v.Link, time.Time{}, now
	}
	_, ended := a.closedConns[keyOf(n.link)]
	if n.disconnectedAt.IsZero() && (ended || v.Disconnected && n.link.Same(v.Link)) {
		n.disconnectedAt = now
	}
}

// reconnectWithin is how long a node whose connection has ended may take to come back. When most of
// them are cut at once, the broker is the one to blame, and they may all have to wait for each
// other: then only silence counts.
func (a *HeartbeatTracker) reconnectWithin() time.Duration {
	cuts := 0
	for _, n := range a.nodes {
		if !n.disconnectedAt.IsZero() {
			cuts++
		}
	}
	if cuts > 2 && 2*cuts > len(a.nodes) {
		return max(a.LostAfter, a.ReconnectWithin)
	}
	return a.ReconnectWithin
}

// LargeFleet is from how many nodes on agents are asked to speak less often. Ten thousand
// heartbeats a second keep a core busy, half of it in the brokers; a thousand nodes lose one of
// them often enough to hear of it from peers first.
const LargeFleet = 1000

const (
	heartbeatStep      = time.Second // between heartbeats in a crowd, for each crowdBeats nodes or a part of them
	heartbeatStepNodes = 2500
	helloEvery         = 10 * time.Second // between hellos for each Crowd: each costs a look into the store
	joinPatience       = time.Second      // for an answer, twice and once more for each Crowd: repeated requests only make it later
)

// welcome answers a hello.
func welcome(n events.NodeID, crowd int) events.NodeWelcome {
	w := events.NodeWelcome{Node: n, Hello: spec.Duration(helloEvery * time.Duration(1+crowd/LargeFleet))}
	if crowd >= LargeFleet {
		w.Heartbeat, w.Patience = spec.Duration(heartbeatInterval(crowd)), spec.Duration(joinPatience*time.Duration(2+crowd/LargeFleet))
	}
	return w
}

// heartbeatInterval is the time between the heartbeats of each of so many nodes.
func heartbeatInterval(crowd int) time.Duration {
	return heartbeatStep * time.Duration((crowd+heartbeatStepNodes-1)/heartbeatStepNodes)
}

// FleetSize is how many nodes are aged.
func (a *HeartbeatTracker) FleetSize() int { return len(a.nodes) }

// timeouts returns after which silence a node is to be suspected, and pinged. One in a crowd may be
// silent for one heartbeat more, and that of a crowd twice as large: agents hear of the new pace at
// their next hello. And when many fall silent at once, it is more likely that we or the brokers
// cannot keep up, and a fact about each of them would not help: then all get twice the time (the
// idea is Lifeguard's: Dadgar, Phillips, Currey 2018).
func (a *HeartbeatTracker) timeouts(now time.Time) (suspect, lost time.Duration) {
	suspect, lost = a.SuspectAfter, a.LostAfter
	if n := 2 * len(a.nodes); n >= LargeFleet {
		suspect, lost = suspect+heartbeatInterval(n), lost+heartbeatInterval(n)
	}
	silent := 0
	for _, n := range a.nodes {
		if now.Sub(n.lastSeen) >= suspect {
			silent++
		}
	}
	if silent > manyNodes+len(a.nodes)/manyShare {
		return 2 * lost, 2 * lost
	}
	return suspect, lost
}

// Many are more than so many nodes and this share of all.
const (
	manyNodes = 10
	manyShare = 10
)
