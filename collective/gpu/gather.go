package gpu

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/nccl"
	"github.com/regroup-io/regroup/collective/schedule"
)

// region is the part of a buffer that belongs to the ranks of a node, with block bytes for each
// rank.
func (e *Engine) region(b nccl.Buffer, block, node int) nccl.Buffer {
	first := e.at.first[node] * block
	return b.Slice(first, first+e.at.size[node]*block)
}

// Allgather concatenates the ranks' equally long send buffers, in the order of the ranks, in recv
// of every rank. send may be this rank's own part of recv.
func (e *Engine) Allgather(ctx context.Context, on *nccl.Stream, send, recv nccl.Buffer) *Task {
	d := e.res.dev
	if err := errors.Join(send.IsOn(d), recv.IsOn(d)); err != nil {
		return failed(err)
	}
	if recv.Bytes() != send.Bytes()*e.at.world() {
		return failed(invalid("send has %d bytes and recv %d, in a world of %d", send.Bytes(), recv.Bytes(), e.at.world()))
	}
	return e.start(ctx, "Allgather", on, func(ctx context.Context) (*nccl.Work, error) { return e.allgather(ctx, send, recv) })
}

func (e *Engine) allgather(ctx context.Context, send, recv nccl.Buffer) (last *nccl.Work, err error) {
	block := send.Bytes()
	switch {
	case block == 0:
		return e.settled(ctx)
	case e.local != nil:
		last, err = e.launch(ctx, nccl.AllGather(send, e.region(recv, block, e.at.node), nccl.Uint8))
	default:
		err = e.copyTo(ctx, e.region(recv, block, e.at.node), send)
	}
	if err != nil || e.at.nodes() == 1 {
		return e.done(ctx, last, err)
	}
	if e.at.onRail() {
		if err := e.gatherNodes(ctx, recv, block); err != nil {
			return nil, err
		}
	}
	var ops []nccl.Operation
	for node := range e.at.nodes() {
		if node != e.at.node {
			r := e.region(recv, block, node)
			ops = append(ops, e.broadcastFromRails(r, newPartition(r.Bytes(), e.at.rails), 1)...)
		}
	}
	last, err = e.launch(ctx, ops...)
	return e.done(ctx, last, err)
}

// copyTo copies on the GPU, unless it is the same memory.
func (e *Engine) copyTo(ctx context.Context, to, from nccl.Buffer) error {
	if to.Pointer() == from.Pointer() {
		return nil
	}
	return e.res.stream.Copy(ctx, to, from)
}

// gatherNodes receives this rail's part of the other nodes' regions.
func (e *Engine) gatherNodes(ctx context.Context, recv nccl.Buffer, block int) error {
	stage, err := e.res.stage(ctx, 0)
	if err != nil {
		return err
	}
	var plan schedule.Plan
	nodes := make([]int, e.at.nodes()+1) // where each node's slot begins, counted in slots
	for i := range nodes {
		nodes[i] = i
	}
	schedule.RingAllgather(&plan, e.place(), nodes, 1)
	parts := e.parts(recv, block, 1)
	size := stage.ChunkBytes() / len(parts) &^ 15
	return stage.Transfer(ctx, e.res.stream, rounds(parts, size), func(i int) (t nccl.SlotTransfer) {
		for node, p := range parts {
			there := nccl.Piece{Buffer: p.Chunk(i, size), At: node * size}
			if node == e.at.node {
				t.Down = append(t.Down, there)
			} else {
				t.Up = append(t.Up, there)
			}
		}
		return t
	}, func(i int, slot []byte) error {
		return e.ring(&plan, nodeSlots{slot, size, func(node int) int { return parts[node].Chunk(i, size).Bytes() }}, nil)
	})
}

// parts are this rail's parts of the nodes' regions, with elements of size bytes.
func (e *Engine) parts(b nccl.Buffer, block, size int) []nccl.Buffer {
	parts := make([]nccl.Buffer, e.at.nodes())
	for node := range parts {
		r := e.region(b, block, node)
		lo, hi := newPartition(r.Bytes()/size, e.at.rails).part(e.at.local)
		parts[node] = r.Slice(lo*size, hi*size)
	}
	return parts
}

// rounds is the number of chunks of the largest part.
func rounds(parts []nccl.Buffer, size int) (n int) {
	for _, p := range parts {
		n = max(n, chunks(p.Bytes(), size))
	}
	return n
}

// Broadcast copies root's b to all ranks.
func (e *Engine) Broadcast(ctx context.Context, on *nccl.Stream, b nccl.Buffer, root int) *Task {
	if err := errors.Join(e.has(root), b.IsOn(e.res.dev)); err != nil {
		return failed(err)
	}
	return e.start(ctx, "Broadcast", on, func(ctx context.Context) (*nccl.Work, error) { return e.broadcast(ctx, b, root) })
}

func (e *Engine) broadcast(ctx context.Context, b nccl.Buffer, root int) (last *nccl.Work, err error) {
	node, local := e.at.find(root)
	here := node == e.at.node
	if here && e.local != nil && b.Bytes() > 0 {
		if last, err = e.launch(ctx, nccl.Broadcast(b, b, nccl.Uint8, local)); err != nil {
			return nil, err
		}
	}
	if e.at.nodes() == 1 {
		return e.done(ctx, last, nil)
	}
	s := newPartition(b.Bytes(), e.at.rails)
	if e.at.onRail() {
		lo, hi := s.part(e.at.local)
		if err := e.pass(ctx, b.Slice(lo, hi), node); err != nil {
			return nil, err
		}
	}
	if !here {
		last, err = e.launch(ctx, e.broadcastFromRails(b, s, 1)...)
	}
	return e.done(ctx, last, err)
}

