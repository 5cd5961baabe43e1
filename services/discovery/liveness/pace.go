package liveness

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// Crowd is from how many nodes on agents are asked to speak less often. Ten thousand heartbeats a second keep a core busy, half of
// it in the brokers; a thousand nodes lose one of them often enough to hear of it from peers first.
const Crowd = 1000

const (
	crowdBeat  = time.Second      // between heartbeats in a crowd
	helloEvery = 10 * time.Second // between hellos for each Crowd: each costs a look into the store
)

// welcome answers a hello.
func welcome(n events.NodeID, crowd int) events.NodeWelcome {
	w := events.NodeWelcome{Node: n, Hello: events.Duration(helloEvery * time.Duration(1+crowd/Crowd))}
	if crowd >= Crowd {
		w.Heartbeat = events.Duration(crowdBeat)
	}
	return w
}

// Crowd is how many nodes are aged.
func (a *Ages) Crowd() int { return len(a.nodes) }

// slack is how much longer the silence of one in a crowd may be. It ends later than it begins: agents hear of the new pace at
// their next hello.
func (a *Ages) slack() time.Duration {
	if len(a.nodes) < Crowd/2 {
		return 0
	}
	return crowdBeat
}
