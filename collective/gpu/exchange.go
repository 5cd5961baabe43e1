package gpu

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/schedule"
)

// Transfer is one direction between this rank and a peer.
type Transfer struct {
	Peer     int
	Buffer   nccl.Buffer
	Receives bool // from the peer into the buffer; otherwise from the buffer to the peer
}

// Exchange performs transfers that may wait for each other, as one operation. Each one that sends
// has a counterpart of the same length in an Exchange of its peer, which is the same one or comes
// at the same point there; transfers between two ranks keep their order. Intra-node transfers are
// one NCCL group, inter-node transfers go through the host.
func (e *Engine) Exchange(ctx context.Context, on *nccl.Stream, transfers ...Transfer) *Task {
	for _, t := range transfers {
		if err := errors.Join(e.has(t.Peer), t.Buffer.IsOn(e.res.dev)); err != nil {
			return failed(err)
		}
	}
	if err := e.validatePairs(transfers); err != nil {
		return failed(err)
	}
	transfers = slices.Clone(transfers)
	return e.start(ctx, "Exchange", on, func(ctx context.Context) (*nccl.Work, error) { return e.exchange(ctx, transfers) })
}

// validatePairs checks that a rank receives what it sends to itself.
func (e *Engine) validatePairs(transfers []Transfer) error {
	out, in := e.selfTransfers(transfers)
	if !slices.EqualFunc(out, in, func(a, b nccl.Buffer) bool { return a.Bytes() == b.Bytes() }) {
		return invalid("rank %d sends to itself other than it receives", e.at.rank())
	}
	return nil
}

func (e *Engine) selfTransfers(transfers []Transfer) (out, in []nccl.Buffer) {
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

// Send sends b to the Recv of a peer. Ranks that send to each other need an Exchange.
func (e *Engine) Send(ctx context.Context, on *nccl.Stream, b nccl.Buffer, peer int) *Task {
	return e.Exchange(ctx, on, Transfer{Peer: peer, Buffer: b})
}

// Recv fills b from the Send of a peer.
func (e *Engine) Recv(ctx context.Context, on *nccl.Stream, b nccl.Buffer, peer int) *Task {
	return e.Exchange(ctx, on, Transfer{Peer: peer, Buffer: b, Receives: true})
}

// Alltoall sends block i of send to rank i; the block from rank r is block r of recv. counts[i] and
// from[i] are the bytes of block i of send and of recv; nil = blocks of equal length. The counts of
// both sides must agree. send and recv must not overlap.
func (e *Engine) Alltoall(ctx context.Context, on *nccl.Stream, send, recv nccl.Buffer, counts, from []int) *Task {
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

// blocks divides a buffer.
func (e *Engine) blocks(name string, b nccl.Buffer, counts []int) (parts []nccl.Buffer, err error) {
	offsets, err := schedule.Blocks(b.Bytes(), e.at.world(), counts)
	if err != nil {
		return nil, invalid("%s: %v", name, err)
	}
	for i := range e.at.world() {
		parts = append(parts, b.Slice(offsets[i], offsets[i+1]))
	}
	return parts, nil
}

func (e *Engine) exchange(ctx context.Context, transfers []Transfer) (*nccl.Work, error) {
	out, in := e.selfTransfers(transfers)
	for i := range out {
		if err := e.copyTo(ctx, in[i], out[i]); err != nil {
			return nil, err
		}
	}
	var ops []nccl.Operation
	var sends, recvs []Transfer
	for _, t := range transfers {
		node, local := e.at.find(t.Peer)
		switch {
		case t.Buffer.Bytes() == 0 || t.Peer == e.at.rank():
		case node == e.at.node && t.Receives:
			ops = append(ops, nccl.Recv(t.Buffer, nccl.Uint8, local))
		case node == e.at.node:
			ops = append(ops, nccl.Send(t.Buffer, nccl.Uint8, local))
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
	return e.done(ctx, last, e.exchangeOverHosts(ctx, sends, recvs))
}

// exchangeOverHosts performs the inter-node transfers. Sends and receives are two concurrent flows,
// both in the order of the distance from sender to receiver, so that there is always one that does
// not wait.
func (e *Engine) exchangeOverHosts(ctx context.Context, sends, recvs []Transfer) error {
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
		sent <- e.orFail(e.flow(ctx, 0, sends, func(p nccl.Piece) nccl.SlotTransfer { return nccl.SlotTransfer{Down: []nccl.Piece{p}} },
			func(peer int, p []byte) error { return e.comm.Send(background, peer, p) }))
	}()
	err := e.orFail(e.flow(ctx, 1, recvs, func(p nccl.Piece) nccl.SlotTransfer { return nccl.SlotTransfer{Up: []nccl.Piece{p}} },
		func(peer int, p []byte) error { return e.comm.Recv(background, peer, p) }))
	return errors.Join(err, <-sent)
}

// orFail fails the generation for an error of one flow: the other may be waiting for a peer, and
// nothing else would end it.
func (e *Engine) orFail(err error) error {
	if err != nil {
		return e.failAndWait(err)
	}
	return nil
}

// flow passes the transfers of one direction through a separate stage, chunk by chunk.
func (e *Engine) flow(ctx context.Context, i int, transfers []Transfer, way func(nccl.Piece) nccl.SlotTransfer, move func(peer int, p []byte) error) error {
	if len(transfers) == 0 {
		return nil
	}
	stage, err := e.res.stage(ctx, i)
	if err != nil {
		return err
	}
	type step struct {
		peer int
		part nccl.Buffer
	}
	var steps []step
	for _, t := range transfers {
		for k := range chunks(t.Buffer.Bytes(), stage.ChunkBytes()) {
			steps = append(steps, step{t.Peer, t.Buffer.Chunk(k, stage.ChunkBytes())})
		}
	}
	return stage.Transfer(ctx, e.res.stream, len(steps), func(i int) nccl.SlotTransfer {
		return way(nccl.Piece{Buffer: steps[i].part})
	}, func(i int, slot []byte) error {
		return move(steps[i].peer, slot[:steps[i].part.Bytes()])
	})
}

// Synchronize waits until everything that was started on this rank is done. The communicator may be
// used for something else afterwards.
func (e *Engine) Synchronize(ctx context.Context) error {
	return e.start(ctx, "Synchronize", nil, e.settled).Wait(ctx)
}
