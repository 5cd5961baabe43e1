package shm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/regroup-io/regroup/collective/internal/contention"
)

// Group is one member of a group. It runs one operation at a time, and all members must call the
// same operations.
type Group struct {
	// OnSleep, if set, is called by an operation that is about to sleep.
	OnSleep func()
	// BeforeStep, if set, is called before each step of an operation. Tests kill a member there.
	BeforeStep func()

	rank, size int
	mem        []byte
	round      uint64
	base       []uint64 // every member's progress counter at the start of the round
	spins      int      // how often a waiting member polls before it sleeps
	yields     int      // how often it yields the processor and polls again before it sleeps
	contention contention.State
	began      time.Time
	vm         bool // members can read each other's memory
	peers      []peer
	headers    []header       // of this round
	scratch    [2][]byte      // of combine; nil until it is first called: many groups see no large data
	waited     []atomic.Int64 // nanoseconds, by member
	zeros      []int          // by member: where their data begins, if that is all that they have
	bounds     []int          // scratch of Broadcast

	arena *Arena
	maps  *MappingCache
	probe *probe

	aborted atomic.Bool
	left    []atomic.Bool // by member
	mu      sync.Mutex    // guards mem against Abort and MarkLeft during Close
}

// probe is memory that the members try to read when a group forms.
type probe [16]byte

type peer struct {
	pid   int
	arena []byte // its memory; nil = it has none
	name  string // of the arena
}

// MismatchError says that a member has entered a different operation.
type MismatchError struct {
	Member     int
	Descriptor [DescriptorBytes]byte // of that operation
	// Of an Alltoall with the same descriptor: how many bytes the member has for this one, and how
	// many this one expects.
	Sent, Expected int
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("shm: member %d is in another operation", e.Member)
}

// MemberError says that the memory of a member cannot be read, most likely because it is gone.
type MemberError struct {
	Member int
	Err    error
}

func (e *MemberError) Error() string { return fmt.Sprintf("shm: member %d: %v", e.Member, e.Err) }

func (e *MemberError) Unwrap() error { return e.Err }

// pieceBytes is combined at a time, so that it stays in a near cache. It is a multiple of every
// element size.
const pieceBytes = 128 << 10

func newGroup(rank, size int, mem []byte) *Group {
	g := &Group{
		rank: rank, size: size, mem: mem, base: make([]uint64, size), peers: make([]peer, size),
		headers: make([]header, size), waited: make([]atomic.Int64, size), left: make([]atomic.Bool, size), zeros: make([]int, size),
		bounds: make([]int, size+1),
		began:  time.Now(),
	}
	// With more members than processors, spinning keeps the members from running that one waits
	// for, so yield to them: that takes a third of sleeping and being woken. Otherwise spin for 250
	// µs, which is longer than a wake-up takes. With less, two members that once slept would find
	// each other asleep for ever, and each operation would cost two wake-ups.
	if size <= runtime.NumCPU() {
		g.spins = 8000
	} else {
		g.yields = 100
	}
	return g
}

// Rank is this member's index.
func (g *Group) Rank() int { return g.rank }

// Size is the number of members.
func (g *Group) Size() int { return g.size }

// Describe returns how large data travels, for people.
func (g *Group) Describe() string {
	if g.vm {
		return "shared memory, process_vm_readv"
	}
	return "shared memory, staging buffers"
}

// enter begins a round and returns when all members have entered it. p is this member's data, which
// others read by its address: who calls keeps it alive until they have, for the garbage collector
// does not see them.
func (g *Group) enter(descriptor *[DescriptorBytes]byte, k location, p []byte) error {
	mine := &g.headers[g.rank]
	mine.descriptor, mine.location, mine.at = *descriptor, k, 0
	switch k {
	case locPrivate:
		mine.at = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
	case locArena:
		mine.at = g.arena.offset(p)
	}
	mine.put(g.header(g.rank))
	entered := g.entered()
	g.advance(entered, g.round)
	for q := range g.size {
		if q == g.rank {
			continue
		}
		if err := g.waitFor(q, entered, g.round); err != nil {
			return err
		}
		theirs := &g.headers[q]
		theirs.parse(g.header(q))
		if theirs.descriptor != *descriptor {
			return &MismatchError{Member: q, Descriptor: theirs.descriptor}
		}
		if !theirs.location.fits(k) {
			return &MemberError{q, fmt.Errorf("its data is at location %d, expected %d", theirs.location, k)}
		}
	}
	return nil
}

// leave ends a round in which members read each other's data.
func (g *Group) leave() error {
	g.advance(offDone, g.round)
	return g.waitForAll(offDone, g.round)
}

func (g *Group) waitForAll(at int, v uint64) error {
	for q := range g.size {
		if q == g.rank {
			continue
		}
		if err := g.waitFor(q, at, v); err != nil {
			return err
		}
	}
	return nil
}

// view returns n bytes of a member's data: in place if they can be mapped, else copied to scratch.
func (g *Group) view(q, at, n int, scratch []byte) ([]byte, error) {
	switch header := &g.headers[q]; header.location {
	case locInline, locSlot:
		return g.small(q, header.location)[at : at+n], nil
	case locStaging:
		return g.stagingBuffer(q)[at : at+n], nil
	case locArena:
		all := g.peers[q].arena
		lo := header.at + uint64(at)
		if lo > uint64(len(all)) || uint64(n) > uint64(len(all))-lo {
			return nil, &MemberError{q, fmt.Errorf("%d bytes at %d are not in its arena", n, lo)}
		}
		return all[lo : lo+uint64(n)], nil
	}
	err := g.copyFrom(q, at, scratch[:n])
	return scratch[:n], err
}

// copyFrom copies a part of a member's data to dst.
func (g *Group) copyFrom(q, at int, dst []byte) error {
	if header := &g.headers[q]; header.location == locPrivate {
		if err := readProcess(g.peers[q].pid, header.at+uint64(at), dst); err != nil {
			return &MemberError{q, err}
		}
		return nil
	}
	p, err := g.view(q, at, len(dst), nil)
	copy(dst, p)
	return err
}

// place returns how others can read this member's data.
func (g *Group) place(p []byte) location {
	switch {
	case len(p) <= inlineBytes:
		return locInline
	case len(p) <= SmallBytes:
		return locSlot
	case g.arena.holds(p):
		return locArena
	}
	return locPrivate
}

// Close releases the memory. No operation may be running; the other members need not have finished.
func (g *Group) Close() {
	g.aborted.Store(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mem != nil {
		detach(g.mem)
		g.mem = nil
		for i := range g.peers {
			if g.peers[i].arena != nil {
				g.maps.release(g.peers[i].name)
			}
		}
	}
}

// Readable reports whether members can read all memory of each other.
func (g *Group) Readable() bool { return g.vm }

// Address is what another member passes to Read to read p.
func Address(p []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p)))) }

// Read copies memory of a member, which must not change it meanwhile. It may be called during an
// operation.
func (g *Group) Read(member int, address uint64, dst []byte) error {
	for len(dst) > 0 {
		if g.aborted.Load() {
			return ErrAborted
		}
		n := min(len(dst), copyBytes)
		if err := readProcess(g.peers[member].pid, address, dst[:n]); err != nil {
			return &MemberError{member, err}
		}
		address, dst = address+uint64(n), dst[n:]
	}
	return nil
}
