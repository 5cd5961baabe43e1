package gpu

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/collective/schedule"
)

// Exchanges of this rank's host with its rail peers on the other nodes, by point-to-point messages.
// All of them end with the communicator.

func (e *Engine) send(node int, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return e.comm.Send(context.Background(), e.at.railPeer(node), p)
}

func (e *Engine) recv(node int, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return e.comm.Recv(context.Background(), e.at.railPeer(node), p)
}

// sendRecv sends to one node while it receives from another.
func (e *Engine) sendRecv(to int, out []byte, from int, in []byte) error {
	sent := make(chan error, 1)
	go func() { sent <- e.send(to, out) }()
	err := e.recv(from, in)
	return errors.Join(err, <-sent)
}

// nodeSlots are the parts of a slot that belong to the nodes: size bytes each, of which those of
// node k use length(k).
type nodeSlots struct {
	slot   []byte
	size   int
	length func(node int) int
}

func (p nodeSlots) of(node int) []byte { return p.slot[node*p.size:][:p.length(node)] }

// place is this node among the nodes, which schedules between nodes have for ranks.
func (e *Engine) place() schedule.Place {
	return schedule.Place{World: e.at.nodes(), Rank: e.at.node}
}

// ring carries out the plan of a ring whose elements are the slots of the nodes, one in a step.
// combine adds what has arrived in the scratch behind the slots to a slot; a plan that only copies
// needs none.
func (e *Engine) ring(p *schedule.Plan, slots nodeSlots, combine func(slot, arrived []byte)) error {
	for i, out := range p.Sends {
		in := p.Recvs[i]
		slot := slots.of(in.Lo)
		arrived := slot
		if in.Action != schedule.Copy {
			arrived = slots.slot[e.at.nodes()*slots.size:][:len(slot)]
		}
		if err := e.sendRecv(out.Peer, slots.of(out.Lo), in.Peer, arrived); err != nil {
			return err
		}
		if in.Action != schedule.Copy {
			combine(slot, arrived)
		}
	}
	return nil
}

// relay is the plan of a broadcast from the root node, whose transfers are all of the data: a chain
// for data that takes long to send, otherwise a binomial tree, which fewer nodes have to wait for.
func (e *Engine) relay(root int, long bool) (p schedule.Plan) {
	if long {
		schedule.ChainBroadcast(&p, e.place(), root, 1, 1)
	} else {
		schedule.TreeBroadcast(&p, e.place(), root, 1, 1)
	}
	return p
}
