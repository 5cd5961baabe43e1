package nccl

import (
	"context"
	"errors"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/kernel"
)

// ReduceScatter combines the send buffers of all ranks and leaves block r of the result in
// recv of rank r: send has a block for each rank, as long as recv. send holds anything
// afterwards; recv may be this rank's own block of it.
func (e *Engine) ReduceScatter(ctx context.Context, on *Stream, send, recv Buffer, t kernel.Type, op collective.Op) *Task {
	r := reduction{t: t, op: op}
	if err := errors.Join(e.fits(send, r), e.fits(recv, r)); err != nil {
		return failed(err)
	}
	if send.bytes != recv.bytes*e.at.world() {
		return failed(invalid("send has %d bytes and recv %d, in a world of %d", send.bytes, recv.bytes, e.at.world()))
	}
	return e.start(ctx, "ReduceScatter", on, func(ctx context.Context) (*Work, error) { return e.reduceScatter(ctx, send, recv, r) })
}

func (e *Engine) reduceScatter(ctx context.Context, send, recv Buffer, r reduction) (*Work, error) {
	block := recv.bytes
	own := send.Slice(e.at.rank()*block, (e.at.rank()+1)*block)
	dtype, known := dataType(r.t)
	if block == 0 {
		return e.settled(ctx)
	}
	switch {
	case e.at.nodes() == 1 && e.local != nil && known:
		return e.launch(ctx, ReduceScatter(send, recv, dtype, reduceOp(r.op)))
	case !known && !e.nowhereNCCL():
		if err := e.throughHost(ctx, send, r); err != nil {
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
func (e *Engine) scatterNodes(ctx context.Context, send Buffer, block int, r reduction, dtype DataType) error {
	size := r.t.Size()
	var ops []Operation
	for node := range e.at.nodes() {
		reg := e.region(send, block, node)
		ops = append(ops, e.gather(reg, divide(reg.bytes/size, e.at.carriers), dtype, partialOp(r.op))...)
	}
	if _, err := e.launch(ctx, ops...); err != nil {
		return err
	}
	if e.at.carries() {
		if err := e.scatterRing(ctx, send, block, r); err != nil {
			return err
		}
	}
	mine := e.region(send, block, e.at.node)
	if e.at.here() == e.at.carriers {
		return nil // each part is the block of its carrier
	}
	_, err := e.launch(ctx, e.spread(mine, divide(mine.bytes/size, e.at.carriers), size)...)
	return err
}

// scatterRing reduces this carrier's part of its own node's region with the other nodes.
func (e *Engine) scatterRing(ctx context.Context, send Buffer, block int, r reduction) error {
	stage, err := e.seat.stage(ctx, 0)
	if err != nil {
		return err
	}
	parts := make([]Buffer, e.at.nodes())
	for node := range parts {
		parts[node] = e.part(send, block, r.t.Size(), node)
	}
	size := stage.size() / (len(parts) + 1) &^ 15
	return stage.travel(ctx, e.seat.stream, rounds(parts, size), func(i int) (t trip) {
		for node, p := range parts {
			there := piece{p.chunk(i, size), node * size}
			t.down = append(t.down, there)
			if node == e.at.node {
				t.up = append(t.up, there)
			}
		}
		return t
	}, func(i int, slot []byte) error {
		p := places{slot, size, func(node int) int { return parts[node].chunk(i, size).bytes }}
		if err := e.ringScatter(p, r.t, kernelOp(r.op)); err != nil {
			return err
		}
		if r.op == collective.Average {
			kernel.Average(r.t, p.of(e.at.node), e.at.world())
		}
		return nil
	})
}
