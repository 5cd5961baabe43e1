package nccl

import (
	"context"
	"fmt"
	"sync/atomic"
)

// birth is a call that makes a communicator out of another.
type birth struct {
	op     string
	call   func(parent uintptr) Code // must pass the parent's child field on
	asking bool                      // the child is asked how far it is (Grow), not the parent
}

// descend makes the call and waits for the child, nil if there is none for this rank.
// If it fails after NCCL has begun, so has the parent; a half-made child is ended with it.
func (c *Comm) descend(ctx context.Context, opt CommOptions, b birth) (*Comm, error) {
	if err := c.lock(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", b.op, err)
	}
	defer c.unlock()
	err := c.dev.do(ctx, b.op, func() error {
		native := c.native.Load()
		if native == 0 {
			return c.gone()
		}
		if code := b.call(native); !code.working() {
			err := c.dev.lib.failure(b.op, code, native)
			if code != InvalidArgument {
				c.fail(err)
			}
			return err
		}
		return nil
	})
	if stuck(err) {
		c.fail(err)
	}
	if err != nil {
		return nil, err
	}
	err = c.dev.poll(ctx, b.op, func() (bool, error) {
		state, err := c.state()
		if err == nil && b.asking {
			state, err = c.dev.lib.state(atomic.LoadUintptr(c.child))
		}
		return state == Success && err == nil, err
	})
	if err != nil {
		c.fail(err)
		return nil, err
	}
	// An Abort beside this takes the child from here too, and frees it.
	native := atomic.SwapUintptr(c.child, 0)
	if native == 0 {
		if c.native.Load() == 0 {
			return nil, c.gone()
		}
		return nil, nil
	}
	next := c.dev.newComm(opt)
	next.config = c.config // it inherited the names
	next.native.Store(native)
	if err := next.place(ctx); err != nil {
		return nil, next.discard(ctx, err)
	}
	return next, nil
}

// place asks the child who it is, and begins it.
func (c *Comm) place(ctx context.Context) error {
	n := &c.dev.lib.nccl
	err := c.dev.do(ctx, "ncclCommUserRank", func() error {
		var rank, world int32
		native := c.native.Load()
		if code := n.CommUserRank(native, &rank); code != Success {
			return c.dev.lib.failure("ncclCommUserRank", code, native)
		}
		if code := n.CommCount(native, &world); code != Success {
			return c.dev.lib.failure("ncclCommCount", code, native)
		}
		c.opt.Rank, c.opt.World = int(rank), int(world)
		return nil
	})
	if err != nil {
		return err
	}
	return c.begin(ctx)
}

// NoColor is the color of ranks that Split leaves out.
const NoColor = noColor

// Part says where a rank goes in a Split.
type Part struct {
	Color int // ranks of one color are a communicator; NoColor: in none
	Key   int // their order in it; equal keys: the old order
}

// Split makes a communicator of each color. All ranks call it, with no operation under
// way. The result is nil for NoColor. This communicator goes on. Since 2.18.1.
func (c *Comm) Split(ctx context.Context, p Part) (*Comm, error) {
	n := &c.dev.lib.nccl
	if n.CommSplit == nil {
		return nil, unsupported("Split", since("CommSplit"), c.dev.lib.version)
	}
	if p.Color < NoColor {
		return nil, invalid("color %d", p.Color)
	}
	ctx, done := c.scope(ctx, "split")
	defer done()
	return c.descend(ctx, c.opt, birth{op: "ncclCommSplit", call: func(parent uintptr) Code {
		return n.CommSplit(parent, int32(p.Color), int32(p.Key), c.child, nil)
	}})
}

// GrowID makes the id for one Grow. One rank calls it, tells it to the newcomers, and
// gives it to its own Grow. Since 2.29.2.
func (c *Comm) GrowID(ctx context.Context) (UniqueID, error) {
	n := &c.dev.lib.nccl
	if n.CommGetUniqueID == nil || n.CommGrow == nil {
		return UniqueID{}, unsupported("Grow", since("CommGrow"), c.dev.lib.version)
	}
	var id idArgument
	err := c.ask(ctx, "ncclCommGetUniqueId", func(native uintptr) Code { return n.CommGetUniqueID(native, &id) })
	if err != nil {
		return UniqueID{}, err
	}
	return id.Internal, nil
}

// Grow makes a communicator of world ranks out of this one and of newcomers, which
// call Init with Joins and ranks from the old world on. All ranks call it, with no operation under
// way; who called GrowID gives the id, the others nil. Everyone keeps its rank. This
// communicator is closed. Since 2.29.2.
func (c *Comm) Grow(ctx context.Context, world int, id *UniqueID) (*Comm, error) {
	n := &c.dev.lib.nccl
	if n.CommGrow == nil {
		return nil, unsupported("Grow", since("CommGrow"), c.dev.lib.version)
	}
	if world <= c.opt.World {
		return nil, invalid("a world of %d grows to %d", c.opt.World, world)
	}
	var argument *idArgument
	if id != nil {
		argument = &idArgument{*id}
	}
	scoped, done := c.scope(ctx, "grow")
	defer done()
	next, err := c.descend(scoped, c.opt, birth{op: "ncclCommGrow", asking: true, call: func(parent uintptr) Code {
		return n.CommGrow(parent, int32(world), argument, -1, c.child, nil)
	}})
	if err != nil {
		return nil, err
	}
	if err := c.Close(ctx); err != nil {
		return nil, next.discard(ctx, err)
	}
	return next, nil
}
