package elastic

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
)

var errCorrupt = errors.New("sent a state that does not match its hash")

// sync gives all members of a generation the same state: the newest commit that any of them holds or, if nobody holds
// one, what rank 0 would start from, as commit (generation, 0). It returns the bytes that this member received. A
// member keeps its own commit until the new one is verified, so a sync that fails half-way loses nothing.
func (s *State) sync(ctx context.Context, c *collective.Communicator, generation uint64) (received uint64, err error) {
	if s.held == nil {
		if err := s.begin(); err != nil {
			return 0, err
		}
	}
	if s.held.tentative {
		s.held.generation = generation
	}
	before := s.held
	if c.World() > 1 {
		if received, err = s.exchange(ctx, c); err != nil {
			return received, err
		}
	}
	s.shelf.agree(s.held, s.held.generation, s.held.step)
	if s.partial != nil { // what was fetched aside was not needed
		s.spare, s.partial = s.partial, nil
		s.spare.forget()
	}
	if s.held != before || s.warm {
		s.warm = false
		return received, s.Restore()
	}
	return received, nil
}

// begin saves what this member would start from, if nobody holds a commit.
func (s *State) begin() error {
	if err := s.save(0); err != nil {
		return err
	}
	s.held.tentative = true
	return nil
}

func (s *State) exchange(ctx context.Context, c *collective.Communicator) (received uint64, err error) {
	mine := offer{
		holds: !s.held.tentative, generation: s.held.generation, step: s.held.step,
		metaBytes: uint64(len(s.held.meta)), hash: s.name(), layout: s.layout(),
	}
	all := make([]byte, offerBytes*c.World())
	if err := c.Allgather(ctx, collective.OfBytes(mine.encode()), collective.OfBytes(all)); err != nil {
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
	s.shelf.agree(s.held, offers[best].generation, offers[best].step)
	return received, c.Barrier(ctx)
}

// send passes what is held to a rank, except for the leaves that it has: the two compare the marks of all leaves first.
func (s *State) send(ctx context.Context, c *collective.Communicator, to int) error {
	mine, theirs := encodeMarks(s.held.marks()), make([]byte, len(s.held.pieces)*len(mark{}))
	if err := c.Send(ctx, to, s.held.meta); err != nil {
		return err
	}
	if err := c.Send(ctx, to, mine); err != nil {
		return err
	}
	if err := c.Recv(ctx, to, theirs); err != nil {
		return err
	}
	for i := range s.held.pieces {
		if markAt(mine, i) == markAt(theirs, i) {
			continue
		}
		if err := c.Send(ctx, to, leaf(s.held.data, i)); err != nil {
			return err
		}
	}
	return nil
}

// receive takes a snapshot into the spare buffer. Each leaf is hashed while the next one arrives.
func (s *State) receive(ctx context.Context, c *collective.Communicator, from int, want offer) (uint64, error) {
	to, mine, there := s.basis()
	to.meta = make([]byte, want.metaBytes)
	theirs := make([]byte, len(to.pieces)*len(mark{}))
	if err := c.Recv(ctx, from, to.meta); err != nil {
		return 0, err
	}
	if err := c.Recv(ctx, from, theirs); err != nil {
		return 0, err
	}
	if err := c.Send(ctx, from, encodeMarks(mine)); err != nil {
		return 0, err
	}
	received := uint64(len(to.meta) + len(theirs))
	arrived := make(chan int, len(to.pieces))
	hashed := make(chan struct{})
	intact := root(to.meta, decodeMarks(theirs)) == want.hash
	go func() {
		defer close(hashed)
		for i := range arrived {
			intact = intact && markOf(leaf(to.data, i)) == markAt(theirs, i)
		}
	}()
	var err error
	for i := 0; i < len(to.pieces) && err == nil; i++ {
		if mine[i] == markAt(theirs, i) {
			if !there[i] {
				copy(leaf(to.data, i), leaf(s.held.data, i))
			}
		} else if err = c.Recv(ctx, from, leaf(to.data, i)); err == nil {
			received += uint64(len(leaf(to.data, i)))
			arrived <- i
		}
		to.know(i, markAt(theirs, i))
	}
	close(arrived)
	<-hashed
	if err != nil {
		return 0, err
	}
	if !intact {
		c.Abort(&collective.PeerLostError{Rank: from, Generation: c.Generation(), Cause: errCorrupt})
		return 0, fmt.Errorf("sync: %w", c.Failed())
	}
	to.generation, to.step = want.generation, want.step
	s.adopt(to)
	s.named = true
	return received, nil
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
