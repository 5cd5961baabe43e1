package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Subset connects some of the ranks once more, for operations among them alone, like
// MPI_Comm_create_group. The ranks of the subset, and no others, call it with the same name,
// each name once. They are ascending; rank i of the subset is ranks[i] of c. When c fails
// the subset fails, and the other way round, but for a rank that has closed the subset while
// others needed it: that is no failure of c. A *PeerLostError of the subset names a rank of
// the subset. Close it before c.
func (c *Communicator) Subset(ctx context.Context, name string, ranks []int) (*Communicator, error) {
	if name == "" {
		return nil, invalid("the name of a subset is empty")
	}
	place, err := c.placeAmong(ranks)
	if err != nil {
		return nil, err
	}
	ranks = slices.Clone(ranks)
	o := c.opt
	o.Job += "/" + name
	o.Rank, o.World = place, len(ranks)
	o.LocalRank, o.LocalSize = c.localAmong(ranks, place)
	if peers := o.Peers; peers != nil {
		o.Peers = func(ctx context.Context, rank int) (string, error) { return peers(ctx, ranks[rank]) }
	}
	o.OnFailure = func(failure error) {
		if !errors.Is(failure, ErrLeft) {
			c.fail(c.fromSubset(ranks, failure))
		}
	}
	d, err := c.connectAgain(ctx, o, func(failure error) error { return intoSubset(ranks, place, failure) })
	if err != nil {
		return nil, fmt.Errorf("subset %q: %w", name, err)
	}
	return d, nil
}

// localAmong returns this rank's number among the ranks of the group on its machine, and
// how many those are. They are adjacent in the group, as they are in the world.
func (c *Communicator) localAmong(ranks []int, place int) (localRank, localSize int) {
	if c.opt.LocalSize == 0 {
		return 0, 0
	}
	for i, r := range ranks {
		if c.isLocal(r) {
			localSize++
			if i < place {
				localRank++
			}
		}
	}
	return localRank, localSize
}

// fromSubset is a failure of a subset as the whole communicator states it.
func (c *Communicator) fromSubset(ranks []int, failure error) error {
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

// intoSubset is a failure of the whole communicator as a subset states it: a rank outside
// of the subset has no number there.
func intoSubset(ranks []int, place int, failure error) error {
	var lost *PeerLostError
	if errors.As(failure, &lost) {
		if i := slices.Index(ranks, lost.Rank); i >= 0 {
			e := *lost
			e.Rank, e.Witness, e.Witnessed = i, place, false
			return &e
		}
		return &AbortedError{Rank: place, Generation: lost.Generation, Cause: failure}
	}
	return failure
}
