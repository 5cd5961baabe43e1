package nccl

// Operation is one collective or one direction of a direct exchange, for Comm.Do.
// Counts are not given: they follow from the sizes of the buffers. All ranks must
// give operations of the same kind and size, in the same order.
type Operation struct {
	name  string
	check func(c *Comm) error
	call  func(c *Comm, native, stream uintptr) Code
	parts func(c *Comm) []Operation // instead of call, where the library lacks it; may be nil
}

// AllReduce combines send of all ranks into recv of all ranks. Both may be the same.
func AllReduce(send, recv Buffer, t DataType, op ReduceOp) Operation {
	return Operation{
		name:  "ncclAllReduce",
		check: func(c *Comm) error { return c.fits(t, send, 1, recv, 1) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.AllReduce(send.pointer, recv.pointer, send.count(t), t, op, native, stream)
		},
	}
}

// Reduce combines send of all ranks into recv of root. Elsewhere recv may be empty.
func Reduce(send, recv Buffer, t DataType, op ReduceOp, root int) Operation {
	return Operation{
		name: "ncclReduce",
		check: func(c *Comm) error {
			if err := c.has(root); err != nil {
				return err
			}
			if c.opt.Rank != root {
				return c.fits(t, send, 1, send, 1)
			}
			return c.fits(t, send, 1, recv, 1)
		},
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Reduce(send.pointer, recv.pointer, send.count(t), t, op, int32(root), native, stream)
		},
	}
}

// Broadcast copies send of root into recv of all ranks. Elsewhere send may be empty.
func Broadcast(send, recv Buffer, t DataType, root int) Operation {
	return Operation{
		name: "ncclBroadcast",
		check: func(c *Comm) error {
			if err := c.has(root); err != nil {
				return err
			}
			if c.opt.Rank != root {
				return c.fits(t, recv, 1, recv, 1)
			}
			return c.fits(t, send, 1, recv, 1)
		},
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Broadcast(send.pointer, recv.pointer, recv.count(t), t, int32(root), native, stream)
		},
	}
}

// AllGather copies send of rank i into the i-th part of recv of all ranks.
func AllGather(send, recv Buffer, t DataType) Operation {
	return Operation{
		name:  "ncclAllGather",
		check: func(c *Comm) error { return c.fits(t, send, c.opt.World, recv, 1) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.AllGather(send.pointer, recv.pointer, send.count(t), t, native, stream)
		},
	}
}

// ReduceScatter combines the i-th part of send of all ranks into recv of rank i.
func ReduceScatter(send, recv Buffer, t DataType, op ReduceOp) Operation {
	return Operation{
		name:  "ncclReduceScatter",
		check: func(c *Comm) error { return c.fits(t, send, 1, recv, c.opt.World) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.ReduceScatter(send.pointer, recv.pointer, recv.count(t), t, op, native, stream)
		},
	}
}

// Send gives the buffer to the Recv of rank peer. Both wait for each other: ranks that
// exchange give both to one Do.
func Send(buffer Buffer, t DataType, peer int) Operation {
	return Operation{
		name:  "ncclSend",
		check: func(c *Comm) error { return c.direct(t, buffer, peer) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Send(buffer.pointer, buffer.count(t), t, int32(peer), native, stream)
		},
	}
}

// Recv fills the buffer from the Send of rank peer.
func Recv(buffer Buffer, t DataType, peer int) Operation {
	return Operation{
		name:  "ncclRecv",
		check: func(c *Comm) error { return c.direct(t, buffer, peer) },
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.Recv(buffer.pointer, buffer.count(t), t, int32(peer), native, stream)
		},
	}
}

// AllToAll copies the i-th part of send of rank j into the j-th part of recv of rank
// i. The buffers must not overlap. Before 2.28.3 it is a group of sends and receives.
func AllToAll(send, recv Buffer, t DataType) Operation {
	return Operation{
		name: "ncclAlltoAll",
		check: func(c *Comm) error {
			if err := c.fits(t, send, 1, recv, 1); err != nil {
				return err
			}
			if send.count(t)%uintptr(c.opt.World) != 0 {
				return invalid("%d elements for %d ranks", send.count(t), c.opt.World)
			}
			if s, r := send.pointer, recv.pointer; s < r+uintptr(recv.bytes) && r < s+uintptr(send.bytes) {
				return invalid("the buffers of an all-to-all overlap")
			}
			return nil
		},
		call: func(c *Comm, native, stream uintptr) Code {
			return c.dev.lib.nccl.AlltoAll(send.pointer, recv.pointer, send.count(t)/uintptr(c.opt.World), t, native, stream)
		},
		parts: func(c *Comm) (list []Operation) {
			if c.dev.lib.nccl.AlltoAll != nil {
				return nil
			}
			size := send.bytes / c.opt.World
			for peer := range c.opt.World {
				from, to := peer*size, (peer+1)*size
				list = append(list, Send(send.Slice(from, to), t, peer), Recv(recv.Slice(from, to), t, peer))
			}
			return list
		},
	}
}

func (b Buffer) count(t DataType) uintptr { return uintptr(b.bytes / t.Bytes()) }

// fits checks that both buffers are here, hold whole elements, and that times×a is
// as long as per×b.
func (c *Comm) fits(t DataType, a Buffer, times int, b Buffer, per int) error {
	if t.Bytes() == 0 {
		return invalid("data type %d", t)
	}
	for _, buffer := range []Buffer{a, b} {
		if err := buffer.holds(c.dev, buffer.bytes); err != nil {
			return err
		}
		if buffer.bytes%t.Bytes() != 0 {
			return invalid("%d bytes are no whole elements of %d bytes", buffer.bytes, t.Bytes())
		}
	}
	if a.bytes*times != b.bytes*per {
		return invalid("send has %d bytes and recv %d, in a world of %d", a.bytes, b.bytes, c.opt.World)
	}
	return nil
}

func (c *Comm) direct(t DataType, buffer Buffer, peer int) error {
	if err := c.has(peer); err != nil {
		return err
	}
	return c.fits(t, buffer, 1, buffer, 1)
}

func (c *Comm) has(rank int) error {
	if rank < 0 || rank >= c.opt.World {
		return invalid("rank %d is not within 0 to %d", rank, c.opt.World-1)
	}
	return nil
}
