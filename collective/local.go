package collective

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/regroup-io/regroup/collective/shm"
)

// share is a connection of another rank of this machine that wants to share memory.
type share struct {
	rank int
	conn net.Conn
}

// leader is the first rank of this machine.
func (c *Communicator) leader() int { return c.opt.Rank - c.opt.LocalRank }

func (c *Communicator) isLocal(rank int) bool {
	return rank >= c.leader() && rank < c.leader()+c.opt.LocalSize
}

// share forms the group of the ranks of this machine. That they cannot share memory is no
// error.
func (c *Communicator) share(ctx context.Context) error {
	switch {
	case c.opt.NoSharedMemory:
		c.apart = errors.New("shared memory is switched off")
		return nil
	case c.opt.LocalSize < 2:
		c.apart = errors.New("no other rank of this machine is known")
		return nil
	case c.opt.LocalSize > shm.MaxMembers:
		c.apart = fmt.Errorf("%d ranks on this machine, at most %d share memory", c.opt.LocalSize, shm.MaxMembers)
		return nil
	}
	forming, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.life, cancel)()
	arena, err := c.opt.Endpoint.sharedArena()
	if err != nil {
		arena = nil // then it is only slower
	}
	group, conns, err := c.formGroup(forming, arena)
	// Closed only when a failure is on record: who sees one end asks this rank why.
	defer closeConns(conns)
	failure, over := c.Failed(), ctx.Err() != nil
	if (failure != nil || over) && group != nil { // it has formed in the same moment
		group.Close()
	}
	var lost *shm.MemberError
	switch {
	case failure != nil:
		return failure
	case errors.Is(err, shm.ErrUnavailable):
		c.apart = err
		return nil
	case over:
		c.Abort(context.Cause(ctx))
		return c.Failed()
	case errors.As(err, &lost):
		return c.directFailure(c.leader()+lost.Member, lost.Err)
	case err != nil:
		c.Abort(err)
		return c.Failed()
	}
	group.OnSleep = c.watchNow
	c.mu.Lock()
	c.local = group
	c.mu.Unlock()
	for member := range c.opt.LocalSize {
		if c.left(c.leader() + member) { // before there was a group to tell
			group.MarkLeft(member)
		}
	}
	if c.life.Err() != nil {
		group.Abort()
		return c.ended()
	}
	return nil
}

// formGroup returns the connections too that it has used.
func (c *Communicator) formGroup(ctx context.Context, arena *shm.Arena) (*shm.Group, []net.Conn, error) {
	maps := c.opt.Endpoint.maps
	if c.opt.LocalRank > 0 {
		conn, err := c.open(ctx, c.leader(), forShare, 0)
		if err != nil {
			return nil, nil, &shm.MemberError{Member: 0, Err: err}
		}
		group, err := shm.Join(ctx, c.opt.LocalRank, c.opt.LocalSize, conn, arena, maps)
		return group, []net.Conn{conn}, err
	}
	conns := make([]net.Conn, c.opt.LocalSize-1)
	for range conns {
		select {
		case s := <-c.shares:
			conns[s.rank-c.leader()-1] = s.conn
		case <-ctx.Done():
			return nil, conns, context.Cause(ctx)
		}
	}
	group, err := shm.Lead(ctx, conns, arena, maps)
	return group, conns, err
}

func closeConns(conns []net.Conn) {
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}

// Describe tells people how this rank talks to the others.
func (c *Communicator) Describe() string {
	switch {
	case c.opt.World == 1:
		return "alone"
	case c.local == nil:
		return fmt.Sprintf("%d ranks over connections (%v)", c.opt.World, c.apart)
	case c.opt.LocalSize == c.opt.World:
		return fmt.Sprintf("%d ranks on this machine through %s", c.opt.World, c.local.Describe())
	}
	return fmt.Sprintf("%d of %d ranks on this machine through %s, the others over connections", c.opt.LocalSize, c.opt.World, c.local.Describe())
}
