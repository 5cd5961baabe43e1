package sim

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// connect gives a node's agent a new connection to the broker.
func (n *node) connect() {
	n.w.made++
	count := n.link.Count + 1
	if n.link.Server != string(n.agent) {
		count = 1
	}
	// The server's id is the agent's incarnation, so that a count belongs to one incarnation.
	n.link = events.Link{Server: string(n.agent), Client: uint64(n.w.made), Count: count}
}

// disconnect ends it. The broker notices soon, or by its pings if the network is cut; discovery may
// miss its event.
func (n *node) disconnect() {
	after := n.w.hop()
	if n.w.chance(20) {
		after += n.w.between(time.Second, 12*time.Second)
	}
	l := events.Link{Server: n.link.Server, Client: n.link.Client}
	for _, s := range n.w.services[events.ServiceDiscovery] {
		if !n.w.chance(2 * n.w.sc.loss) {
			n.w.after(after+n.w.hop(), func() { s.signal(l) })
		}
	}
}
