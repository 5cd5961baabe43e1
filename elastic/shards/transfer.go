package shards

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/regroup-io/regroup/collective"
	"github.com/regroup-io/regroup/elastic/reshard"
)

var errCorrupt = errors.New("sent a part of the state that does not match its hash")

// transfer fills the memory of one member.
type transfer struct {
	comm  Communicator
	from  [][]part // what this member has, by tensor
	into  [][]part // what it needs
	local bool     // what it has is not the memory that it needs

	chosen    Commit // that it has; zero = an initial state
	unchanged int    // bytes of what it needs that were in place
}

// run executes a plan. It returns how many bytes this member received.
func (x *transfer) run(ctx context.Context, moves []reshard.Move) (received uint64, err error) {
	rank := x.comm.Rank()
	type step struct {
		move    int
		arrived chan struct{} // nil = this member has it
	}
	send, recv := map[int][]step{}, map[int][]step{}
	for i, m := range moves {
		for k, member := range m.Chain {
			if member != rank {
				continue
			}
			var arrived chan struct{}
			if k > 0 {
				arrived = make(chan struct{})
				recv[m.Chain[k-1]] = append(recv[m.Chain[k-1]], step{i, arrived})
			}
			if k+1 < len(m.Chain) {
				send[m.Chain[k+1]] = append(send[m.Chain[k+1]], step{i, arrived})
			}
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	var total atomic.Uint64
	start := func(f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				cancel(err)
			}
		})
	}
	for from, steps := range recv {
		start(func() error {
			var scratch []byte
			for _, s := range steps {
				n, err := x.receive(ctx, from, moves[s.move].Piece, &scratch)
				if err != nil {
					return err
				}
				total.Add(uint64(n))
				close(s.arrived)
			}
			return nil
		})
	}
	for to, steps := range send {
		start(func() error {
			var scratch []byte
			for _, s := range steps {
				source := x.from
				if s.arrived != nil {
					source = x.into
					select {
					case <-s.arrived:
					case <-ctx.Done():
						return context.Cause(ctx)
					}
				}
				if err := x.send(ctx, to, moves[s.move].Piece, source, &scratch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if x.local {
		x.copyLocal()
	}
	wg.Wait()
	return total.Load(), context.Cause(ctx)
}

// send sends a piece and its hash.
func (x *transfer) send(ctx context.Context, to int, p reshard.Piece, source [][]part, scratch *[]byte) error {
	b, err := packed(source[p.Tensor], p.Box, scratch)
	if err != nil {
		return err
	}
	return sendHashed(ctx, x.comm, to, b)
}

// receive receives a piece into the memory of a part that is needed.
func (x *transfer) receive(ctx context.Context, from int, p reshard.Piece, scratch *[]byte) (int, error) {
	q, err := within(x.into[p.Tensor], p.Box)
	if err != nil {
		return 0, err
	}
	b := q.contiguous(p.Box, scratch)
	if err := recvHashed(ctx, x.comm, from, b); err != nil {
		return 0, err
	}
	q.runs(p.Box, b, func(memory, packed []byte) { copy(memory, packed) })
	return len(b), nil
}

// packed returns the elements of a box that is within a part: memory of the part where they are in
// one run of it, else scratch.
func packed(parts []part, b reshard.Box, scratch *[]byte) ([]byte, error) {
	q, err := within(parts, b)
	if err != nil {
		return nil, err
	}
	into := q.contiguous(b, scratch)
	q.runs(b, into, func(memory, packed []byte) { copy(packed, memory) })
	return into, nil
}

// within returns the first part that has all of a box, as one has of what reshard.Plan moves, and
// of what reshard.Once deals.
func within(parts []part, b reshard.Box) (part, error) {
	i := slices.IndexFunc(parts, func(q part) bool {
		common, ok := q.box.Intersect(b)
		return ok && common.Equal(b)
	})
	if i < 0 {
		return part{}, fmt.Errorf("no part has %v: this is a fault of Regroup", b)
	}
	return parts[i], nil
}

// contiguous returns the memory of a box within a part if it is in one run; else scratch of its
// size.
func (p part) contiguous(b reshard.Box, scratch *[]byte) []byte {
	size := b.Elements() * p.tensor.Width
	var first reshard.Run
	reshard.Runs(b, p.box, b, p.tensor.Width, func(r reshard.Run) {
		if r.In == 0 {
			first = r
		}
	})
	if first.Bytes == size {
		return p.memory[first.At : first.At+size]
	}
	if cap(*scratch) < size {
		*scratch = make([]byte, size)
	}
	return (*scratch)[:size]
}

// runs calls f with the memory of a box within a part and where it is in packed, the elements of
// the box alone, unless packed is that memory.
func (p part) runs(b reshard.Box, packed []byte, f func(memory, packed []byte)) {
	reshard.Runs(b, p.box, b, p.tensor.Width, func(r reshard.Run) {
		memory, in := p.memory[r.At:r.At+r.Bytes], packed[r.In:r.In+r.Bytes]
		if &memory[0] != &in[0] {
			f(memory, in)
		}
	})
}

// inParallel calls f for 0 to n-1 on all cores.
func inParallel(n int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}

// sendHashed sends bytes and their hash.
func sendHashed(ctx context.Context, c Communicator, to int, b []byte) error {
	h := xxh3.Hash128(b).Bytes()
	if err := c.Send(ctx, to, h[:]); err != nil {
		return err
	}
	return c.Send(ctx, to, b)
}

// recvHashed receives bytes and compares them with their hash. A difference ends the generation.
func recvHashed(ctx context.Context, c Communicator, from int, b []byte) error {
	var want [16]byte
	if err := c.Recv(ctx, from, want[:]); err != nil {
		return err
	}
	if err := c.Recv(ctx, from, b); err != nil {
		return err
	}
	if xxh3.Hash128(b).Bytes() != want {
		c.Abort(&collective.PeerLostError{Rank: from, Generation: c.Generation(), Cause: errCorrupt})
		return fmt.Errorf("sync: %w", c.Failed())
	}
	return nil
}
