package liveness

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/broker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/localhealth"
)

// Incarnation identifies one incarnation of a node.
type Incarnation struct {
	Node        ident.NodeID
	Incarnation ident.Incarnation
}

// HeartbeatTracker tracks how long each node has been silent, as one replica hears it. It is lost
// with the replica, and a new replica gives every node a full timeout. As in SWIM (Das, Gupta,
// Motivala 2002) a node is pinged before it is declared lost. There are no indirect pings: they
// would go through the same broker.
type HeartbeatTracker struct {
	SuspectAfter time.Duration // silence after which a node is suspected
	LostAfter    time.Duration // silence after which it is pinged, and lost if that fails
	// A longer gap between two checks means that this replica was paused. With NeedsProof an
	// older proof does not count.
	Gap time.Duration
	// ReconnectWithin is how long an agent whose connection has closed may take to reconnect.
	ReconnectWithin time.Duration
	// NeedsProof: silence counts, and leases are granted, only while a majority of the brokers has
	// answered lately. See Majority.
	NeedsProof bool

	nodes       map[ident.NodeID]*trackedNode
	closedConns map[connKey]time.Time // connections that closed recently
	health      localhealth.Monitor
	provenAt    time.Time // when the newest question was sent that a majority has answered
	wasDeaf     bool
}

type trackedNode struct {
	incarnation  ident.Incarnation
	suspected    bool      // according to discovery's record
	lastSeen     time.Time // last heartbeat, or the start of a timeout
	everSeen     bool      // it was heard, so that lastSeen is not only the start of its tracking
	lastReported time.Time // last reported to be suspected
	pingedAt     time.Time // last reported to be pinged
	timesLost    uint64    // according to discovery's record

	// For leases: the newest heartbeats, the last one first, and the last one before provenAt.
	beats  [2]time.Time
	proven time.Time

	link                 broker.Link // newest known connection
	recorded             broker.Link // according to discovery's record
	disconnectedAt       time.Time   // since when link is known to be closed; zero = it is open
	disconnectReportedAt time.Time   // last reported as disconnected
	recordedDisconnected bool        // discovery's record says that it is closed
}

// seen records that the node was heard.
func (n *trackedNode) seen(now time.Time) {
	n.lastSeen, n.lastReported, n.pingedAt, n.everSeen = now, time.Time{}, time.Time{}, true
}

// mend reports whether discovery's record must be updated now that the node was heard.
func (n *trackedNode) mend() bool { return n.suspected || n.link.After(n.recorded) }

// Update applies discovery's own record of a node: only recorded nodes that are alive are tracked.
func (a *HeartbeatTracker) Update(v events.NodeView, now time.Time) {
	if v.State != events.NodeStateReady && v.State != events.NodeStateSuspected {
		delete(a.nodes, v.Node)
		return
	}
	n := a.nodes[v.Node]
	if n == nil || n.incarnation != v.Incarnation {
		n = &trackedNode{incarnation: v.Incarnation, lastSeen: now}
		if a.nodes == nil {
			a.nodes = map[ident.NodeID]*trackedNode{}
		}
		a.nodes[v.Node] = n
	}
	if n.suspected && v.State == events.NodeStateReady { // another replica has heard it
		n.seen(now)
	}
	n.suspected, n.timesLost = v.State == events.NodeStateSuspected, v.TimesLost
	a.updateConnection(n, v, now)
}

// Forget drops a node whose record was removed.
func (a *HeartbeatTracker) Forget(n ident.NodeID) { delete(a.nodes, n) }

// Heartbeat is Observe for a heartbeat, which every replica hears.
func (a *HeartbeatTracker) Heartbeat(s Incarnation, l broker.Link, now time.Time) (mend bool) {
	n := a.observe(s, l, now)
	if n == nil {
		return false
	}
	n.beats = [2]time.Time{now, n.beats[0]}
	return n.mend()
}

// Observe records a sign of life and its connection. It reports whether the record must be updated:
// the node is suspected in it, or uses a newer connection.
func (a *HeartbeatTracker) Observe(s Incarnation, l broker.Link, now time.Time) (mend bool) {
	n := a.observe(s, l, now)
	return n != nil && n.mend()
}

func (a *HeartbeatTracker) observe(s Incarnation, l broker.Link, now time.Time) *trackedNode {
	n := a.nodes[s.Node]
	if n == nil || n.incarnation != s.Incarnation || !a.noteConnection(n, l, now) {
		return nil
	}
	n.seen(now)
	return n
}

