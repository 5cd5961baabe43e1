package elastic

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
)

var errCorrupt = errors.New("sent a state that does not match its hash")

// sync gives all members of a generation the same state: the newest commit that any of them holds or, if nobody holds
// one, what rank 0 would start from, as commit (generation, 0). It returns the bytes that this member received. A
// member keeps its own commit until the new one is verified, so a sync that fails half-way loses nothing.
func (s *State) sync(ctx context.Context, c *collective.Communicator, generation uint64) (received uint64, err error) {
	if s.held == nil || s.held.tentative {
		if err := s.save(generation); err != nil {
			return 0, err
		}
		s.held.tentative = true
	}
	if c.World() > 1 {
		if received, err = s.exchange(ctx, c); err != nil {
			return received, err
		}
	}
	s.held.tentative = false
	if received > 0 {
		return received, s.Restore()
	}
	return 0, nil
}

func (s *State) exchange(ctx context.Context, c *collective.Communicator) (received uint64, err error) {
	mine := offer{
		holds: !s.held.tentative, generation: s.held.generation, step: s.held.step,
		metaBytes: uint64(len(s.held.meta)), hash: s.held.digest(), layout: s.layout(),
	}
	all := make([]byte, offerBytes*c.World())
	if err := collective.AllgatherBytes(ctx, c, mine.encode(), all); err != nil {
		return 0, err
	}
	offers := make([]offer, c.World())
	for r := range offers {
		if offers[r], err = decodeOffer(all[r*offerBytes : (r+1)*offerBytes]); err != nil {
			return 0, err
		}
	}
	best, plan, err := agree(offers)
	if err != nil {
		return 0, err
	}
	for _, round := range plan {
		for _, t := range round {
			switch c.Rank() {
			case t.from:
				err = s.send(ctx, c, t.to)
			case t.to:
				received, err = s.receive(ctx, c, t.from, offers[best])
			}
			if err != nil {
				return received, err
			}
		}
	}
	// Equal content may have been committed under different names; from here on it has one.
	s.held.generation, s.held.step = offers[best].generation, offers[best].step
	return received, c.Barrier(ctx)
}

func (s *State) send(ctx context.Context, c *collective.Communicator, to int) error {
	if err := c.Send(ctx, to, s.held.meta); err != nil {
		return err
	}
	for i := range leaves(len(s.held.data)) {
		if err := c.Send(ctx, to, leaf(s.held.data, i)); err != nil {
			return err
		}
	}
	return nil
}

// receive takes a snapshot into the spare buffer. Each piece is hashed while the next one arrives.
func (s *State) receive(ctx context.Context, c *collective.Communicator, from int, want offer) (uint64, error) {
	to := s.blank()
	to.meta = make([]byte, want.metaBytes)
	if err := c.Recv(ctx, from, to.meta); err != nil {
		return 0, err
	}
	pieces := make([]digest, leaves(len(to.data)))
	arrived := make(chan int, len(pieces))
	hashed := make(chan struct{})
	go func() {
		defer close(hashed)
		for i := range arrived {
			pieces[i] = sha256.Sum256(leaf(to.data, i))
		}
	}()
	var err error
	for i := 0; i < len(pieces) && err == nil; i++ {
		if err = c.Recv(ctx, from, leaf(to.data, i)); err == nil {
			arrived <- i
		}
	}
	close(arrived)
	<-hashed
	if err != nil {
		return 0, err
	}
	if root(to.meta, pieces) != want.hash {
		c.Abort(&collective.PeerLostError{Rank: from, Generation: c.Generation(), Cause: errCorrupt})
		return 0, fmt.Errorf("sync: %w", c.Failed())
	}
	to.generation, to.step, to.hash, to.hashed = want.generation, want.step, want.hash, true
	s.adopt(to)
	return uint64(len(to.meta) + len(to.data)), nil
}
