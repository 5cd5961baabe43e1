package nccl

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/collective/kernel"
)

// What this rank's host exchanges with its like on the other nodes, by direct messages. All
// of them end with the communicator.

func (e *Engine) send(node int, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return e.comm.Send(context.Background(), e.at.alike(node), p)
}

func (e *Engine) recv(node int, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return e.comm.Recv(context.Background(), e.at.alike(node), p)
}

// swap sends to one node while it receives from another.
func (e *Engine) swap(to int, out []byte, from int, in []byte) error {
	sent := make(chan error, 1)
	go func() { sent <- e.send(to, out) }()
	err := e.recv(from, in)
	return errors.Join(err, <-sent)
}

// places are the parts of a slot that belong to the nodes: size bytes each, of which those
// of node k hold length(k).
type places struct {
	slot   []byte
	size   int
	length func(node int) int
}

func (p places) of(node int) []byte { return p.slot[node*p.size:][:p.length(node)] }

// around returns the nodes before and after this one in a ring, and the one at a distance.
func (e *Engine) around() (next, prev int, at func(d int) int) {
	n, me := e.at.nodes(), e.at.node
	return (me + 1) % n, (me + n - 1) % n, func(d int) int { return ((me+d)%n + n) % n }
}

// ringGather fills all places from this node's, on all nodes.
func (e *Engine) ringGather(p places) error {
	next, prev, at := e.around()
	for step := range e.at.nodes() - 1 {
		if err := e.swap(next, p.of(at(-step)), prev, p.of(at(-step-1))); err != nil {
			return err
		}
	}
	return nil
}

// ringScatter combines the places of all nodes, and leaves this node's own in its place. The
// others, and scratch behind them, hold anything then.
func (e *Engine) ringScatter(p places, t kernel.Type, op kernel.Op) error {
	next, prev, at := e.around()
	n := e.at.nodes()
	for step := range n - 1 {
		mine := p.of(at(-step - 2))
		scratch := p.slot[n*p.size:][:len(mine)]
		if err := e.swap(next, p.of(at(-step-1)), prev, scratch); err != nil {
			return err
		}
		kernel.Reduce(t, op, mine, scratch)
	}
	return nil
}

// relay says from which node this one gets what the root node has, -1 = it is the root, and
// to which it passes it on: a chain for data that is on its way for long, and a binomial
// tree for the rest, which fewer nodes have to wait for.
func (e *Engine) relay(root int, long bool) (from int, to []int) {
	n := e.at.nodes()
	place := (e.at.node - root + n) % n
	node := func(place int) int { return (place + root) % n }
	if long {
		if place+1 < n {
			to = []int{node(place + 1)}
		}
		if place == 0 {
			return -1, to
		}
		return node(place - 1), to
	}
	from, mask := -1, 1
	for ; mask < n; mask *= 2 {
		if place&mask != 0 {
			from = node(place - mask)
			break
		}
	}
	for mask /= 2; mask > 0; mask /= 2 {
		if place+mask < n {
			to = append(to, node(place+mask))
		}
	}
	return from, to
}