// Silence returns how long a node has not been heard; 0 = unknown.
func (a *HeartbeatTracker) Silence(s Incarnation, now time.Time) time.Duration {
	if n := a.nodes[s.Node]; n != nil && n.incarnation == s.Incarnation {
		return max(0, now.Sub(n.lastSeen))
	}
	return 0
}

// SeenSince reports whether the silence of a node is shorter than this.
func (a *HeartbeatTracker) SeenSince(s Incarnation, silence time.Duration, now time.Time) bool {
	n := a.nodes[s.Node]
	return n != nil && n.incarnation == s.Incarnation && now.Sub(n.lastSeen) < silence
}

// Unheard reports whether this replica has never heard a node. Its Silence then counts from when it
// was first tracked.
func (a *HeartbeatTracker) Unheard(s Incarnation) bool {
	n := a.nodes[s.Node]
	return n == nil || n.incarnation != s.Incarnation || !n.everSeen
}

// SilentBefore returns the silence of the incarnation that a hello replaces; 0 = unknown.
func (a *HeartbeatTracker) SilentBefore(b events.NodeHello, now time.Time) time.Duration {
	n := a.nodes[b.Node]
	if n == nil || n.incarnation == b.Incarnation || !n.everSeen {
		return 0
	}
	return a.Silence(Incarnation{b.Node, n.incarnation}, now)
}

// Connected sets whether this replica receives anything at all. Timeouts stop while it does not.
func (a *HeartbeatTracker) Connected(is bool, now time.Time) {
	if a.health.Connected(is) {
		a.restartTimeouts(now)
	}
}

// Deaf reports whether this replica does not receive what is sent, or cannot prove that it does:
// then timeouts are stopped.
func (a *HeartbeatTracker) Deaf(now time.Time) bool {
	return a.health.Disconnected() || a.NeedsProof && now.Sub(a.provenAt) > a.Gap
}

// Check returns the nodes to be suspected and those to be pinged, by name. A node is returned again
// only after another full timeout, in case the report had no effect.
func (a *HeartbeatTracker) Check(now time.Time) (suspect, ask []Incarnation) {
	deaf := a.Deaf(now)
	if a.health.Check(now, a.Gap) || a.wasDeaf && !deaf {
		a.restartTimeouts(now)
	}
	if a.wasDeaf = deaf; deaf {
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
		disconnected := !n.disconnectedAt.IsZero() && now.Sub(n.disconnectedAt) >= within && now.Sub(n.pingedAt) >= within
		if disconnected || silent >= lostAfter && now.Sub(n.pingedAt) >= lostAfter {
			n.pingedAt = now
			ask = append(ask, who)
		}
	}
	for _, found := range [][]Incarnation{suspect, ask} {
		slices.SortFunc(found, func(x, y Incarnation) int { return cmp.Compare(x.Node, y.Node) })
	}
	return suspect, ask
}

func (a *HeartbeatTracker) restartTimeouts(now time.Time) {
	for _, n := range a.nodes {
		n.lastSeen, n.lastReported, n.pingedAt = now, time.Time{}, time.Time{}
		if !n.disconnectedAt.IsZero() {
			n.disconnectedAt = now
		}
	}
}

// PingPending reports whether a pinged node was not heard since: then a failed ping is evidence.
func (a *HeartbeatTracker) PingPending(s Incarnation) bool {
	n := a.nodes[s.Node]
	return n != nil && n.incarnation == s.Incarnation && !n.pingedAt.IsZero()
}

// Skip records that the time since the last check was spent on pings and is no gap.
func (a *HeartbeatTracker) Skip(now time.Time) { a.health.Skip(now) }

// closedConnsKept is how long a closed connection is remembered: the report may arrive before the
// hello that names the connection.
const closedConnsKept = time.Minute

// connKey identifies a connection by the broker's ids.
type connKey struct {
	server string
	client uint64
}

func keyOf(l broker.Link) connKey { return connKey{l.Server, l.Client} }

// ConnectionClosed records that the broker saw a connection close. If a live node was last heard
// over it, the node is returned: it is to be suspected now, and pinged if it has no newer
// connection within ReconnectWithin.
func (a *HeartbeatTracker) ConnectionClosed(l broker.Link, now time.Time) (cut events.Disconnected, ok bool) {
	if a.closedConns == nil {
		a.closedConns = map[connKey]time.Time{}
	}
	maps.DeleteFunc(a.closedConns, func(_ connKey, at time.Time) bool { return now.Sub(at) > closedConnsKept })
	a.closedConns[keyOf(l)] = now
	for id, n := range a.nodes { // at most one node has it
		if n.link.Same(l) {
			n.disconnectedAt, n.disconnectReportedAt = now, now
			return events.Disconnected{Node: id, Incarnation: n.incarnation, Link: n.link}, true
		}
	}
	return events.Disconnected{}, false
}

