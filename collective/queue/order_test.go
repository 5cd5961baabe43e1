package queue

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective"
)

var programs = flag.Int("programs", 150, "random programs of TestRandomOrders")

// operation is one of a random program: which it is, and which rank calls it wrongly.
type operation struct {
	name   string
	method Method
	n      int
	op     collective.Op
	root   int
	wrong  int // the rank that submits something else under this name; -1 = none
}

func randomOperation(rng *rand.Rand, i, world int) operation {
	o := operation{
		name: fmt.Sprint("operation ", i), method: Allreduce + Method(rng.IntN(6)), n: 1 + rng.IntN(5), root: rng.IntN(world), wrong: -1,
		op: []collective.Op{collective.Sum, collective.Min, collective.Max}[rng.IntN(3)],
	}
	if rng.IntN(8) == 0 {
		o.wrong = rng.IntN(world)
	}
	return o
}

// submit starts the operation on a rank; check compares its result with what it should be.
func (o operation) submit(q *Queue, rank, world int) (h *Handle, check func() error) {
	value := func(r, i int) int64 { return int64(100*r + i + o.n) }
	v := make([]int64, o.n*world)
	for i := range v {
		v[i] = value(rank, i)
	}
	t, detail := collective.Of(v), "as it should be"
	if rank == o.wrong {
		detail = "otherwise"
		if o.method == Barrier {
			return q.Refuse(o.name, "wrong"), nil
		}
	}
	combined := func(i int) int64 {
		x := value(0, i)
		for r := 1; r < world; r++ {
			switch y := value(r, i); o.op {
			case collective.Sum:
				x += y
			case collective.Min:
				x = min(x, y)
			case collective.Max:
				x = max(x, y)
			}
		}
		return x
	}
	var got func() []int64
	var want []int64
	numbers := func() []int64 {
		b, _ := h.Result()
		all := make([]int64, len(b)/8)
		for i := range all {
			all[i] = int64(binary.NativeEndian.Uint64(b[8*i:]))
		}
		return all
	}
	switch o.method {
	case Allreduce:
		h, got = q.Allreduce(o.name, detail, t, o.op, 0), func() []int64 { return v }
		for i := range v {
			want = append(want, combined(i))
		}
	case Broadcast:
		h, got = q.Broadcast(o.name, detail, t, o.root), func() []int64 { return v }
		for i := range v {
			want = append(want, value(o.root, i))
		}
	case Allgather: // rank r gives r+1 rows of n
		h, got = q.Allgather(o.name, detail, collective.Of(v[:o.n*(rank+1)]), rank+1, o.n), numbers
		for r := range world {
			for i := range o.n * (r + 1) {
				want = append(want, value(r, i))
			}
		}
	case Alltoall:
		h, got = q.Alltoall(o.name, detail, t, slices.Repeat([]int{1}, world), o.n), numbers
		for r := range world {
			for i := range o.n {
				want = append(want, value(r, rank*o.n+i))
			}
		}
	case ReduceScatter:
		h, got = q.ReduceScatter(o.name, detail, t, o.n, o.op), func() []int64 { return v[rank*o.n : (rank+1)*o.n] }
		for i := range o.n {
			want = append(want, combined(rank*o.n+i))
		}
	default:
		h, got = q.Barrier(o.name), func() []int64 { return nil }
	}
	return h, func() error {
		if g := got(); !slices.Equal(g, want) {
			return fmt.Errorf("%+v: %v, want %v", o, g, want)
		}
		return nil
	}
}

