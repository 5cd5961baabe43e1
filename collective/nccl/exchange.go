package nccl

import (
	"cmp"
	"context"
	"errors"
	"slices"
)

// Transfer is one direction between this rank and a peer.
type Transfer struct {
	Peer     int
	Buffer   Buffer
	Receives bool // from the peer into the buffer; else from the buffer to the peer
}

// Exchange makes transfers that may wait for each other, as one operation. Each that sends
// has a counterpart of the same length in an Exchange of its peer, which is the same one or
// comes at the same point there; those between two ranks keep their order. Inside the node
// they are a group of NCCL's, between nodes they go through the host.
func (e *Engine) Exchange(ctx context.Context, on *Stream, transfers ...Transfer) *Task {
	for _, t := range transfers {
		if err := errors.Join(e.has(t.Peer), t.Buffer.holds(e.seat.dev, t.Buffer.bytes)); err != nil {
			return failed(err)
		}
	}
	if err := e.paired(transfers); err != nil {
		return failed(err)
	}
	transfers = slices.Clone(transfers)
	return e.start(ctx, "Exchange", on, func(ctx context.Context) (*Work, error) { return e.exchange(ctx, transfers) })
}

// paired checks that what a rank sends to itself it receives.
func (e *Engine) paired(transfers []Transfer) error {
	out, in := e.toItself(transfers)
	if !slices.EqualFunc(out, in, func(a, b Buffer) bool { return a.bytes == b.bytes }) {
		return invalid("rank %d sends to itself other than it receives", e.at.rank())
	}
	return nil
}

func (e *Engine) toItself(transfers []Transfer) (out, in []Buffer) {
	for _, t := range transfers {
		switch {
		case t.Peer != e.at.rank():
		case t.Receives:
			in = append(in, t.Buffer)
		default:
			out = append(out, t.Buffer)
		}
	}
	return out, in
}

// Send gives b to the Recv of a peer. Ranks that send to each other need an Exchange.
func (e *Engine) Send(ctx context.Context, on *Stream, b Buffer, peer int) *Task {
	return e.Exchange(ctx, on, Transfer{Peer: peer, Buffer: b})
}

// Recv fills b from the Send of a peer.
func (e *Engine) Recv(ctx context.Context, on *Stream, b Buffer, peer int) *Task {
	return e.Exchange(ctx, on, Transfer{Peer: peer, Buffer: b, Receives: true})
}

// Alltoall sends block i of send to rank i, which finds it as block r of its recv, if it
// comes from rank r. counts[i] and from[i] are the bytes of block i of send and of recv; nil
// = blocks of equal length. The counts of both sides must agree. send and recv must not
// overlap.
func (e *Engine) Alltoall(ctx context.Context, on *Stream, send, recv Buffer, counts, from []int) *Task {
	out, err := e.blocks("send", send, counts)
	if err != nil {
		return failed(err)
	}
	in, err := e.blocks("recv", recv, from)
	if err != nil {
		return failed(err)
	}
	var transfers []Transfer
	for rank := range e.at.world() {
		transfers = append(transfers,
			Transfer{Peer: rank, Buffer: out[rank]}, Transfer{Peer: rank, Buffer: in[rank], Receives: true})
	}
	return e.Exchange(ctx, on, transfers...)
}

// blocks cuts a buffer.
func (e *Engine) blocks(name string, b Buffer, counts []int) (parts []Buffer, err error) {
	world := e.at.world()
	if counts == nil {
		if b.bytes%world != 0 {
			return nil, invalid("%s has %d bytes, no multiple of %d ranks", name, b.bytes, world)
		}
		counts = slices.Repeat([]int{b.bytes / world}, world)
	}
	if len(counts) != world {
		return nil, invalid("%d counts of %s for %d ranks", len(counts), name, world)
	}
	at := 0
	for i, n := range counts {
		if n < 0 || n > b.bytes-at {
			return nil, invalid("block %d of %s has %d of its %d bytes, from %d on", i, name, n, b.bytes, at)
		}
		parts = append(parts, b.Slice(at, at+n))
		at += n
	}
	if at != b.bytes {
		return nil, invalid("the counts of %s add up to %d of its %d bytes", name, at, b.bytes)
	}
	return parts, nil
}

