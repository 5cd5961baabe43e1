package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
)

var errCorrupt = errors.New("sent a state that does not match its hash")

// sync gives all members of a generation the same state: the newest commit that any of them holds or, if nobody holds
// one, the newest checkpoint, or what rank 0 would start from; as commits of this generation. It returns the bytes that this member received. A
// member keeps its own commit until the new one is verified, so a sync that fails half-way loses nothing; what its
// tensors hold then is void.
func (s *State) sync(ctx context.Context, c *collective.Communicator, generation uint64) (received uint64, err error) {
	if s.held == nil {
		if err := s.begin(); err != nil {
			return 0, err
		}
	}
	before := s.held
	if received, err = s.exchange(ctx, c, generation); err != nil {
		return received, err
	}
	if s.partial != nil { // what was fetched aside was not needed
		s.spare, s.partial = s.partial, nil
	}
	switch {
	case received > 0: // the tensors have it already
		err = s.restoreMeta()
	case s.warm, s.held != before: // fetched aside, or read from disk
		err = s.Restore()
	}
	s.warm = false
	return received, err
}

// begin saves what this member would start from, if nobody holds a commit.
func (s *State) begin() error {
	if err := s.save(0); err != nil {
		return err
	}
	s.held.tentative = true
	return nil
}

func (s *State) exchange(ctx context.Context, c *collective.Communicator, generation uint64) (received uint64, err error) {
	var offers []offer
	var best int
	var holders, lacking []int
	for {
		if offers, err = s.compare(ctx, c); err != nil {
			return 0, err
		}
		if best, holders, lacking, err = agree(offers); err != nil {
			return 0, err
		}
		if offers[best].standing != stored {
			break
		}
		if mine := offers[c.Rank()]; mine.standing == stored && mine.name == offers[best].name {
			if err := s.resume(); err != nil {
				return 0, err
			}
		}
	}
	if len(lacking) > 0 {
		p, err := s.parcel(ctx, c, best, offers[best])
		if err != nil {
			return 0, err
		}
		if err := p.exchange(ctx, holders, lacking); err != nil {
			return 0, err
		}
		received = p.received
		if p.to != nil {
			s.adopt(p.to)
			s.named = true
		}
		// Nobody trains before all are known to have it.
		if err := c.Barrier(ctx); err != nil {
			return received, err
		}
	}
	// Equal content may have been committed under different names; from here on it has one.
	won := offers[best].name
	if offers[best].standing != committed {
		won.Generation = generation
	}
	s.shelf.agree(s.held, won.Generation, won.Step)
	s.resumed = nil
	if offers[best].standing == loaded {
		s.resumed = &offers[best].name
	}
	return received, nil
}

// compare tells all members what each of them has.
func (s *State) compare(ctx context.Context, c *collective.Communicator) ([]offer, error) {
	all := make([]byte, offerBytes*c.World())
	if err := c.Allgather(ctx, collective.OfBytes(s.offer().encode()), collective.OfBytes(all)); err != nil {
		return nil, err
	}
	offers := make([]offer, c.World())
	for r := range offers {
		var err error
		if offers[r], err = decodeOffer(all[r*offerBytes : (r+1)*offerBytes]); err != nil {
			return nil, err
		}
	}
	return offers, nil
}

// basis returns the snapshot to receive into, the hashes of the leaves that need not be sent, and which of those are in the
// snapshot already; the others are in what is held.
func (s *State) basis() (to *snapshot, mine []mark, there []bool) {
	mine, there = s.held.marks(), make([]bool, len(s.held.pieces))
	if s.partial == nil {
		to = s.blank()
		to.forget()
		return to, mine, there
	}
	to, s.partial = s.partial, nil
	s.spare = to
	to.forget()
	for i, m := range s.known {
		if m != (mark{}) {
			mine[i], there[i] = m, true
		}
	}
	return to, mine, there
}

// corrupt ends the generation because of a rank that has sent what does not match its hash.
func corrupt(c *collective.Communicator, from int) error {
	c.Abort(&collective.PeerLostError{Rank: from, Generation: c.Generation(), Cause: errCorrupt})
	return fmt.Errorf("sync: %w", c.Failed())
}
