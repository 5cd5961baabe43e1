package collective

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var worlds = []int{1, 2, 3, 4, 5, 7, 8}

func lengthsFor(n int) []int {
	all := []int{0, 1, 2, n - 1, n, n + 1, 31, 32, 33, 4095, 4096, 4097, 100003}
	slices.Sort(all)
	return slices.Compact(all)
}

// whole is the numbers that Go computes with.
type whole interface {
	~float32 | ~float64 | ~int8 | ~int16 | ~int32 | ~int64 | ~uint8
}

// oracle is the allreduce of inputs, on one process.
func oracle[T whole](inputs [][]T, op Op) []T {
	out := slices.Clone(inputs[0])
	for _, in := range inputs[1:] {
		for i, v := range in {
			switch op {
			case Sum, Average:
				out[i] += v
			case Product:
				out[i] *= v
			case Min:
				out[i] = min(out[i], v)
			case Max:
				out[i] = max(out[i], v)
			}
		}
	}
	if op == Average {
		for i := range out {
			if f := 1 / T(len(inputs)); f != 0 {
				out[i] *= f
			} else {
				out[i] /= T(len(inputs))
			}
		}
	}
	return out
}

func checkAllreduce[T whole](t *testing.T, comms []*Communicator, length int, op Op) {
	t.Helper()
	inputs, bufs := make([][]T, len(comms)), make([][]T, len(comms))
	for r := range comms {
		rng := rand.New(rand.NewPCG(uint64(r), uint64(length)))
		inputs[r] = make([]T, length)
		for i := range inputs[r] {
			inputs[r][i] = T(rng.IntN(5) + 1) // exact in every type, also as a product
		}
		bufs[r] = slices.Clone(inputs[r])
	}
	ctx := soon(t)
	mustAll(t, len(comms), func(r int) error { return Allreduce(ctx, comms[r], bufs[r], op) })
	want := oracle(inputs, op)
	for r, got := range bufs {
		if !slices.Equal(got, want) {
			t.Fatalf("%T length %d %v: rank %d differs from the sum on one process", want, length, op, r)
		}
	}
}

func TestAllreduceEqualsTheSumOnOneProcess(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, world := range worlds {
			t.Run(fmt.Sprint(world), func(t *testing.T) {
				comms := group(t, f, world, func(o *Options) { o.ChunkBytes = 32 << 10 })
				for _, length := range lengthsFor(world) {
					for op := Sum; op <= Max; op++ {
						checkAllreduce[float32](t, comms, length, op)
						checkAllreduce[float64](t, comms, length, op)
						checkAllreduce[int32](t, comms, length, op)
						checkAllreduce[int64](t, comms, length, op)
					}
				}
			})
		}
	})
}

func TestRandomFloatsHaveTheSameBitsOnAllRanks(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, world := range worlds {
			comms := group(t, fabric{f.name, func(t testing.TB, i int) Transport { return f.listen(t, world*100+i) }}, world,
				func(o *Options) { o.ChunkBytes = 4 << 10 })
			for op := Sum; op <= Max; op++ {
				bufs := make([][]float32, world)
				exact, size := make([]float64, 10007), make([]float64, 10007)
				for r := range bufs {
					rng := rand.New(rand.NewPCG(uint64(r), 7))
					bufs[r] = make([]float32, 10007)
					for i := range bufs[r] {
						bufs[r][i] = float32(rng.NormFloat64())
						exact[i] += float64(bufs[r][i])
						size[i] += math.Abs(float64(bufs[r][i]))
					}
					bufs[r][0] = float32(math.NaN())
				}
				ctx := soon(t)
				mustAll(t, world, func(r int) error { return Allreduce(ctx, comms[r], bufs[r], op) })
				for r := range bufs {
					if !bytes.Equal(raw(bufs[r]), raw(bufs[0])) {
						t.Fatalf("world %d %v: rank %d has other bits than rank 0", world, op, r)
					}
					if v := bufs[r][0]; v == v {
						t.Fatalf("world %d %v: the NaN was lost", world, op)
					}
				}
				for i := 1; op == Sum && i < len(exact); i++ {
					if d := math.Abs(float64(bufs[0][i]) - exact[i]); d > float64(world)*0x1p-23*size[i] {
						t.Fatalf("world %d: element %d is off by %g", world, i, d)
					}
				}
			}
		}
	})
}

func TestBroadcastAllgatherAndBarrier(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		for _, world := range worlds {
			t.Run(fmt.Sprint(world), func(t *testing.T) {
				comms := group(t, f, world, func(o *Options) { o.ChunkBytes = 1000 })
				mustAll(t, world, func(r int) error { return sequence(t, comms[r]) })
			})
		}
	})
}

