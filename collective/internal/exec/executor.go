package exec

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective/internal/control"
	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// executor carries out plans over data connections. It is reused for all operations and allocates
// nothing once it has seen the largest.
type executor struct {
	session *control.Session
	cfg     *Config
	conns   *connTable
	ctx     *opContext
	waits   waits

	plan     schedule.Plan
	op       frame.Descriptor
	place    int   // of this rank in the plan
	ranks    []int // of the places in the plan; nil = they are the same
	src, dst []byte
	out, in  []int // of an all-to-all: where the blocks begin and the last one ends
	size     int   // bytes of an element in memory
	wide     int   // and on the wire

	received     []byte // a message that must be combined, or widened
	narrowed     []byte // a message to send
	slots        []byte // messages that are combined at the end
	rounded, sum []byte // scratch for narrow elements

	// The current messages.
	to, from               *peerConns
	sendHeader, recvHeader [frame.HeaderLen]byte
	sendBody               []byte
	sendAt, recvAt         int // bytes of header and body that are done; one thread only

	// Messages that are done; two threads only.
	sentCount, recvCount atomic.Int64
	sentMore, recvMore   chan struct{}
	sender               sync.Once
	startSend            chan struct{} // closed by stopSender
	sendDone             chan error
}

// run carries out the plan. The caller has acquired the engine. An error is that of the session:
// half an operation cannot be continued.
func (x *executor) run(ctx context.Context, d frame.Descriptor, src, dst []byte) error {
	x.op, x.src, x.dst = d, src, dst
	x.size = d.Type.Size()
	x.wide = x.size
	if d.Narrow {
		x.wide = d.Wire.Size()
	}
	x.to, x.from = nil, nil
	x.sentCount.Store(0)
	x.recvCount.Store(0)
	defer func() { x.src, x.dst, x.sendBody, x.out, x.in = nil, nil, nil, nil, nil }()
	if x.plan.Slots > 0 {
		x.slots = grow(x.slots, x.plan.Slots*x.plan.Fold.Len()*x.wide)
	}
	pollable, err := x.connect(ctx)
	if err == nil {
		if pollable && x.volume() <= x.cfg.InlineBytes {
			err = x.runInline()
		} else {
			err = x.runThreaded()
		}
	}
	if err != nil {
		return err
	}
	x.foldSlots()
	return nil
}

// volume is the number of bytes that are sent or received, whichever is larger.
func (x *executor) volume() int {
	out, in := 0, 0
	for _, t := range x.plan.Sends {
		out += t.Hi - t.Lo
	}
	for _, t := range x.plan.Recvs {
		in += t.Hi - t.Lo
	}
	return max(out, in) * x.wide
}

// connect makes sure that there are connections to all peers of the plan, and reports whether all
// of them can be polled.
func (x *executor) connect(ctx context.Context) (pollable bool, err error) {
	pollable = true
	last := -1
	for _, t := range x.plan.Sends {
		if t.Peer == last {
			continue
		}
		last = t.Peer
		p, err := x.conns.outgoing(ctx, x.rank(t.Peer))
		if err != nil {
			return false, x.session.FailConn(x.rank(t.Peer), err)
		}
		_, ok := p.out[0].(PollConn)
		pollable, p.sent = pollable && ok, 0
	}
	last = -1
	for _, t := range x.plan.Recvs {
		if t.Peer == last {
			continue
		}
		last = t.Peer
		p, err := x.conns.incoming(x.rank(t.Peer))
		if err != nil {
			return false, x.session.FailConn(x.rank(t.Peer), err)
		}
		_, ok := p.in[0].(PollConn)
		pollable, p.received = pollable && ok, 0
	}
	return pollable, nil
}

func (x *executor) rank(place int) int {
	if x.ranks == nil {
		return place
	}
	return x.ranks[place]
}

// peer returns the connections of a transfer; previous is those of the one before.
func (x *executor) peer(t schedule.Transfer, previous *peerConns) *peerConns {
	rank := x.rank(t.Peer)
	if previous != nil && previous.rank == rank {
		return previous
	}
	return x.conns.get(rank)
}

// nextSend makes send i: its header in sendHeader, its body in sendBody.
func (x *executor) nextSend(i int) Conn {
	t := x.plan.Sends[i]
	x.to = x.peer(t, x.to)
	x.sendBody = x.src[t.Lo*x.size : t.Hi*x.size]
	if x.op.Narrow {
		x.narrowed = grow(x.narrowed, (t.Hi-t.Lo)*x.wide)
		kernel.Narrow(x.op.Wire, x.narrowed, x.sendBody)
		x.sendBody = x.narrowed
	}
	frame.Header{
		Kind: frame.Data, Op: x.describe(x.out, t.Peer), Length: uint32(len(x.sendBody)), Index: x.to.sent,
	}.Put(x.sendHeader[:])
	c := x.to.out[int(x.to.sent)%len(x.to.out)]
	x.to.sent++
	return c
}

// describe is the descriptor of a message. The blocks of an all-to-all differ, so its messages
// carry the length of their block: otherwise a block that is longer or shorter than expected by
// whole messages would not be noticed.
func (x *executor) describe(blocks []int, peer int) frame.Descriptor {
	d := x.op
	if d.Method == frame.Alltoall {
		d.Count = uint64(blocks[peer+1] - blocks[peer])
	}
	return d
}

// nextRecv returns the connection of receive i, and the buffer of its payload.
func (x *executor) nextRecv(i int) (Conn, []byte) {
	t := x.plan.Recvs[i]
	x.from = x.peer(t, x.from)
	c := x.from.in[int(x.from.received)%len(x.from.in)]
	n := (t.Hi - t.Lo) * x.wide
	switch {
	case t.Action == schedule.Stash:
		at := (t.Slot*x.plan.Fold.Len() + t.Lo - x.plan.Fold.Lo) * x.wide
		return c, x.slots[at : at+n]
	case t.Action == schedule.Copy && !x.op.Narrow:
		return c, x.dst[t.Lo*x.size : t.Hi*x.size]
	}
	x.received = grow(x.received, n)
	return c, x.received
}

// inPlace reports whether a message is received where something may still have to be sent.
func (x *executor) inPlace(t schedule.Transfer) bool {
	return t.Action == schedule.Copy && !x.op.Narrow
}

// check compares the received header with the expected one.
func (x *executor) check(i, length int) error {
	h, err := frame.Parse(x.recvHeader[:])
	if err != nil {
		return x.broken(x.from.rank, err)
	}
	if want := x.describe(x.in, x.plan.Recvs[i].Peer); h.Kind != frame.Data || h.Op != want {
		x.session.Diverged(x.from.rank, want.String(), h.Op.String())
		return x.session.Ended()
	}
	if h.Index != x.from.received || int(h.Length) != length {
		err := fmt.Errorf("%w: message %d of %d bytes, expected %d of %d",
			frame.ErrMalformed, h.Index, h.Length, x.from.received, length)
		x.session.Fail(x.session.Lost(x.from.rank, err))
		return x.session.Ended()
	}
	return nil
}

// broken fails the session for a connection that broke.
func (x *executor) broken(rank int, err error) error {
	x.session.Blame(rank, err)
	return x.session.Ended()
}

// grow returns a buffer of n bytes, p if it is large enough.
func grow(p []byte, n int) []byte {
	if n > cap(p) {
		return make([]byte, n)
	}
	return p[:n]
}