func (e *Engine) exchange(ctx context.Context, transfers []Transfer) (*Work, error) {
	out, in := e.toItself(transfers)
	for i := range out {
		if err := e.copyTo(ctx, in[i], out[i]); err != nil {
			return nil, err
		}
	}
	var ops []Operation
	var sends, recvs []Transfer
	for _, t := range transfers {
		node, local := e.at.find(t.Peer)
		switch {
		case t.Buffer.bytes == 0 || t.Peer == e.at.rank():
		case node == e.at.node && t.Receives:
			ops = append(ops, Recv(t.Buffer, Uint8, local))
		case node == e.at.node:
			ops = append(ops, Send(t.Buffer, Uint8, local))
		case t.Receives:
			recvs = append(recvs, t)
		default:
			sends = append(sends, t)
		}
	}
	last, err := e.launch(ctx, ops...)
	if err != nil {
		return nil, err
	}
	if err := e.overHosts(ctx, sends, recvs); err != nil {
		return nil, err
	}
	return e.done(ctx, last)
}

// overHosts makes the transfers with other nodes. What goes out and what comes in are two
// flows beside each other, both in the order of the distance from the sender to the
// receiver: so there is always one that nobody has to wait for.
func (e *Engine) overHosts(ctx context.Context, sends, recvs []Transfer) error {
	world, rank := e.at.world(), e.at.rank()
	slices.SortStableFunc(sends, func(a, b Transfer) int {
		return cmp.Compare((a.Peer-rank+world)%world, (b.Peer-rank+world)%world)
	})
	slices.SortStableFunc(recvs, func(a, b Transfer) int {
		return cmp.Compare((rank-a.Peer+world)%world, (rank-b.Peer+world)%world)
	})
	background := context.Background()
	sent := make(chan error, 1)
	go func() {
		sent <- e.orSuffer(e.flow(ctx, 0, sends, func(p piece) trip { return trip{down: []piece{p}} },
			func(peer int, p []byte) error { return e.comm.Send(background, peer, p) }))
	}()
	err := e.orSuffer(e.flow(ctx, 1, recvs, func(p piece) trip { return trip{up: []piece{p}} },
		func(peer int, p []byte) error { return e.comm.Recv(background, peer, p) }))
	return errors.Join(err, <-sent)
}

// orSuffer fails the generation for an error of one flow: the other may wait for a peer, and
// nothing else would end it.
func (e *Engine) orSuffer(err error) error {
	if err != nil {
		return e.suffer(err)
	}
	return nil
}

// flow takes transfers of one direction through a stage of their own, chunk by chunk.
func (e *Engine) flow(ctx context.Context, i int, transfers []Transfer, way func(piece) trip, move func(peer int, p []byte) error) error {
	if len(transfers) == 0 {
		return nil
	}
	stage, err := e.seat.stage(ctx, i)
	if err != nil {
		return err
	}
	type step struct {
		peer int
		part Buffer
	}
	var steps []step
	for _, t := range transfers {
		for k := range chunks(t.Buffer.bytes, stage.size()) {
			steps = append(steps, step{t.Peer, t.Buffer.chunk(k, stage.size())})
		}
	}
	return stage.travel(ctx, e.seat.stream, len(steps), func(i int) trip {
		return way(piece{steps[i].part, 0})
	}, func(i int, slot []byte) error {
		return move(steps[i].peer, slot[:steps[i].part.bytes])
	})
}

// Barrier ends when all ranks have started it and what each had queued on its stream, and
// what the engine was given before, is done.
func (e *Engine) Barrier(ctx context.Context, on *Stream) *Task {
	return e.start(ctx, "Barrier", on, func(ctx context.Context) (*Work, error) {
		if _, err := e.settled(ctx); err != nil {
			return nil, err
		}
		return nil, e.comm.Barrier(context.Background())
	})
}

// Settle waits until everything that was started on this rank is done: after it the
// communicator may be used for something else.
func (e *Engine) Settle(ctx context.Context) error {
	return e.start(ctx, "Settle", nil, e.settled).Wait(ctx)
}