// sequence runs operations of all kinds one after the other, without a pause that
// would keep the ranks together.
func sequence(t *testing.T, c *Communicator) error {
	ctx, world, r := soon(t), c.World(), c.Rank()
	for _, n := range []int{0, 1, 2, 33, 4097} {
		for root := range world {
			buf := make([]int64, n)
			if r == root {
				for i := range buf {
					buf[i] = int64(root*1000 + i)
				}
			}
			if err := Broadcast(ctx, c, buf, root); err != nil {
				return err
			}
			for i, v := range buf {
				if v != int64(root*1000+i) {
					return fmt.Errorf("rank %d: broadcast from %d: [%d] = %d", r, root, i, v)
				}
			}
		}
		send, recv := make([]float32, n), make([]float32, world*n)
		for i := range send {
			send[i] = float32(r)
		}
		if err := Allgather(ctx, c, send, recv); err != nil {
			return err
		}
		for i, v := range recv {
			if v != float32(i/n) {
				return fmt.Errorf("rank %d: all-gather: [%d] = %v", r, i, v)
			}
		}
		blob := bytes.Repeat([]byte{byte(r)}, (n*r)%97)
		blobs, err := c.AllgatherBlobs(ctx, blob)
		if err != nil {
			return err
		}
		for i, b := range blobs {
			if !bytes.Equal(b, bytes.Repeat([]byte{byte(i)}, (n*i)%97)) {
				return fmt.Errorf("rank %d: blob %d is %v", r, i, b)
			}
		}
		out := make([]byte, 3*world)
		if err := c.Allgather(ctx, OfBytes([]byte{byte(r), 1, 2}), OfBytes(out)); err != nil {
			return err
		}
		if !bytes.Equal(out[3*(world-1):], []byte{byte(world - 1), 1, 2}) {
			return fmt.Errorf("rank %d: gathered %v", r, out)
		}
		text := make([]byte, 5)
		if r == 0 {
			copy(text, "state")
		}
		if err := c.Broadcast(ctx, OfBytes(text), 0); err != nil || string(text) != "state" {
			return fmt.Errorf("rank %d: %q %w", r, text, err)
		}
		if err := c.Barrier(ctx); err != nil {
			return err
		}
	}
	return errors.Join(Allreduce[float32](ctx, c, nil, Sum), Allgather[int32](ctx, c, nil, nil), Broadcast[uint8](ctx, c, nil, 0))
}

func TestDirectMessagesKeepTheirOrder(t *testing.T) {
	onEachFabric(t, func(t *testing.T, f fabric) {
		const world, big = 4, 3<<20 + 5
		comms := group(t, f, world, nil)
		ctx := soon(t)
		mustAll(t, world, func(r int) error {
			c := comms[r]
			errs := make(chan error, 2*world)
			for peer := range world {
				if peer == r {
					continue
				}
				go func() {
					for _, n := range []int{0, 1, big, 17} {
						if err := c.Send(ctx, peer, bytes.Repeat([]byte{byte(r + n)}, n)); err != nil {
							errs <- err
							return
						}
					}
					errs <- nil
				}()
				go func() {
					for _, n := range []int{0, 1, big, 17} {
						p := make([]byte, n)
						if err := c.Recv(ctx, peer, p); err != nil {
							errs <- err
							return
						}
						if !bytes.Equal(p, bytes.Repeat([]byte{byte(peer + n)}, n)) {
							errs <- fmt.Errorf("rank %d: wrong bytes from %d", r, peer)
							return
						}
					}
					errs <- nil
				}()
			}
			// A collective at the same time does not get into the way.
			err := Allreduce(ctx, c, make([]float32, 100000), Sum)
			for range 2 * (world - 1) {
				err = errors.Join(err, <-errs)
			}
			return err
		})
	})
}

func TestOperationsAllocateNothingThatGrowsWithTheData(t *testing.T) {
	comms := group(t, fabrics()[1], 2, nil)
	small, large := 0.0, 0.0
	measure := func(n int) float64 {
		bufs := [][]float32{make([]float32, n), make([]float32, n)}
		ctx := t.Context()
		step, done := make(chan bool), make(chan error)
		go func() {
			for range step {
				done <- Allreduce(ctx, comms[1], bufs[1], Sum)
			}
			close(done)
		}()
		allocs := testing.AllocsPerRun(10, func() {
			step <- true
			if err := errors.Join(Allreduce(ctx, comms[0], bufs[0], Sum), <-done); err != nil {
				t.Error(err)
			}
		})
		close(step)
		<-done
		return allocs
	}
	small, large = measure(1), measure(4<<20)
	if large > small+4 {
		t.Fatalf("%v allocations for 4 B, %v for 16 MiB", small, large)
	}
}