// TestRandomOrders: each rank submits the operations in an order of its own, from one to three
// threads, while another thread waits for operations of its own one by one. Every operation gives
// what it should, or is an error on all ranks if one calls it otherwise than the others.
func TestRandomOrders(t *testing.T) {
	for world := 2; world <= 4; world++ {
		t.Run(fmt.Sprint(world), func(t *testing.T) {
			all := queues(t, world, nil)
			for seed := range *programs / 3 {
				rng := rand.New(rand.NewPCG(uint64(seed), uint64(world)))
				program := make([]operation, 1+rng.IntN(20))
				for i := range program {
					program[i] = randomOperation(rng, i, world)
				}
				ordered := make([]operation, rng.IntN(10))
				for i := range ordered {
					ordered[i] = randomOperation(rng, 100+i, world)
				}
				each(t, world, func(rank int) error {
					rng := rand.New(rand.NewPCG(uint64(seed), uint64(100+rank)))
					threads := make([][]operation, 1+rng.IntN(3))
					for _, i := range rng.Perm(len(program)) {
						k := rng.IntN(len(threads))
						threads[k] = append(threads[k], program[i])
					}
					errs := make([]error, len(threads)+len(ordered))
					var wg sync.WaitGroup
					wg.Go(func() {
						for i := range ordered {
							errs[len(threads)+i] = play(t, all[rank].Synchronous(), ordered[i:i+1], rank, world)
						}
					})
					for k, mine := range threads {
						wg.Go(func() { errs[k] = play(t, all[rank], mine, rank, world) })
					}
					wg.Wait()
					return errors.Join(errs...)
				})
			}
		})
	}
}

func play(t *testing.T, q *Queue, mine []operation, rank, world int) error {
	handles, checks := make([]*Handle, len(mine)), make([]func() error, len(mine))
	for i, o := range mine {
		handles[i], checks[i] = o.submit(q, rank, world)
	}
	for i, o := range mine {
		err := handles[i].Wait(soon(t))
		var m *MismatchError
		switch {
		case o.wrong >= 0 && !errors.As(err, &m):
			return fmt.Errorf("rank %d: %+v: %w, want a MismatchError", rank, o, err)
		case o.wrong < 0 && err != nil:
			return fmt.Errorf("rank %d: %+v: %w", rank, o, err)
		case o.wrong < 0:
			if err := checks[i](); err != nil {
				return fmt.Errorf("rank %d: %w", rank, err)
			}
		}
	}
	return nil
}

// TestRandomWaits: each rank waits for each operation before it submits the next, in an order of
// its own, some of them on the waiting thread. The operations give the right results until the
// ranks wait for each other; then all of them get an error.
func TestRandomWaits(t *testing.T) {
	for seed := range 12 {
		world := 2 + seed%3
		all := queues(t, world, func(_ int, o *Options) { o.DeadlockAfter = 20 * time.Millisecond })
		rng := rand.New(rand.NewPCG(uint64(seed), 7))
		program := make([]operation, 6)
		for i := range program {
			program[i] = randomOperation(rng, i, world)
			program[i].wrong = -1
		}
		ended := make([]error, world)
		each(t, world, func(rank int) error {
			of := uint64(100)
			if seed%4 != 0 {
				of += uint64(rank) // an order of its own
			}
			order := rand.New(rand.NewPCG(uint64(seed), of)).Perm(len(program))
			ended[rank] = waitForEach(t, all[rank], program, order, rank, world)
			return nil
		})
		for rank, err := range ended {
			var d *DeadlockError
			switch {
			case seed%4 == 0 && err != nil:
				t.Errorf("seed %d, rank %d: %v in one order", seed, rank, err)
			case seed%4 != 0 && err != nil && !errors.As(err, &d):
				t.Errorf("seed %d, rank %d: %v, want a DeadlockError", seed, rank, err)
			case seed%4 != 0 && (err == nil) != (ended[0] == nil):
				t.Errorf("seed %d: rank %d got %v, rank 0 %v", seed, rank, err, ended[0])
			}
		}
	}
}

// waitForEach submits each operation when the one before has ended.
func waitForEach(t *testing.T, q *Queue, program []operation, order []int, rank, world int) error {
	if rank%2 == 0 {
		q = q.Synchronous()
	}
	for _, i := range order {
		h, check := program[i].submit(q, rank, world)
		end := h.Waiting(true)
		err := h.Wait(soon(t))
		end()
		if err != nil {
			return err
		}
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
