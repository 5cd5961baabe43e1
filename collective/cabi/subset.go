//go:build cgo

package main

import (
	"context"
	"errors"
	"slices"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/collective/queue"
)

// subsets are communicators among some of the ranks of another one. They have operations by name alone.
var subsets table[*communicator]

// subset is a communicator among some of the ranks; those make it. They are connected with its first operation. It belongs
// to c, and ends with it at the latest.
func (c *communicator) subset(name string, ranks []int) (*communicator, error) {
	place := slices.Index(ranks, c.Rank())
	for i, r := range ranks {
		if r < 0 || r >= c.World() || i > 0 && r <= ranks[i-1] {
			return nil, invalidf("the ranks %v are not ascending and within 0 to %d", ranks, c.World()-1)
		}
	}
	if name == "" || place < 0 {
		return nil, invalidf("a subset has a name, and this rank, %d, among its ranks %v", c.Rank(), ranks)
	}
	s := newCommunicator(c.Communicator, c.job)
	s.parent, s.name, s.ranks, s.named.options = c, name, slices.Clone(ranks), c.named.options
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, collective.ErrClosed
	}
	c.subsets = append(c.subsets, s)
	return s, nil
}

// open makes the connections for operations by name.
func (c *communicator) open(ctx context.Context) (*collective.Communicator, error) {
	if c.parent != nil {
		return c.Subgroup(ctx, c.name, c.ranks)
	}
	return c.Dup(ctx, "named")
}

// dropSubset forgets a subset that was closed.
func (c *communicator) dropSubset(s *communicator) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subsets = slices.DeleteFunc(c.subsets, func(other *communicator) bool { return other == s })
}

// closeSubsets ends those that are open.
func (c *communicator) closeSubsets() {
	c.mu.Lock()
	open := slices.Clone(c.subsets)
	c.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

// size is the number of ranks that operations by name are among.
func (c *communicator) size() int {
	if c.parent != nil {
		return len(c.ranks)
	}
	return c.World()
}

// rankOutside is the number in the world of a rank of this communicator.
func (c *communicator) rankOutside(rank int) int {
	if c.parent == nil || rank < 0 || rank >= len(c.ranks) {
		return rank
	}
	return c.ranks[rank]
}

// outside is an error with the ranks' numbers in the world: the program knows no others.
func (c *communicator) outside(err error) error {
	var lost *collective.PeerLostError
	var joined *queue.JoinedError
	switch {
	case c.parent == nil || errors.Is(err, collective.ErrAborted):
		return err
	case errors.As(err, &lost):
		e := *lost
		e.Rank = c.rankOutside(lost.Rank)
		return &e
	case errors.As(err, &joined):
		e := *joined
		e.Ranks = nil
		for _, r := range joined.Ranks {
			e.Ranks = append(e.Ranks, c.rankOutside(r))
		}
		return &e
	}
	return err
}
