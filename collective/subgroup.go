package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/regroup-io/regroup/collective/internal/frame"
	"github.com/regroup-io/regroup/collective/kernel"
)

// AllreduceSubgroup is an Allreduce in subgroups: every rank of the world calls it at the same
// point, with the subgroup that it belongs to. Subgroups are ascending and have no rank in common;
// a rank may be a subgroup of its own, for which nothing is done. Length, type and reduction are
// those of all ranks, also of other subgroups. Average divides by the size of the subgroup.
//
// It goes over connections and never through shared memory: it is the inter-node part of an
// operation whose intra-node parts the caller does otherwise. All ranks of a subgroup get the same
// bits. A loss or a divergence is sent to all subgroups, though one that has finished its part
// hears of it in its next operation only. Subgroups that do not fit together are noticed where
// their ranks communicate, and otherwise not at all: derive them from what all ranks know.
func (c *Communicator) AllreduceSubgroup(ctx context.Context, ranks []int, t Tensor, op Op) error {
	return c.runSubgroup(ctx, ranks, frame.Descriptor{Method: frame.Allreduce, Type: t.Type, Reduce: op}, t)
}

// AllreduceSubgroupAs is AllreduceSubgroup with elements that are sent as AllreduceAs does. For
// Average the rounded sum is divided in float32, and not rounded again.
func (c *Communicator) AllreduceSubgroupAs(ctx context.Context, wire kernel.Type, ranks []int, t Tensor, op Op) error {
	return c.runSubgroup(ctx, ranks, narrowAllreduce(wire, t, op), t)
}

func (c *Communicator) runSubgroup(ctx context.Context, ranks []int, d frame.Descriptor, t Tensor) error {
	if err := c.validate(d, t, t); err != nil {
		return err
	}
	place, err := c.placeIn(ranks)
	if err != nil {
		return err
	}
	if err := c.engine.Acquire(ctx); err != nil {
		return err
	}
	defer c.engine.Release()
	d.Origin = uint8(c.origin)
	return c.engine.ExecuteSubgroup(ctx, d, ranks, place, t.Data)
}

// placeIn checks a subgroup and finds this rank in it.
func (c *Communicator) placeIn(ranks []int) (place int, err error) {
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

// Dup connects the ranks once more, for operations that run beside those of c and have an order of
// their own, like MPI_Comm_dup. All ranks call it with the same name, each name once. When one of
// the two fails, both have failed. Close it before c.
func (c *Communicator) Dup(ctx context.Context, name string) (*Communicator, error) {
	if name == "" {
		return nil, invalid("the name of a duplicate is empty")
	}
	o := c.opt
	o.Job = c.derivedJob(name)
	o.OnFailure = c.session.Fail
	d, err := c.derive(ctx, o, func(failure error) error { return failure })
	if err != nil {
		return nil, fmt.Errorf("duplicate %q: %w", name, err)
	}
	return d, nil
}

// Subgroup connects some of the ranks once more, for operations among them alone, like
// MPI_Comm_create_group. The ranks of the subgroup, and no others, call it with the same name, each
// name once. They are ascending; rank i of the subgroup is ranks[i] of c. When c fails the subgroup
// fails, and the other way round, except when a rank has closed the subgroup while others needed
// it: that is no failure of c. A *PeerLostError of the subgroup names a rank of the subgroup. Close
// it before c.
func (c *Communicator) Subgroup(ctx context.Context, name string, ranks []int) (*Communicator, error) {
	if name == "" {
		return nil, invalid("the name of a subset is empty")
	}
	place, err := c.placeIn(ranks)
	if err != nil {
		return nil, err
	}
	ranks = slices.Clone(ranks)
	o := c.opt
	o.Job = c.derivedJob(name)
	o.Rank, o.World = place, len(ranks)
	o.LocalRank, o.LocalSize = c.localPlace(ranks, place)
	if peers := o.Peers; peers != nil {
		o.Peers = func(ctx context.Context, rank int) (string, error) { return peers(ctx, ranks[rank]) }
	}
	o.OnFailure = func(failure error) {
		var aborted *AbortedError
		switch {
		case errors.Is(failure, ErrLeft):
		case errors.As(failure, &aborted) && aborted.Rank < len(ranks) && aborted.Rank != place:
			// The rank may have aborted the subgroup because it has lost another rank of the world.
			c.session.FailAfterProbe(ranks[aborted.Rank], c.fromSubgroup(ranks, failure))
		default:
			c.session.Fail(c.fromSubgroup(ranks, failure))
		}
	}
	d, err := c.derive(ctx, o, func(failure error) error { return toSubgroup(ranks, place, failure) })
	if err != nil {
		return nil, fmt.Errorf("subset %q: %w", name, err)
	}
	return d, nil
}

// derivedJob names the job of a further communicator. Each origin has names of its own.
func (c *Communicator) derivedJob(name string) string {
	if c.origin == 0 {
		return c.opt.Job + "/" + name
	}
	return fmt.Sprintf("%s/%s of origin %d", c.opt.Job, name, c.origin)
}

// derive makes a further communicator that fails with c. translate is c's failure in terms of that
// one.
func (c *Communicator) derive(ctx context.Context, o Options, translate func(error) error) (*Communicator, error) {
	if failure := c.session.Usable(); failure != nil {
		return nil, translate(failure)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.session.Context(), func() { cancel(c.session.Ended()) })()
	d, err := New(ctx, o)
	if err != nil {
		if failure := c.session.Usable(); failure != nil {
			err = translate(failure)
		}
		return nil, err
	}
	stop := context.AfterFunc(c.session.Context(), func() { d.session.Fail(translate(c.session.Ended())) })
	context.AfterFunc(d.session.Context(), func() { stop() })
	return d, nil
}

// localPlace returns this rank's number among the ranks of the subgroup on its machine, and how
// many those are. They are adjacent in the subgroup, as they are in the world.
func (c *Communicator) localPlace(ranks []int, place int) (localRank, localSize int) {
	if c.opt.LocalSize == 0 {
		return 0, 0
	}
	for i, r := range ranks {
		if c.engine.IsLocal(r) {
			localSize++
			if i < place {
				localRank++
			}
		}
	}
	return localRank, localSize
}

// fromSubgroup translates a failure of a subgroup to the ranks of c.
func (c *Communicator) fromSubgroup(ranks []int, failure error) error {
	var lost *PeerLostError
	var aborted *AbortedError
	switch {
	case errors.As(failure, &lost) && lost.Rank < len(ranks):
		e := *lost
		e.Rank = ranks[lost.Rank]
		if e.Witnessed && lost.Witness < len(ranks) {
			e.Witness = ranks[lost.Witness]
		}
		return &e
	case errors.As(failure, &aborted) && aborted.Rank < len(ranks):
		e := *aborted
		e.Rank = ranks[aborted.Rank]
		return &e
	}
	return &AbortedError{Rank: c.opt.Rank, Generation: c.opt.Generation, Cause: failure}
}

// toSubgroup translates a failure of the whole communicator to the ranks of a subgroup: a rank
// outside of the subgroup has no number there.
func toSubgroup(ranks []int, place int, failure error) error {
	if lost, ok := errors.AsType[*PeerLostError](failure); ok {
		if i := slices.Index(ranks, lost.Rank); i >= 0 {
			e := *lost
			e.Rank, e.Witness, e.Witnessed = i, place, false
			return &e
		}
		return &AbortedError{Rank: place, Generation: lost.Generation, Cause: failure}
	}
	return failure
}
