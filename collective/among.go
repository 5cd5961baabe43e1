package collective

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// AllreduceAmong is an Allreduce in groups: every rank of the world calls it at the same
// point, with the group that it belongs to. Groups are ascending and have no rank in common;
// a rank may be one of its own, for which nothing is done. Length, type and reduction are
// those of all ranks, also of other groups. Average divides by the size of the group.
//
// It goes over wires and never through shared memory: it is the part between machines of
// an operation whose parts on them are somebody else's. All ranks of a group get the same
// bits. Who is lost, and that programs diverged, is told to all groups, though one that has
// ended its part already hears of it in its next operation. Groups that do not fit together
// are noticed where their ranks talk to each other, and else not at all: take them from what
// all ranks know.
func (c *Communicator) AllreduceAmong(ctx context.Context, ranks []int, t Tensor, op Op) error {
	return c.among(ctx, ranks, call{method: allreduce, dtype: t.Type, op: op}, t)
}

// AllreduceAmongAs is AllreduceAmong with elements that are sent as AllreduceAs does. For
// Average the rounded sum is divided in float32, and not rounded again.
func (c *Communicator) AllreduceAmongAs(ctx context.Context, wire kernel.Type, ranks []int, t Tensor, op Op) error {
	k, err := narrowCall(wire, t, op)
	if err != nil {
		return err
	}
	return c.among(ctx, ranks, k, t)
}

// inGroups is the root of an AllreduceAmong as neighbours of all groups compare it: an
// Allreduce has none.
const inGroups = 1

func (c *Communicator) among(ctx context.Context, ranks []int, k call, t Tensor) error {
	if err := t.validate("the tensor"); err != nil {
		return err
	}
	if k.op > Max {
		return invalid("reduction %v", k.op)
	}
	place, err := c.placeAmong(ranks)
	if err != nil {
		return err
	}
	if err := c.take(ctx); err != nil {
		return err
	}
	defer c.endTurn()
	c.seq++
	if c.opt.World == 1 {
		return nil
	}
	k.seq, k.count, k.root = c.seq, uint64(t.Len()), inGroups
	c.begin(ctx, k, len(t.Data))
	defer c.finish()
	if len(ranks) == 1 {
		return nil
	}
	// The group's own messages name the group, and are summed: only here it is known by how
	// many an average is divided.
	average := k.op == Average
	k.root = nameOf(ranks, k.op)
	if average {
		k.op = Sum
	}
	c.work.prepare(k, schedule.Place{World: len(ranks), Rank: place}, ranks, t.Len(), 0, nil)
	if err := c.work.run(ctx, k, t.Data, t.Data); err != nil {
		if errors.Is(err, ErrDiverged) {
			return fmt.Errorf("among ranks %v: %w", ranks, err)
		}
		return err
	}
	if average {
		kernel.Average(t.Type, t.Data, len(ranks))
	}
	return nil
}

// placeAmong checks a group and finds this rank in it.
func (c *Communicator) placeAmong(ranks []int) (place int, err error) {
	place = -1
	for i, r := range ranks {
		switch {
		case r < 0 || r >= c.opt.World:
			return 0, invalid("rank %d of the group is not within 0 to %d", r, c.opt.World-1)
		case i > 0 && r <= ranks[i-1]:
			return 0, invalid("the group %v is not ascending", ranks)
		case r == c.opt.Rank:
			place = i
		}
	}
	if place < 0 {
		return 0, invalid("rank %d is not in its group %v", c.opt.Rank, ranks)
	}
	return place, nil
}

// nameOf is the same number for the same group and reduction, and most likely another one
// for others (FNV-1a); never that of an Allreduce.
func nameOf(ranks []int, op Op) uint32 {
	h := (uint32(2166136261) ^ uint32(op)) * 16777619
	for _, r := range ranks {
		h = (h ^ uint32(r)) * 16777619
	}
	return h | 2
}
