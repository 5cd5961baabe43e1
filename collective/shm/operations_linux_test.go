package shm

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"unsafe"

	"github.com/regroup-io/regroup/collective/kernel"
	"github.com/regroup-io/regroup/collective/schedule"
)

func ints(p []byte) []int32 {
	if len(p) == 0 {
		return nil
	}
	return unsafe.Slice((*int32)(unsafe.Pointer(&p[0])), len(p)/4)
}

var lengths = []int{0, 1, 2, 3, 4, 5, 2048, 2049, 5000, 100_003, 700_001}

func sumOfRanks(n, i int) int32 { return int32(n*i + n*(n-1)/2) }

func TestReductionsEqualTheSumOnOneProcess(t *testing.T) {
	for _, n := range []int{2, 3, 4, 7} {
		onEachMemory(t, n, func(t *testing.T, b *band, alloc func(rank, bytes int) []byte) {
			for round, length := range lengths {
				r := Reduction{Descriptor: descriptor(round), Type: kernel.Int32, Op: kernel.OpSum}
				for root := -2; root < n; root += 3 {
					bufs := make([][]byte, n)
					for rank := range bufs {
						bufs[rank] = alloc(rank, 4*length)
						for i := range ints(bufs[rank]) {
							ints(bufs[rank])[i] = int32(i + rank)
						}
					}
					err := each(n, func(rank int) error {
						switch root {
						case -2:
							return b.groups[rank].Allreduce(r, bufs[rank])
						case -1:
							return b.groups[rank].ReduceScatter(r, bufs[rank])
						}
						return b.groups[rank].Reduce(r, bufs[rank], root)
					})
					if err != nil {
						t.Fatal(err)
					}
					for rank, buf := range bufs {
						lo, hi := 0, length
						if root == -1 {
							s := schedule.Segment(length, n, rank)
							lo, hi = s.Lo, s.Hi
						}
						for i := lo; i < hi && (root < 0 || root == rank); i++ {
							if got, want := ints(buf)[i], sumOfRanks(n, i); got != want {
								t.Fatalf("length %d root %d: rank %d element %d is %d, not %d", length, root, rank, i, got, want)
							}
						}
						if length > 0 && b.arenas[rank].holds(buf) {
							b.arenas[rank].Free(buf)
						}
					}
				}
			}
		})
	}
}

func TestAllRanksHaveTheSameBitsInTheOrderOfTheRanks(t *testing.T) {
	const n = 4
	onEachMemory(t, n, func(t *testing.T, b *band, alloc func(rank, bytes int) []byte) {
		for _, length := range []int{100, 300_000} {
			bufs := make([][]byte, n)
			want := make([]float32, length)
			for rank := range bufs {
				bufs[rank] = alloc(rank, 4*length)
				rng := rand.New(rand.NewPCG(uint64(rank), 1))
				for i := range want {
					v := float32(rng.NormFloat64())
					floats(bufs[rank])[i] = v
					want[i] += v
				}
			}
			r := Reduction{Type: kernel.Float32, Op: kernel.OpSum, Divisor: n}
			if err := each(n, func(rank int) error { return b.groups[rank].Allreduce(r, bufs[rank]) }); err != nil {
				t.Fatal(err)
			}
			for i := range want {
				want[i] *= 1.0 / n
			}
			for rank, buf := range bufs {
				for i, v := range floats(buf) {
					if v != want[i] {
						t.Fatalf("rank %d element %d is %v, not %v", rank, i, v, want[i])
					}
				}
			}
		}
	})
}

func floats(p []byte) []float32 { return unsafe.Slice((*float32)(unsafe.Pointer(&p[0])), len(p)/4) }