// done is the end of an operation with the result of its last launch, if there was one.
func (e *Engine) done(ctx context.Context, last *nccl.Work, err error) (*nccl.Work, error) {
	if last != nil || err != nil {
		return last, err
	}
	return e.settled(ctx)
}

// pass sends a part of the root node's buffer to the other nodes.
func (e *Engine) pass(ctx context.Context, part nccl.Buffer, root int) error {
	stage, err := e.res.stage(ctx, 0)
	if err != nil {
		return err
	}
	size := stage.ChunkBytes()
	plan := e.relay(root, part.Bytes() > size)
	return stage.Transfer(ctx, e.res.stream, chunks(part.Bytes(), size), func(i int) nccl.SlotTransfer {
		there := []nccl.Piece{{Buffer: part.Chunk(i, size)}}
		if len(plan.Recvs) == 0 {
			return nccl.SlotTransfer{Down: there}
		}
		return nccl.SlotTransfer{Up: there}
	}, func(i int, slot []byte) error {
		p := slot[:part.Chunk(i, size).Bytes()]
		for _, r := range plan.Recvs {
			if err := e.recv(r.Peer, p); err != nil {
				return err
			}
		}
		for _, s := range plan.Sends {
			if err := e.send(s.Peer, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// ReduceScatter combines the send buffers of all ranks and leaves block r of the result in recv of
// rank r: send has a block for each rank, as long as recv. send is undefined afterwards; recv may
// be this rank's own block of it.
func (e *Engine) ReduceScatter(ctx context.Context, on *nccl.Stream, send, recv nccl.Buffer, t kernel.Type, op collective.Op) *Task {
	r := reduction{t: t, op: op}
	if err := errors.Join(e.fits(send, r), e.fits(recv, r)); err != nil {
		return failed(err)
	}
	if send.Bytes() != recv.Bytes()*e.at.world() {
		return failed(invalid("send has %d bytes and recv %d, in a world of %d", send.Bytes(), recv.Bytes(), e.at.world()))
	}
	return e.start(ctx, "ReduceScatter", on, func(ctx context.Context) (*nccl.Work, error) { return e.reduceScatter(ctx, send, recv, r) })
}

func (e *Engine) reduceScatter(ctx context.Context, send, recv nccl.Buffer, r reduction) (*nccl.Work, error) {
	block := recv.Bytes()
	own := send.Slice(e.at.rank()*block, (e.at.rank()+1)*block)
	dtype, known := dataTypes[r.t]
	if block == 0 {
		return e.settled(ctx)
	}
	switch {
	case e.at.nodes() == 1 && e.local != nil && known:
		return e.launch(ctx, nccl.ReduceScatter(send, recv, dtype, reduceOps[r.op]))
	case !known && !e.withoutNCCL():
		if err := e.reduceThroughHost(ctx, send, r); err != nil {
			return nil, err
		}
	case e.at.nodes() > 1:
		if err := e.scatterNodes(ctx, send, block, r, dtype); err != nil {
			return nil, err
		}
	}
	if err := e.copyTo(ctx, recv, own); err != nil {
		return nil, err
	}
	return e.settled(ctx)
}

// scatterNodes leaves the result of this rank's block in its place in send.
func (e *Engine) scatterNodes(ctx context.Context, send nccl.Buffer, block int, r reduction, dtype nccl.DataType) error {
	size := r.t.Size()
	var ops []nccl.Operation
	for node := range e.at.nodes() {
		reg := e.region(send, block, node)
		ops = append(ops, e.reduceToRails(reg, newPartition(reg.Bytes()/size, e.at.rails), dtype, partialOp(r.op))...)
	}
	if _, err := e.launch(ctx, ops...); err != nil {
		return err
	}
	if e.at.onRail() {
		if err := e.scatterRing(ctx, send, block, r); err != nil {
			return err
		}
	}
	mine := e.region(send, block, e.at.node)
	if e.at.localSize() == e.at.rails {
		return nil // each part is the block of its rank
	}
	_, err := e.launch(ctx, e.broadcastFromRails(mine, newPartition(mine.Bytes()/size, e.at.rails), size)...)
	return err
}

// scatterRing reduces this rail's part of its own node's region with the other nodes.
func (e *Engine) scatterRing(ctx context.Context, send nccl.Buffer, block int, r reduction) error {
	stage, err := e.res.stage(ctx, 0)
	if err != nil {
		return err
	}
	var plan schedule.Plan
	schedule.RingReduceScatter(&plan, e.place(), e.at.nodes(), 1)
	combine := func(slot, arrived []byte) { kernel.Reduce(r.t, r.op.Kernel(), slot, arrived) }
	parts := e.parts(send, block, r.t.Size())
	size := stage.ChunkBytes() / (len(parts) + 1) &^ 15
	return stage.Transfer(ctx, e.res.stream, rounds(parts, size), func(i int) (t nccl.SlotTransfer) {
		for node, p := range parts {
			there := nccl.Piece{Buffer: p.Chunk(i, size), At: node * size}
			t.Down = append(t.Down, there)
			if node == e.at.node {
				t.Up = append(t.Up, there)
			}
		}
		return t
	}, func(i int, slot []byte) error {
		p := nodeSlots{slot, size, func(node int) int { return parts[node].Chunk(i, size).Bytes() }}
		if err := e.ring(&plan, p, combine); err != nil {
			return err
		}
		if r.op == collective.Average {
			kernel.Average(r.t, p.of(e.at.node), e.at.world())
		}
		return nil
	})
}
