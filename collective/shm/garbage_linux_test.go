package shm

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/regroup-io/regroup/collective/kernel"
)

// withGhost returns member 0 of a group whose member 1 does not exist: its counters are at the end
// of all operations, and its data is what the test writes.
func withGhost() *Group {
	g := newGroup(0, 2, make([]byte, segmentBytes(2)+8))
	g.vm = true
	g.peers[1].pid, g.peers[1].arena = os.Getpid(), make([]byte, 100_000)
	for _, at := range []int{offHeaders + offRound, offHeaders + headerBytes + offRound, offProgress, offDone} {
		g.counter(1, at).Store(1 << 40)
	}
	return g
}

// operations are all of them, on n bytes.
var operations = []func(g *Group, n int) error{
	func(g *Group, _ int) error { return g.Barrier(descriptor(1)) },
	func(g *Group, n int) error { return g.Broadcast(descriptor(1), make([]byte, n), 1) },
	func(g *Group, n int) error {
		return g.Allreduce(Reduction{Descriptor: descriptor(1), Type: kernel.Uint8, Op: kernel.OpSum}, make([]byte, n))
	},
	func(g *Group, n int) error {
		return g.ReduceScatter(Reduction{Descriptor: descriptor(1), Type: kernel.Uint8, Op: kernel.OpSum}, make([]byte, n))
	},
	func(g *Group, n int) error { return g.Allgather(descriptor(1), make([]byte, n), []int{0, n / 3, n}) },
	func(g *Group, n int) error {
		return g.Alltoall(descriptor(1), make([]byte, n), make([]byte, n), []int{0, n / 3, n}, []int{0, n / 3, n})
	},
}

// FuzzNote has a member say anything, and lets the others read what it says. They may fail, or
// compute nonsense; they must not crash.
func FuzzNote(f *testing.F) {
	for op := range operations {
		for k := range uint64(6) {
			f.Add(uint8(op), uint32(20_000), true, k, uint64(5), int64(3), int64(7_000), true)
			f.Add(uint8(op), uint32(100), false, k, ^uint64(0)-3, int64(-5), int64(1)<<62, true)
			f.Add(uint8(op), uint32(1_200_000), true, k, uint64(0), int64(0), int64(400_000), false)
		}
	}
	f.Fuzz(func(t *testing.T, op uint8, n uint32, same bool, k, at uint64, from, to int64, vm bool) {
		g := withGhost()
		g.vm = vm
		tick := descriptor(1)
		if !same {
			tick = descriptor(2)
		}
		// Both of its notes and staging buffers: it does not matter which round it is.
		for range 2 {
			g.round++
			(&header{descriptor: tick, location: location(k), at: at}).put(g.header(1))
			table := g.stagingBuffer(1)
			binary.NativeEndian.PutUint64(table, uint64(from))
			binary.NativeEndian.PutUint64(table[8:], uint64(to))
			binary.NativeEndian.PutUint64(table[16:], uint64(to)+1000)
		}
		g.round = 0
		stop := time.AfterFunc(10*time.Second, g.Abort) // a member that says that it has 2^62 bytes
		defer stop.Stop()
		err := operations[int(op)%len(operations)](g, int(n%(2<<20)))
		var other *MismatchError
		var lost *MemberError
		if err != nil && !errors.As(err, &other) && !errors.As(err, &lost) {
			t.Fatal(err)
		}
	})
}
