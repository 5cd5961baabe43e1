package collective

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// execution is a plan being carried out on memory. There is one per communicator, used
// again and again: it allocates nothing once it has seen its largest operation.
type execution struct {
	c        *Communicator
	plan     schedule.Plan
	call     call
	place    int   // of this rank in the plan
	ranks    []int // of the places in the plan; nil = they are the same
	src, dst []byte
	out, in  []int // of an all-to-all: where the blocks begin and the last one ends
	size     int   // bytes of an element in memory
	wide     int   // and on the wire

	aside  []byte // a message that must be combined, or widened
	outbox []byte // a message made narrow
	slots  []byte

	rounded, sum []byte // scratch of what is narrow on the wire

	// The current messages.
	to, from           *path
	sendHead, recvHead [headLen]byte
	sendBody           []byte
	sendAt, recvAt     int // bytes of head and body that are through; one thread only

	// Messages that are through; two threads only.
	sent, got         atomic.Int64
	sentMore, gotMore chan struct{}
	outgoing          chan struct{} // tells the second thread to begin; closed by Close
	outDone           chan error
}

func (x *execution) init(c *Communicator) {
	x.c = c
	x.sentMore, x.gotMore = make(chan struct{}, 1), make(chan struct{}, 1)
	x.outgoing, x.outDone = make(chan struct{}, 1), make(chan error, 1)
}

// run carries the plan out. The caller has the turn. An error is that of the
// communicator: there is no way on from half an operation.
func (x *execution) run(ctx context.Context, k call, src, dst []byte) error {
	x.call, x.src, x.dst = k, src, dst
	x.size = k.dtype.Size()
	x.wide = x.size
	if k.narrow {
		x.wide = k.wire.Size()
	}
	x.to, x.from = nil, nil
	x.sent.Store(0)
	x.got.Store(0)
	defer func() { x.src, x.dst, x.sendBody, x.out, x.in = nil, nil, nil, nil, nil }()
	if x.plan.Slots > 0 {
		x.slots = grow(x.slots, x.plan.Slots*x.plan.Fold.Len()*x.wide)
	}
	single, err := x.connect(ctx)
	if err == nil {
		if single && x.volume() <= x.c.opt.InlineBytes {
			err = x.single()
		} else {
			err = x.double()
		}
	}
	if err != nil {
		return err
	}
	x.fold()
	return nil
}

// volume is how many bytes are sent or received, whichever is more.
func (x *execution) volume() int {
	out, in := 0, 0
	for _, t := range x.plan.Sends {
		out += t.Hi - t.Lo
	}
	for _, t := range x.plan.Recvs {
		in += t.Hi - t.Lo
	}
	return max(out, in) * x.wide
}

// connect makes sure that there are wires to all peers of the plan, and tells whether
// all of them can be polled.
func (x *execution) connect(ctx context.Context) (all bool, err error) {
	all = true
	last := -1
	for _, t := range x.plan.Sends {
		if t.Peer == last {
			continue
		}
		last = t.Peer
		p, err := x.c.outgoing(ctx, x.rank(t.Peer))
		if err != nil {
			return false, x.c.directFailure(x.rank(t.Peer), err)
		}
		_, is := p.out[0].(polled)
		all, p.sent = all && is, 0
	}
	last = -1
	for _, t := range x.plan.Recvs {
		if t.Peer == last {
			continue
		}
		last = t.Peer
		p, err := x.c.incoming(x.rank(t.Peer))
		if err != nil {
			return false, x.c.directFailure(x.rank(t.Peer), err)
		}
		_, is := p.in[0].(polled)
		all, p.got = all && is, 0
	}
	return all, nil
}

func (x *execution) rank(place int) int {
	if x.ranks == nil {
		return place
	}
	return x.ranks[place]
}

// path is the wires of a transfer; before is those of the one before.
func (x *execution) path(t schedule.Transfer, before *path) *path {
	rank := x.rank(t.Peer)
	if before != nil && before.rank == rank {
		return before
	}
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	return x.c.paths[rank]
}

// message makes send number i: its head in sendHead, its body in sendBody.
func (x *execution) message(i int) wire {
	t := x.plan.Sends[i]
	x.to = x.path(t, x.to)
	x.sendBody = x.src[t.Lo*x.size : t.Hi*x.size]
	if x.call.narrow {
		x.outbox = grow(x.outbox, (t.Hi-t.Lo)*x.wide)
		kernel.Narrow(x.call.wire, x.outbox, x.sendBody)
		x.sendBody = x.outbox
	}
	head{kind: frameData, call: x.about(x.out, t.Peer), length: uint32(len(x.sendBody)), index: x.to.sent}.put(x.sendHead[:])
	w := x.to.out[int(x.to.sent)%len(x.to.out)]
	x.to.sent++
	return w
}

// about is what a message says of the operation. The blocks of an all-to-all differ, so it
// says how long its own is: else a block that is a message longer than expected, or shorter,
// would be noticed by nobody.
func (x *execution) about(blocks []int, peer int) call {
	k := x.call
	if k.method == alltoall {
		k.count = uint64(blocks[peer+1] - blocks[peer])
	}
	return k
}

// incoming returns the wire of receive number i, and where its payload goes.
func (x *execution) incoming(i int) (wire, []byte) {
	t := x.plan.Recvs[i]
	x.from = x.path(t, x.from)
	w := x.from.in[int(x.from.got)%len(x.from.in)]
	n := (t.Hi - t.Lo) * x.wide
	switch {
	case t.Action == schedule.Stash:
		at := (t.Slot*x.plan.Fold.Len() + t.Lo - x.plan.Fold.Lo) * x.wide
		return w, x.slots[at : at+n]
	case t.Action == schedule.Copy && !x.call.narrow:
		return w, x.dst[t.Lo*x.size : t.Hi*x.size]
	}
	x.aside = grow(x.aside, n)
	return w, x.aside
}

// inPlace tells whether a message goes where something may still have to leave.
func (x *execution) inPlace(t schedule.Transfer) bool {
	return t.Action == schedule.Copy && !x.call.narrow
}

// check compares the head that has come with what is expected.
func (x *execution) check(i, length int) error {
	h, err := parseHead(x.recvHead[:])
	if err != nil {
		return x.broken(x.from.rank, err)
	}
	if want := x.about(x.in, x.plan.Recvs[i].Peer); h.kind != frameData || h.call != want {
		x.c.diverged(x.from.rank, want, h.call)
		return x.c.ended()
	}
	if h.index != x.from.got || int(h.length) != length {
		err := fmt.Errorf("%w: message %d of %d bytes, expected %d of %d", errFrame, h.index, h.length, x.from.got, length)
		x.c.fail(x.c.lost(x.from.rank, err))
		return x.c.ended()
	}
	return nil
}

// broken fails the communicator for a wire that broke.
func (x *execution) broken(rank int, err error) error {
	x.c.blame(rank, err)
	return x.c.ended()
}

// grow returns a buffer of n bytes, p if it is large enough.
func grow(p []byte, n int) []byte {
	if n > cap(p) {
		return make([]byte, n)
	}
	return p[:n]
}
