package collective

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

// step is one operation of a program that all ranks run.
type step struct {
	name    string
	t, wire kernel.Type
	op      Op
	root, n int
	f       flavour
	seed    uint64
}

func (s step) String() string {
	return fmt.Sprintf("%s of %d %v (%v) with %v, root %d, as %v, seed %d", s.name, s.n, s.t, s.f, s.op, s.root, s.wire, s.seed)
}

var stepNames = []string{
	"Allreduce", "AllreduceAs", "ReduceScatter", "Reduce", "Broadcast", "Allgather", "AllgatherBlobs",
	"Alltoall", "uneven Alltoall", "Barrier", "Send and Recv",
}

// draw is any step.
func draw(rng *rand.Rand, name string, world, most int) step {
	lengths := []int{0, 1, 2, world - 1, world, world + 1, 31, 32, 33, rng.IntN(300), rng.IntN(most), rng.IntN(most)}
	s := step{
		name: name, t: allTypes[rng.IntN(len(allTypes))], op: Op(rng.IntN(5)), root: rng.IntN(world),
		n: lengths[rng.IntN(len(lengths))], f: flavour(rng.IntN(3)), seed: rng.Uint64(),
	}
	if name == "AllreduceAs" {
		s.t, s.wire = kernel.Float32, []kernel.Type{kernel.Float16, kernel.BFloat16}[rng.IntN(2)]
	}
	return s
}

// give is this rank's contribution to a step.
func (s step) give(rank int) []byte { return contribution(s.t, s.op, s.f, s.n, s.seed, rank) }

// lent is memory for tensors, in which writing beyond the end is noticed.
type lent struct {
	bytes  func(n int) []byte
	giveUp func() error // an error if anything was written out of bounds; all memory is free then
}

const margin = 64

// lend makes memory at any address, or memory that ranks of one machine can see.
func lend(c *Communicator, rng *rand.Rand) lent {
	var all, arena [][]byte
	return lent{
		bytes: func(n int) []byte {
			if c.engine.Group() != nil && n > 0 && rng.IntN(2) == 0 {
				if p, err := c.opt.Endpoint.Alloc(n + 7); err == nil {
					arena = append(arena, p)
					at := rng.IntN(8)
					return p[at : at+n]
				}
			}
			at := margin + rng.IntN(8)
			p := bytes.Repeat([]byte{0xa5}, at+n+margin)
			all = append(all, p[:at], p[at+n:])
			return p[at : at+n : at+n]
		},
		giveUp: func() error {
			for _, p := range arena {
				c.opt.Endpoint.Free(p)
			}
			for _, p := range all {
				if !bytes.Equal(p, bytes.Repeat([]byte{0xa5}, len(p))) {
					return fmt.Errorf("rank %d: it was written beyond the end of a tensor", c.Rank())
				}
			}
			return nil
		},
	}
}

// run executes a step and returns this rank's part of the result.
func (s step) run(ctx context.Context, c *Communicator, rng *rand.Rand) (got []byte, err error) {
	m := lend(c, rng)
	defer func() {
		got = bytes.Clone(got)
		if wild := m.giveUp(); err == nil {
			err = wild
		}
	}()
	world, rank, size := c.World(), c.Rank(), s.t.Size()
	mine := s.give(rank)
	tensor := func(from []byte) Tensor {
		p := m.bytes(len(from))
		copy(p, from)
		return Tensor{s.t, p}
	}
	switch s.name {
	case "Allreduce":
		t := tensor(mine)
		return t.Data, c.Allreduce(ctx, t, s.op)
	case "AllreduceAs":
		t := tensor(mine)
		return t.Data, c.AllreduceAs(ctx, s.wire, t, s.op)
	case "ReduceScatter":
		t := tensor(mine)
		lo, hi := c.Segment(s.n, rank)
		return t.Data[lo*size : hi*size], c.ReduceScatter(ctx, t, s.op)
	case "Reduce":
		t := tensor(mine)
		if err := c.Reduce(ctx, t, s.op, s.root); err != nil || rank != s.root {
			return nil, err
		}
		return t.Data, nil
	case "Broadcast":
		t := tensor(mine)
		return t.Data, c.Broadcast(ctx, t, s.root)
	case "Allgather":
		recv := tensor(make([]byte, world*len(mine)))
		send := tensor(mine)
		if rng.IntN(2) == 0 { // in place
			send.Data = recv.Data[rank*len(mine):][:len(mine)]
			copy(send.Data, mine)
		}
		return recv.Data, c.Allgather(ctx, send, recv)
	case "AllgatherBlobs":
		blobs, err := c.AllgatherBlobs(ctx, tensor(mine[:s.blob(rank)]).Data)
		return bytes.Join(blobs, []byte("|")), err
	case "Alltoall":
		send, recv := tensor(bytes.Repeat(mine, world)), tensor(make([]byte, world*len(mine)))
		return recv.Data, c.Alltoall(ctx, send, recv, nil, nil)
	case "uneven Alltoall":
		return s.exchange(ctx, c, tensor, mine)
	case "Barrier":
		return nil, c.Barrier(ctx)
	}
	return s.pass(ctx, c, tensor(mine).Data, m.bytes(len(mine)))
}

