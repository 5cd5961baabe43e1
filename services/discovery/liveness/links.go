package liveness

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
)

// keepEnds is how long the end of a connection is remembered: it may be told before the hello that names the connection.
const keepEnds = time.Minute

// linkKey names a connection as brokers do.
type linkKey struct {
	server string
	client uint64
}

func keyOf(l events.Link) linkKey { return linkKey{l.Server, l.Client} }

// Ended takes in that the broker saw a connection end. If it is the one over which a living node was last heard, the node is
// named: it is to be suspected now, and pinged if it has no newer one within ReconnectWithin.
func (a *Ages) Ended(l events.Link, now time.Time) (cut events.Disconnected, ok bool) {
	if a.ends == nil {
		a.ends = map[linkKey]time.Time{}
	}
	maps.DeleteFunc(a.ends, func(_ linkKey, at time.Time) bool { return now.Sub(at) > keepEnds })
	a.ends[keyOf(l)] = now
	for id, n := range a.nodes { // at most one has it
		if n.link.Same(l) {
			n.cut, n.named = now, now
			return events.Disconnected{Node: id, Incarnation: n.incarnation, Link: n.link}, true
		}
	}
	return events.Disconnected{}, false
}

// Cuts returns the nodes whose connection has ended and whose record does not say so yet, by name: nobody knew whose it was when it
// was told, or nothing came of it. Each is named again only after a time.
func (a *Ages) Cuts(now time.Time) []events.Disconnected {
	var cuts []events.Disconnected
	for id, n := range a.nodes {
		if !n.cut.IsZero() && !n.told && !a.paused && now.Sub(n.named) >= a.SuspectAfter {
			n.named = now
			cuts = append(cuts, events.Disconnected{Node: id, Incarnation: n.incarnation, Link: n.link})
		}
	}
	slices.SortFunc(cuts, func(x, y events.Disconnected) int { return cmp.Compare(x.Node, y.Node) })
	return cuts
}

// speaks takes in over which connection a node speaks, and tells whether that is a living one.
func (a *Ages) speaks(n *age, l events.Link, now time.Time) bool {
	if _, ended := a.ends[keyOf(l)]; ended && l.Known() {
		if l.After(n.link) {
			n.link, n.cut = l, now // its end was told before anybody knew whose it was
		}
		return false
	}
	if l.After(n.link) {
		n.link, n.cut = l, time.Time{}
	}
	return n.cut.IsZero()
}

// record takes in what discovery's record says of a node's connection. The replica that heard of its end may be gone since.
func (a *Ages) record(n *age, v events.NodeView, now time.Time) {
	n.recorded, n.told = v.Link, v.Disconnected
	if v.Link.After(n.link) { // it has said hello over a new one, to whichever replica
		n.link, n.cut, n.heard = v.Link, time.Time{}, now
	}
	_, ended := a.ends[keyOf(n.link)]
	if n.cut.IsZero() && (ended || v.Disconnected && n.link.Same(v.Link)) {
		n.cut = now
	}
}

// reconnectWithin is how long a node whose connection has ended may take to come back. When most of them are cut at once, the
// broker is the one to blame, and they may all have to wait for each other: then only silence counts.
func (a *Ages) reconnectWithin() time.Duration {
	cuts := 0
	for _, n := range a.nodes {
		if !n.cut.IsZero() {
			cuts++
		}
	}
	if cuts > 2 && 2*cuts > len(a.nodes) {
		return max(a.LostAfter, a.ReconnectWithin)
	}
	return a.ReconnectWithin
}
