package statesync

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/collective"
)

var errCorrupt = errors.New("sent a state that does not match its hash")

// Result is the outcome of a sync.
type Result struct {
	Received uint64 // bytes that this member received
	Changed  bool   // the newest commit is a different one, and is in the tensors
}

// Sync gives all members of a generation the same state as a commit of it: the newest commit that
// any of them has, else the newest checkpoint, else the initial state of rank 0. The replica must
// have a commit or an initial state.
//
// A member keeps its own commit until the new one is verified, so an error loses nothing; the
// content of the tensors is undefined then.
func (r *Replica) Sync(ctx context.Context, c *collective.Communicator, generation uint64) (Result, error) {
	r.takeLive()
	before := r.newest
	received, err := r.agree(ctx, c, generation)
	if err != nil {
		return Result{Received: received}, err
	}
	if r.partial != nil { // the prefetch was not needed
		r.spare, r.partial = r.partial.snapshot, nil
	}
	changed := received > 0 || r.unapplied || r.newest != before
	if received == 0 && changed { // prefetched or loaded; a transfer writes to the tensors itself
		r.Restore()
	}
	r.unapplied, r.bound = false, Commit{}
	return Result{Received: received, Changed: changed}, nil
}

// agree chooses the state and transfers it to the members that lack it.
func (r *Replica) agree(ctx context.Context, c *collective.Communicator, generation uint64) (received uint64, err error) {
	all, best, holders, lacking, err := r.negotiate(ctx, c)
	if err != nil {
		return 0, err
	}
	if len(lacking) > 0 {
		t, err := r.newTransfer(ctx, c, best, all[best])
		if err != nil {
			return 0, err
		}
		if err := t.run(ctx, holders, lacking); err != nil {
			return 0, err
		}
		received = t.received
		if t.into != nil {
			r.adopt(t.into)
			r.hashed = true
		}
		// Nobody trains before all members are known to have the state.
		if err := c.Barrier(ctx); err != nil {
			return received, err
		}
	}
	// Members may have committed equal content under different names.
	name := all[best].Name
	if all[best].Origin != fromCommit {
		name.Generation = generation
	}
	r.store.setVersion(r.newest, name.Generation, name.Step)
	r.last = Commit{name.Generation, name.Step}
	r.resumed = nil
	if all[best].Origin == fromCheckpoint {
		r.resumed = &all[best].Name
	}
	return received, nil
}

// negotiate exchanges inventories until the best one is in the memory of a member: while it is a
// checkpoint on disk, the members that have it load it.
func (r *Replica) negotiate(ctx context.Context, c *collective.Communicator) (all []inventory, best int, holders, lacking []int, err error) {
	for {
		if all, err = r.exchangeInventories(ctx, c); err != nil {
			return nil, 0, nil, nil, err
		}
		if bound, over := overBound(all); over {
			r.ReturnTo(bound)
			continue
		}
		best, holders, lacking, err = choose(all)
		if err != nil || all[best].Origin != fromDisk {
			return all, best, holders, lacking, err
		}
		if mine := all[c.Rank()]; mine.Origin == fromDisk && mine.Name == all[best].Name {
			if err := r.load(); err != nil {
				return nil, 0, nil, nil, err
			}
		}
	}
}

func (r *Replica) exchangeInventories(ctx context.Context, c *collective.Communicator) ([]inventory, error) {
	b := make([]byte, inventoryBytes*c.World())
	if err := c.Allgather(ctx, collective.OfBytes(r.inventory().encode()), collective.OfBytes(b)); err != nil {
		return nil, err
	}
	all := make([]inventory, c.World())
	for rank := range all {
		var err error
		if all[rank], err = decodeInventory(b[rank*inventoryBytes : (rank+1)*inventoryBytes]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// corrupt aborts the generation because a rank has sent data that does not match its hash.
func corrupt(c *collective.Communicator, from int) error {
	c.Abort(&collective.PeerLostError{Rank: from, Generation: c.Generation(), Cause: errCorrupt})
	return fmt.Errorf("sync: %w", c.Failed())
}
