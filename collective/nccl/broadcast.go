package nccl

import (
	"context"
	"errors"
)

// Broadcast copies root's b to all ranks.
func (e *Engine) Broadcast(ctx context.Context, on *Stream, b Buffer, root int) *Task {
	if err := errors.Join(e.has(root), b.holds(e.seat.dev, b.bytes)); err != nil {
		return failed(err)
	}
	return e.start(ctx, "Broadcast", on, func(ctx context.Context) (*Work, error) { return e.broadcast(ctx, b, root) })
}

func (e *Engine) broadcast(ctx context.Context, b Buffer, root int) (last *Work, err error) {
	node, local := e.at.find(root)
	here := node == e.at.node
	if here && e.local != nil && b.bytes > 0 {
		if last, err = e.launch(ctx, Broadcast(b, b, Uint8, local)); err != nil {
			return nil, err
		}
	}
	if e.at.nodes() == 1 {
		return e.done(ctx, last)
	}
	s := divide(b.bytes, e.at.carriers)
	if e.at.carries() {
		lo, hi := s.part(e.at.local)
		if err := e.pass(ctx, b.Slice(lo, hi), node); err != nil {
			return nil, err
		}
	}
	if here {
		return e.done(ctx, last)
	}
	last, err = e.launch(ctx, e.spread(b, s, 1)...)
	if err != nil {
		return nil, err
	}
	return e.done(ctx, last)
}

// done is the end of an operation whose last launch is known, if there was one.
func (e *Engine) done(ctx context.Context, last *Work) (*Work, error) {
	if last != nil {
		return last, nil
	}
	return e.settled(ctx)
}

// pass takes a part of the root node's buffer to the others.
func (e *Engine) pass(ctx context.Context, part Buffer, root int) error {
	stage, err := e.seat.stage(ctx, 0)
	if err != nil {
		return err
	}
	size := stage.size()
	from, to := e.relay(root, part.bytes > size)
	return stage.travel(ctx, e.seat.stream, chunks(part.bytes, size), func(i int) trip {
		there := []piece{{part.chunk(i, size), 0}}
		if from < 0 {
			return trip{down: there}
		}
		return trip{up: there}
	}, func(i int, slot []byte) error {
		p := slot[:part.chunk(i, size).bytes]
		if from >= 0 {
			if err := e.recv(from, p); err != nil {
				return err
			}
		}
		for _, node := range to {
			if err := e.send(node, p); err != nil {
				return err
			}
		}
		return nil
	})
}
