package nccl

import (
	"context"
	"errors"
)

// region is the part of a buffer with a block of so many bytes per rank that belongs to the
// ranks of a node.
func (e *Engine) region(b Buffer, block, node int) Buffer {
	first := e.at.first[node] * block
	return b.Slice(first, first+e.at.size[node]*block)
}

// Allgather puts the ranks' equally long send buffers one after the other, in the order of
// the ranks, into recv of every rank. send may be this rank's own part of recv.
func (e *Engine) Allgather(ctx context.Context, on *Stream, send, recv Buffer) *Task {
	d := e.seat.dev
	if err := errors.Join(send.holds(d, send.bytes), recv.holds(d, recv.bytes)); err != nil {
		return failed(err)
	}
	if recv.bytes != send.bytes*e.at.world() {
		return failed(invalid("send has %d bytes and recv %d, in a world of %d", send.bytes, recv.bytes, e.at.world()))
	}
	return e.start(ctx, "Allgather", on, func(ctx context.Context) (*Work, error) { return e.allgather(ctx, send, recv) })
}

func (e *Engine) allgather(ctx context.Context, send, recv Buffer) (last *Work, err error) {
	block := send.bytes
	switch {
	case block == 0:
		return e.settled(ctx)
	case e.local != nil:
		last, err = e.launch(ctx, AllGather(send, e.region(recv, block, e.at.node), Uint8))
	default:
		err = e.copyTo(ctx, e.region(recv, block, e.at.node), send)
	}
	if err != nil || e.at.nodes() == 1 {
		if err == nil {
			return e.done(ctx, last)
		}
		return nil, err
	}
	if e.at.carries() {
		if err := e.gatherNodes(ctx, recv, block); err != nil {
			return nil, err
		}
	}
	var ops []Operation
	for node := range e.at.nodes() {
		if node != e.at.node {
			r := e.region(recv, block, node)
			ops = append(ops, e.spread(r, divide(r.bytes, e.at.carriers), 1)...)
		}
	}
	if last, err = e.launch(ctx, ops...); err != nil {
		return nil, err
	}
	return e.done(ctx, last)
}

// copyTo copies on the GPU, unless it is the same memory.
func (e *Engine) copyTo(ctx context.Context, to, from Buffer) error {
	if to.pointer == from.pointer {
		return nil
	}
	return e.seat.stream.Copy(ctx, to, from)
}

// gatherNodes gets this carrier's part of the other nodes' regions.
func (e *Engine) gatherNodes(ctx context.Context, recv Buffer, block int) error {
	stage, err := e.seat.stage(ctx, 0)
	if err != nil {
		return err
	}
	parts := make([]Buffer, e.at.nodes())
	for node := range parts {
		parts[node] = e.part(recv, block, 1, node)
	}
	size := stage.size() / len(parts) &^ 15
	return stage.travel(ctx, e.seat.stream, rounds(parts, size), func(i int) (t trip) {
		for node, p := range parts {
			there := piece{p.chunk(i, size), node * size}
			if node == e.at.node {
				t.down = append(t.down, there)
			} else {
				t.up = append(t.up, there)
			}
		}
		return t
	}, func(i int, slot []byte) error {
		return e.ringGather(places{slot, size, func(node int) int { return parts[node].chunk(i, size).bytes }})
	})
}

// part is what this carrier has of a node's region of elements of so many bytes.
func (e *Engine) part(b Buffer, block, size, node int) Buffer {
	r := e.region(b, block, node)
	lo, hi := divide(r.bytes/size, e.at.carriers).part(e.at.local)
	return r.Slice(lo*size, hi*size)
}

// rounds is how many chunks the largest of some parts has.
func rounds(parts []Buffer, size int) (n int) {
	for _, p := range parts {
		n = max(n, chunks(p.bytes, size))
	}
	return n
}
