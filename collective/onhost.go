package collective

import (
	"errors"

	"github.com/regroup-io/regroup/collective/shm"
)

// onHost carries a call out through shared memory, if all ranks are on this machine.
func (c *Communicator) onHost(k call, data []byte, offsets []int) error {
	switch k.method {
	case barrier:
		return c.hosted(k, c.local.Barrier(c.ticket))
	case broadcast:
		return c.hosted(k, c.local.Broadcast(c.ticket, data, int(k.root)))
	case allgather:
		return c.hosted(k, c.local.Allgather(c.ticket, data, c.inBytes(offsets, k.dtype.Size())))
	case reduce:
		return c.hosted(k, c.local.Reduce(c.reduction(k), data, int(k.root)))
	case reduceScatter:
		return c.hosted(k, c.local.ReduceScatter(c.reduction(k), data))
	}
	return c.hosted(k, c.local.Allreduce(c.reduction(k), data))
}

func (c *Communicator) reduction(k call) shm.Reduction {
	r := shm.Reduction{Descriptor: c.ticket, Type: k.dtype, Op: k.op.kernel()}
	if k.op == Average {
		r.Divisor = c.opt.World
	}
	return r
}

// inBytes turns offsets in elements into offsets in bytes.
func (c *Communicator) inBytes(offsets []int, size int) []int {
	c.scaled = c.scaled[:0]
	for _, o := range offsets {
		c.scaled = append(c.scaled, o*size)
	}
	return c.scaled
}

// hosted turns an error of the group into that of the communicator.
func (c *Communicator) hosted(mine call, err error) error {
	if err == nil {
		return nil
	}
	var other *shm.MismatchError
	var lost *shm.MemberError
	switch {
	case errors.As(err, &other):
		h, err := parseHead(other.Descriptor[:])
		if err != nil {
			c.fail(c.lost(c.leader()+other.Member, err))
			break
		}
		if h.call == mine { // blocks of an all-to-all
			size := mine.dtype.Size()
			mine.count, h.call.count = uint64(other.Expected/size), uint64(other.Sent/size)
		}
		c.diverged(c.leader()+other.Member, mine, h.call)
	case errors.As(err, &lost):
		c.blame(c.leader()+lost.Member, lost.Err)
	case !errors.Is(err, shm.ErrAborted):
		c.Abort(err)
	}
	return c.ended()
}