// blob is the length of a rank's contribution.
func (s step) blob(rank int) int { return s.n * s.t.Size() * ((rank + int(s.seed%5)) % 4) / 3 }

// block is how many elements a rank has for another.
func (s step) block(from, to int) int { return s.n * ((from + 2*to + int(s.seed%7)) % 4) / 3 }

func (s step) exchange(ctx context.Context, c *Communicator, tensor func([]byte) Tensor, mine []byte) ([]byte, error) {
	world, rank, size := c.World(), c.Rank(), s.t.Size()
	out, in, total := make([]int, world), make([]int, world), 0
	var send []byte
	for q := range world {
		out[q], in[q] = s.block(rank, q), s.block(q, rank)
		send = append(send, mine[:out[q]*size]...)
		total += in[q]
	}
	recv := tensor(make([]byte, total*size))
	return recv.Data, c.Alltoall(ctx, tensor(send), recv, out, in)
}

// pass sends to one rank while it receives from another one.
func (s step) pass(ctx context.Context, c *Communicator, mine, p []byte) ([]byte, error) {
	d := s.distance(c.World())
	if d == 0 {
		return nil, nil
	}
	sent := make(chan error, 1)
	go func() { sent <- c.Send(ctx, (c.Rank()+d)%c.World(), mine) }()
	err := c.Recv(ctx, (c.Rank()-d+c.World())%c.World(), p)
	if failed := <-sent; err == nil {
		err = failed
	}
	return p, err
}

func (s step) distance(world int) int { return int(s.seed % uint64(world)) }

// check judges the results of all ranks.
func (s step) check(got [][]byte) error {
	world, inputs := len(got), make([][]byte, len(got))
	for r := range inputs {
		inputs[r] = s.give(r)
	}
	switch s.name {
	case "Allreduce", "AllreduceAs":
		sum := crc32.ChecksumIEEE(got[0])
		for r := range got {
			if crc32.ChecksumIEEE(got[r]) != sum || !bytes.Equal(got[r], got[0]) {
				return fmt.Errorf("rank %d has other bits than rank 0", r)
			}
		}
		if s.name == "AllreduceAs" {
			return judgeNarrow(s, inputs, got[0])
		}
		return judge(s.t, s.op, s.f, inputs, got[0], 0, s.n)
	case "ReduceScatter":
		for r := range got {
			part := schedule.Segment(s.n, world, r)
			if err := judge(s.t, s.op, s.f, inputs, got[r], part.Lo, part.Hi); err != nil {
				return fmt.Errorf("rank %d: %w", r, err)
			}
		}
		return nil
	case "Reduce":
		return judge(s.t, s.op, s.f, inputs, got[s.root], 0, s.n)
	}
	for r := range got {
		if want := s.moved(inputs, r); !bytes.Equal(got[r], want) {
			return fmt.Errorf("rank %d has %d bytes that are not the %d it should have", r, len(got[r]), len(want))
		}
	}
	return nil
}

// moved is what a rank must have after a step that computes nothing.
func (s step) moved(inputs [][]byte, rank int) []byte {
	world, size := len(inputs), s.t.Size()
	var want []byte
	switch s.name {
	case "Broadcast":
		return inputs[s.root]
	case "Allgather", "Alltoall":
		return bytes.Join(inputs, nil)
	case "AllgatherBlobs":
		blobs := make([][]byte, world)
		for q := range blobs {
			blobs[q] = inputs[q][:s.blob(q)]
		}
		return bytes.Join(blobs, []byte("|"))
	case "uneven Alltoall":
		for q := range world {
			want = append(want, inputs[q][:s.block(q, rank)*size]...)
		}
	case "Send and Recv":
		if d := s.distance(world); d > 0 {
			return inputs[(rank-d+world)%world]
		}
	}
	return want
}
