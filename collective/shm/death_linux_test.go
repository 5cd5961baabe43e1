package shm

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/regroup-io/regroup/collective/kernel"
)

// all runs every operation once. Memory is the caller's again as soon as an operation returns.
func (b *band) all(rank, length int, alloc func(bytes int) []byte) (used [][]byte, err error) {
	g, n := b.groups[rank], len(b.groups)
	memory := func(bytes int) []byte {
		p := alloc(bytes)
		used = append(used, p)
		return p
	}
	even := make([]int, n+1)
	for q := range n {
		even[q+1] = even[q] + length
	}
	r := Reduction{Descriptor: descriptor(1), Type: kernel.Uint8, Op: kernel.OpSum}
	for _, do := range []func() error{
		func() error { return g.Allreduce(r, memory(length)) },
		func() error { return g.ReduceScatter(r, memory(length)) },
		func() error { return g.Reduce(r, memory(length), 1) },
		func() error { return g.Broadcast(descriptor(2), memory(length), 0) },
		func() error { return g.Allgather(descriptor(3), memory(n*length), even) },
		func() error { return g.Alltoall(descriptor(4), memory(n*length), memory(n*length), even, even) },
		func() error { return g.Barrier(descriptor(5)) },
	} {
		if err := do(); err != nil {
			return used, err
		}
	}
	return used, nil
}

// TestAMemberThatDiesAtAnyStepHarmsNobody: the others are told a moment later. From then on their
// memory is not written to.
func TestAMemberThatDiesAtAnyStepHarmsNobody(t *testing.T) {
	const n, victim = 3, 1
	for _, length := range []int{1000, 300_000, 1_200_000} {
		stride := 1 + length/200_000
		if raced {
			stride *= 4
		}
		for name, m := range memories {
			t.Run(fmt.Sprintf("%s/%d", name, length), func(t *testing.T) {
				for at, died := 1, true; died && !t.Failed(); at += stride {
					died = dieAt(t, n, victim, at, length, m.vm, m.arena)
				}
			})
		}
	}
}

// dieAt tells whether the victim had so many steps.
func dieAt(t *testing.T, n, victim, at, length int, vm bool, arena func(int) bool) (died bool) {
	b := newBand(t, n)
	defer b.close()
	for _, g := range b.groups {
		g.vm = vm
	}
	beforeStep := 0
	b.groups[victim].BeforeStep = func() {
		if beforeStep++; beforeStep == at {
			died = true
			for q, g := range b.groups {
				if q != victim {
					g.Abort()
				}
			}
			runtime.Goexit()
		}
	}
	errs, used := make([]error, n), make([][][]byte, n)
	_ = each(n, func(rank int) error {
		used[rank], errs[rank] = b.all(rank, length, func(bytes int) []byte {
			if arena(rank) {
				if p, err := b.arenas[rank].Alloc(bytes); err == nil {
					return p
				}
			}
			return make([]byte, bytes)
		})
		if errs[rank] != nil {
			for _, p := range used[rank] {
				fill(p, rank)
			}
		}
		return nil
	})
	for rank, err := range errs {
		if err == nil {
			continue
		}
		if !died || !errors.Is(err, ErrAborted) {
			t.Errorf("step %d, member %d: %v", at, rank, err)
		}
		for _, p := range used[rank] {
			if !is(p, rank) {
				t.Errorf("step %d: another process wrote into memory of member %d after its operation had failed", at, rank)
			}
		}
	}
	return died
}

// TestRandomReductionsAreThoseInTheOrderOfTheMembers: for every type and reduction, wherever the
// data is and whatever its address.
func TestRandomReductionsAreThoseInTheOrderOfTheMembers(t *testing.T) {
	for _, n := range []int{2, 5} {
		onEachMemory(t, n, func(t *testing.T, b *band, alloc func(rank, bytes int) []byte) {
			for typ := kernel.Int8; typ <= kernel.Float64; typ++ {
				for op := kernel.OpSum; op <= kernel.OpMax; op++ {
					for i, count := range []int{n + 1, 1000, 40_000, 140_000} {
						if count > 1000 && (raced || (int(typ)+int(op)+i)%3 > 0) {
							continue
						}
						checkReduction(t, b, typ, op, count, alloc)
					}
				}
			}
		})
	}
}

func checkReduction(t *testing.T, b *band, typ kernel.Type, op kernel.Op, count int, alloc func(rank, bytes int) []byte) {
	t.Helper()
	n, bytesOf := len(b.groups), count*typ.Size()
	bufs, whole := make([][]byte, n), make([][]byte, n)
	var want []byte
	for rank := range bufs {
		whole[rank] = alloc(rank, bytesOf+3)
		bufs[rank] = whole[rank][rank%4 : rank%4+bytesOf]
		numbers := make([]byte, bytesOf)
		for i := range count { // small whole numbers, of which no order changes the result
			put(typ, numbers[i*typ.Size():], 1+(i*7+rank*3)%3)
		}
		copy(bufs[rank], numbers)
		if rank == 0 {
			want = numbers
		} else {
			kernel.Reduce(typ, op, want, numbers)
		}
	}
	r := Reduction{Descriptor: descriptor(int(typ)*8 + int(op)), Type: typ, Op: op}
	if err := each(n, func(rank int) error { return b.groups[rank].Allreduce(r, bufs[rank]) }); err != nil {
		t.Fatal(err)
	}
	for rank := range bufs {
		if !bytes.Equal(bufs[rank], want) {
			t.Errorf("%v of %d %v: member %d has something else", op, count, typ, rank)
		}
		if b.arenas[rank].holds(whole[rank]) {
			b.arenas[rank].Free(whole[rank])
		}
	}
}

// bitsOf has those of the numbers from 0 to 3.
var bitsOf = map[kernel.Type][4]uint64{
	kernel.Float16:  {0, 0x3c00, 0x4000, 0x4200},
	kernel.BFloat16: {0, 0x3f80, 0x4000, 0x4040},
	kernel.Float32:  {0, 0x3f800000, 0x40000000, 0x40400000},
	kernel.Float64:  {0, 0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000},
}

// put writes a small whole number.
func put(typ kernel.Type, p []byte, v int) {
	word := uint64(v)
	if typ.Float() {
		word = bitsOf[typ][v]
	}
	for i := range typ.Size() { // little endian, as all machines that this is tested on
		p[i] = byte(word >> (8 * i))
	}
}
