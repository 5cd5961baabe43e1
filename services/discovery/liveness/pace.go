package liveness

import (
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// Crowd is from how many nodes on agents are asked to speak less often. Ten thousand heartbeats a second keep a core busy, half of
// it in the brokers; a thousand nodes lose one of them often enough to hear of it from peers first.
const Crowd = 1000

const (
	crowdBeat  = time.Second // between heartbeats in a crowd, for each crowdBeats nodes or a part of them
	crowdBeats = 2500
	helloEvery = 10 * time.Second // between hellos for each Crowd: each costs a look into the store
	answerIn   = time.Second      // for an answer, twice and once more for each Crowd: repeated requests only make it later
)

// welcome answers a hello.
func welcome(n events.NodeID, crowd int) events.NodeWelcome {
	w := events.NodeWelcome{Node: n, Hello: spec.Duration(helloEvery * time.Duration(1+crowd/Crowd))}
	if crowd >= Crowd {
		w.Heartbeat, w.Patience = spec.Duration(beat(crowd)), spec.Duration(answerIn*time.Duration(2+crowd/Crowd))
	}
	return w
}

// beat is the time between the heartbeats of each of so many nodes.
func beat(crowd int) time.Duration { return crowdBeat * time.Duration((crowd+crowdBeats-1)/crowdBeats) }

// Crowd is how many nodes are aged.
func (a *Ages) Crowd() int { return len(a.nodes) }

// patience returns after which silence a node is to be suspected, and pinged. One in a crowd may be silent for one heartbeat more,
// and that of a crowd twice as large: agents hear of the new pace at their next hello. And when many fall silent at once, it is
// more likely that we or the brokers cannot keep up, and a fact about each of them would not help: then all get twice the time
// (the idea is Lifeguard's: Dadgar, Phillips, Currey 2018).
func (a *Ages) patience(now time.Time) (suspect, lost time.Duration) {
	suspect, lost = a.SuspectAfter, a.LostAfter
	if n := 2 * len(a.nodes); n >= Crowd {
		suspect, lost = suspect+beat(n), lost+beat(n)
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