// Disconnections returns, by name, the nodes whose connection has closed and whose record does not
// show it yet: the owner was unknown when the connection closed, or the report had no effect. A
// node is returned again only after a while.
func (a *HeartbeatTracker) Disconnections(now time.Time) []events.Disconnected {
	var cuts []events.Disconnected
	for id, n := range a.nodes {
		if !n.disconnectedAt.IsZero() && !n.recordedDisconnected && !a.Deaf(now) && now.Sub(n.disconnectReportedAt) >= a.SuspectAfter {
			n.disconnectReportedAt = now
			cuts = append(cuts, events.Disconnected{Node: id, Incarnation: n.incarnation, Link: n.link})
		}
	}
	slices.SortFunc(cuts, func(x, y events.Disconnected) int { return cmp.Compare(x.Node, y.Node) })
	return cuts
}

// noteConnection records the connection that a node uses, and reports whether it is open.
func (a *HeartbeatTracker) noteConnection(n *trackedNode, l broker.Link, now time.Time) bool {
	if _, ended := a.closedConns[keyOf(l)]; ended && l.Known() {
		if l.After(n.link) {
			n.link, n.disconnectedAt = l, now // it closed before its owner was known
		}
		return false
	}
	if l.After(n.link) {
		n.link, n.disconnectedAt = l, time.Time{}
	}
	return n.disconnectedAt.IsZero()
}

// updateConnection applies what discovery's record says about a node's connection. The replica that
// received the report of its end may be gone.
func (a *HeartbeatTracker) updateConnection(n *trackedNode, v events.NodeView, now time.Time) {
	n.recorded, n.recordedDisconnected = v.Link, v.Disconnected
	if v.Link.After(n.link) { // it has said hello on a new connection, to any replica
		n.link, n.disconnectedAt, n.lastSeen = v.Link, time.Time{}, now
	}
	_, ended := a.closedConns[keyOf(n.link)]
	if n.disconnectedAt.IsZero() && (ended || v.Disconnected && n.link.Same(v.Link)) {
		n.disconnectedAt = now
	}
}

// reconnectWithin returns how long a disconnected node has to reconnect. If most nodes are
// disconnected at once, the broker is the likely cause, and they reconnect one after the other:
// then they have LostAfter, if that is longer.
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

// LargeFleet is the number of nodes from which agents are asked to send less often. Ten thousand
// heartbeats a second keep a core busy, half of it in the brokers; in jobs of a thousand nodes
// peers usually detect a loss first.
const LargeFleet = 1000

const (
	// The interval of heartbeats is a step per heartbeatStepNodes nodes or a part of them: 1 s for
	// 1,000 and for 2,500 nodes, 2 s for 2,501.
	heartbeatStep      = time.Second
	heartbeatStepNodes = 2500
	// Hellos come at this interval, once more for each LargeFleet nodes: each reads the bucket.
	helloEvery = 10 * time.Second
	// A worker's join may take twice this time, once more for each LargeFleet nodes: it waits
	// behind those of others.
	joinPatience = time.Second
)

func welcome(n ident.NodeID, fleetSize int) events.NodeWelcome {
	w := events.NodeWelcome{Node: n, Hello: spec.Duration(helloEvery * time.Duration(1+fleetSize/LargeFleet))}
	if fleetSize >= LargeFleet {
		w.Heartbeat, w.Patience = spec.Duration(heartbeatInterval(fleetSize)), spec.Duration(joinPatience*time.Duration(2+fleetSize/LargeFleet))
	}
	return w
}

func heartbeatInterval(fleetSize int) time.Duration {
	return heartbeatStep * time.Duration((fleetSize+heartbeatStepNodes-1)/heartbeatStepNodes)
}

// FleetSize returns the number of tracked nodes.
func (a *HeartbeatTracker) FleetSize() int { return len(a.nodes) }

// timeouts returns the silence after which a node is to be suspected, and pinged. In a large fleet
// both are longer by one interval of heartbeats, that of twice as many nodes: agents learn a new
// interval with their next hello. If many nodes fall silent at once, the replica or the brokers are
// probably overloaded, and a fact about each node would not help: then both are twice LostAfter (as
// in Lifeguard: Dadgar, Phillips, Currey 2018).
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
	if silent > manyNodes+len(a.nodes)/manyPart {
		return 2 * lost, 2 * lost
	}
	return suspect, lost
}

// Many nodes are silent at once if they are more than manyNodes and a tenth of all.
const (
	manyNodes = 10
	manyPart  = 10
)
