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

// patience returns after which silence a node is to be suspected, and pinged. One in a crowd may be silent for one heartbeat more;
// that ends later than it begins, as agents hear of the new pace at their next hello. And when many fall silent at once, it is
// more likely that we or the brokers cannot keep up, and a fact about each of them would not help: then all get twice the time
// (the idea is Lifeguard's: Dadgar, Phillips, Currey 2018).
func (a *Ages) patience(now time.Time) (suspect, lost time.Duration) {
	suspect, lost = a.SuspectAfter, a.LostAfter
	if len(a.nodes) >= Crowd/2 {
		suspect, lost = suspect+crowdBeat, lost+crowdBeat
	}
	silent := 0
	for _, n := range a.nodes {
		if now.Sub(n.heard) >= suspect {
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