func TestBytesArriveWhereTheyBelong(t *testing.T) {
	for _, n := range []int{2, 3, 5} {
		onEachMemory(t, n, func(t *testing.T, b *band, alloc func(rank, bytes int) []byte) {
			for round, length := range []int{0, 1, 8 << 10, 8<<10 + 1, 600_000, 1_300_000} {
				if err := each(n, func(rank int) error {
					return moves(b.groups[rank], round, length, func(bytes int) []byte { return alloc(rank, bytes) })
				}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// moves are a broadcast from each rank, an all-gather and an all-to-all of uneven blocks.
func moves(g *Group, round, length int, alloc func(int) []byte) error {
	n, rank := g.Size(), g.Rank()
	for root := range n {
		buf := alloc(length)
		if rank == root {
			fill(buf, root)
		}
		if err := g.Broadcast(descriptor(round), buf, root); err != nil {
			return err
		}
		if !is(buf, root) {
			return fmt.Errorf("length %d: rank %d has not what root %d has sent", length, rank, root)
		}
	}
	offsets := make([]int, n+1)
	for q := range n {
		offsets[q+1] = offsets[q] + length*(q%3)/2
	}
	data := alloc(offsets[n])
	fill(data[offsets[rank]:offsets[rank+1]], rank)
	if err := g.Allgather(descriptor(round), data, offsets); err != nil {
		return err
	}
	for q := range n {
		if !is(data[offsets[q]:offsets[q+1]], q) {
			return fmt.Errorf("length %d: rank %d has not the block of rank %d", length, rank, q)
		}
	}
	return shuffle(g, round, length, alloc)
}

func shuffle(g *Group, round, length int, alloc func(int) []byte) error {
	n, rank := g.Size(), g.Rank()
	count := func(from, to int) int { return length * ((from + 2*to) % 3) / 4 }
	out, in := make([]int, n+1), make([]int, n+1)
	for q := range n {
		out[q+1], in[q+1] = out[q]+count(rank, q), in[q]+count(q, rank)
	}
	src, dst := alloc(out[n]), alloc(in[n])
	for q := range n {
		fill(src[out[q]:out[q+1]], 10*rank+q)
	}
	if err := g.Alltoall(descriptor(round), src, dst, out, in); err != nil {
		return err
	}
	for q := range n {
		if q != rank && !is(dst[in[q]:in[q+1]], 10*q+rank) {
			return fmt.Errorf("length %d: rank %d has not what rank %d has for it", length, rank, q)
		}
	}
	return nil
}

func fill(p []byte, seed int) {
	for i := range p {
		p[i] = byte(i*7 + i>>8 + seed)
	}
}

func is(p []byte, seed int) bool {
	want := make([]byte, len(p))
	fill(want, seed)
	return bytes.Equal(p, want)
}

func TestOperationsOfAllKindsFollowEachOther(t *testing.T) {
	const n = 3
	b := newBand(t, n)
	if err := each(n, func(rank int) error {
		rng, g := rand.New(rand.NewPCG(1, 2)), b.groups[rank] // the same on all ranks
		for i := range 3000 {
			length := rng.IntN(5000)
			buf := make([]byte, 4*length)
			for k := range ints(buf) {
				ints(buf)[k] = int32(k + rank)
			}
			root := rng.IntN(n)
			switch location := rng.IntN(4); location {
			case 0:
				if err := g.Barrier(descriptor(i)); err != nil {
					return err
				}
			case 1:
				if err := g.Broadcast(descriptor(i), buf, root); err != nil {
					return err
				}
				for k, v := range ints(buf) {
					if v != int32(k+root) {
						return fmt.Errorf("operation %d: %d from %d is %d", i, k, root, v)
					}
				}
			default:
				r := Reduction{Descriptor: descriptor(i), Type: kernel.Int32, Op: kernel.OpSum}
				if err := g.Allreduce(r, buf); err != nil {
					return err
				}
				for k, v := range ints(buf) {
					if v != sumOfRanks(n, k) {
						return fmt.Errorf("operation %d: sum %d is %d", i, k, v)
					}
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

var junk [64][]byte

// TestDataLivesUntilItIsRead: though the member that sends it does not use it any more, and its
// memory could be another variable's.
func TestDataLivesUntilItIsRead(t *testing.T) {
	const length = 600_000
	whole := []int{0, length, length}
	for name, op := range map[string]func(g *Group, data []byte) error{
		"broadcast": func(g *Group, data []byte) error { return g.Broadcast(descriptor(1), data, 0) },
		"allgather": func(g *Group, data []byte) error { return g.Allgather(descriptor(1), data, whole) },
		"alltoall": func(g *Group, data []byte) error {
			if g.Rank() == 0 {
				return g.Alltoall(descriptor(1), data, nil, []int{0, 0, length}, []int{0, 0, 0})
			}
			return g.Alltoall(descriptor(1), nil, data, []int{0, 0, 0}, whole)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBand(t, 2)
			var steps [2]int
			reused := make(chan struct{})
			b.groups[0].BeforeStep = func() {
				if steps[0]++; steps[0] != 4 { // it waits for the other to have read
					return
				}
				runtime.GC()
				for i := range junk {
					junk[i] = bytes.Repeat([]byte{0xaa}, length)
				}
				close(reused)
			}
			b.groups[1].BeforeStep = func() {
				if steps[1]++; steps[1] == 2 { // it has entered, and has read nothing
					<-reused
				}
			}
			err := each(2, func(rank int) error {
				data := make([]byte, length)
				if rank == 0 {
					fill(data, 5)
					return op(b.groups[0], data)
				}
				err := op(b.groups[1], data)
				if err == nil && !is(data, 5) {
					err = errors.New("it is not what was sent")
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
