package elastic

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/regroup-io/regroup/collective"
)

// parcel is one member's part in passing a state on to those who lack it.
type parcel struct {
	state *State
	comm  *collective.Communicator
	marks []mark // of the state that is passed on

	// Of a member that lacks it:
	to       *snapshot
	lacks    []byte // bit i%8 of byte i/8 = leaf i must come from others
	there    []bool // leaf i is in to already
	received uint64 // bytes

	from    []byte          // where the leaves lie that this member passes on
	arrived []chan struct{} // closed when leaf i is verified; nil = it was here before
}

// parcel tells all members what the state consists of. Those who lack it compare.
func (s *State) parcel(ctx context.Context, c *collective.Communicator, best int, want offer) (*parcel, error) {
	list := make([]byte, int(want.metaBytes)+leaves(s.size)*len(mark{}))
	if c.Rank() == best {
		copy(list[copy(list, s.held.meta):], encodeMarks(s.held.marks()))
	}
	if err := c.Broadcast(ctx, collective.OfBytes(list), best); err != nil {
		return nil, err
	}
	p := &parcel{
		state: s, comm: c, marks: decodeMarks(list[want.metaBytes:]), from: s.held.data,
		lacks: make([]byte, (leaves(s.size)+7)/8), arrived: make([]chan struct{}, leaves(s.size)),
	}
	if s.held.digest() == want.hash && uint64(len(s.held.meta)) == want.metaBytes {
		return p, nil
	}
	if root(list[:want.metaBytes], p.marks) != want.hash {
		return nil, corrupt(c, best)
	}
	var mine []mark
	p.to, mine, p.there = s.basis()
	p.to.meta, p.from = list[:want.metaBytes:want.metaBytes], p.to.data
	p.received = uint64(len(list))
	for i, m := range p.marks {
		if mine[i] != m {
			p.lacks[i/8] |= 1 << (i % 8)
			p.there[i] = false
			p.arrived[i] = make(chan struct{})
		}
		p.to.know(i, m)
	}
	return p, nil
}

// exchange passes the state on until all members have it, in their tensors too.
func (p *parcel) exchange(ctx context.Context, holders, lacking []int) error {
	all := make([]byte, len(p.lacks)*p.comm.World())
	if err := p.comm.Allgather(ctx, collective.OfBytes(p.lacks), collective.OfBytes(all)); err != nil {
		return err
	}
	lacks := make([][]byte, p.comm.World())
	for r := range lacks {
		lacks[r] = all[r*len(p.lacks) : (r+1)*len(p.lacks)]
	}
	e := newRoutes(holders, lacking, lacks).of(p.comm.Rank(), len(p.marks))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wait sync.WaitGroup
	start := func(f func() error) {
		wait.Go(func() {
			if err := f(); err != nil {
				cancel(err)
			}
		})
	}
	var received atomic.Uint64
	for from, leaves := range e.in {
		start(func() error { return p.receive(ctx, from, leaves, &received) })
	}
	for to, leaves := range e.out {
		start(func() error { return p.send(ctx, to, leaves) })
	}
	if p.to != nil {
		p.keep()
	}
	wait.Wait()
	p.received += received.Load()
	return context.Cause(ctx)
}

// send passes leaves on to a rank, each when it is here.
func (p *parcel) send(ctx context.Context, to int, leaves []int) error {
	for _, i := range leaves {
		if arrived := p.arrived[i]; arrived != nil {
			select {
			case <-arrived:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := p.comm.Send(ctx, to, leaf(p.from, i)); err != nil {
			return err
		}
	}
	return nil
}

// receive takes leaves from a rank. Each is verified and copied to the tensors while it is in the cache; meanwhile the system
// receives the next one.
func (p *parcel) receive(ctx context.Context, from int, leaves []int, received *atomic.Uint64) error {
	for _, i := range leaves {
		l := leaf(p.to.data, i)
		if err := p.comm.Recv(ctx, from, l); err != nil {
			return err
		}
		if markOf(l) != p.marks[i] {
			return corrupt(p.comm, from)
		}
		close(p.arrived[i])
		p.state.store(i*leafBytes, l)
		received.Add(uint64(len(l)))
	}
	return nil
}

// keep puts the leaves that need not be sent where they belong.
func (p *parcel) keep() {
	for i := range p.marks {
		if p.lacks[i/8]&(1<<(i%8)) != 0 {
			continue
		}
		l := leaf(p.to.data, i)
		if !p.there[i] {
			copy(l, leaf(p.state.held.data, i))
		}
		p.state.store(i*leafBytes, l)
	}
}
