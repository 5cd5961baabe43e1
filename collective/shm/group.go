package shm

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Group is one member of a group. One operation at a time; all members must call the same
// ones.
type Group struct {
	// OnSleep, if set, is called by the operation that is about to sleep.
	OnSleep func()
	// Step, if set, is called before each step of an operation: where tests end a member.
	Step func()

	rank, size int
	mem        []byte
	round      uint64
	base       []uint64 // of every member's progress, at the begin of the round
	spins      int      // how often who waits looks before it sleeps
	yields     int      // likewise, but lets others run in between
	vm         bool     // memory of other members may be read
	peers      []peer
	notes      []note // of this round
	scratch    [2][]byte
	waited     []atomic.Int64 // nanoseconds, by member

	arena *Arena
	maps  *Maps
	probe *probe

	aborted atomic.Bool
	gone    []atomic.Bool // by member
	mu      sync.Mutex    // of Abort and Gone against Close
}

// probe is memory that members try to read when a group forms.
type probe [16]byte

// peer is another member.
type peer struct {
	pid   int
	arena []byte // its memory; nil = it has none
	name  string // of the arena
}

// MismatchError says that a member has entered another operation.
type MismatchError struct {
	Member int
	Ticket [TicketBytes]byte // of that operation
	// Of an Alltoall with the same ticket: the bytes that it has for this member, and those
	// that this member expects.
	Sent, Expected int
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("shm: member %d is in another operation", e.Member)
}

// MemberError says that the memory of a member cannot be read: most likely it is gone.
type MemberError struct {
	Member int
	Err    error
}

func (e *MemberError) Error() string { return fmt.Sprintf("shm: member %d: %v", e.Member, e.Err) }

func (e *MemberError) Unwrap() error { return e.Err }

// pieceBytes is what is combined at a time, so that it stays in a near cache. A multiple
// of every element's size.
const pieceBytes = 128 << 10

func newGroup(rank, size int, mem []byte) *Group {
	g := &Group{
		rank: rank, size: size, mem: mem, base: make([]uint64, size), peers: make([]peer, size),
		notes: make([]note, size), waited: make([]atomic.Int64, size), gone: make([]atomic.Bool, size),
	}
	// With more members than processors, spinning keeps those from running that one waits
	// for, so they are let run first: a third of what it takes to sleep and be woken up.
	// Else it is for 250 us, which is longer than it takes to wake somebody up: with
	// less, two members that once sleep find each other asleep for ever, and each operation
	// costs two wake-ups.
	if size <= runtime.NumCPU() {
		g.spins = 8000
	} else {
		g.yields = 100
	}
	for i := range g.scratch {
		g.scratch[i] = make([]byte, pieceBytes)
	}
	return g
}

// Rank is this member's number.
func (g *Group) Rank() int { return g.rank }

// Size is the number of members.
func (g *Group) Size() int { return g.size }

// Describe tells people how large data travels.
func (g *Group) Describe() string {
	if g.vm {
		return "shared memory, process_vm_readv"
	}
	return "shared memory, windows"
}

// enter begins a round and returns when all members have entered it. p is this member's
// data.
func (g *Group) enter(ticket *[TicketBytes]byte, k kind, p []byte) error {
	mine := &g.notes[g.rank]
	mine.ticket, mine.kind, mine.at = *ticket, k, 0
	switch k {
	case inPrivate:
		mine.at = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(p))))
	case inArena:
		mine.at = g.arena.offset(p)
	}
	mine.put(g.note(g.rank))
	entered := g.entered()
	g.raise(entered, g.round)
	for q := range g.size {
		if q == g.rank {
			continue
		}
		if err := g.await(q, entered, g.round); err != nil {
			return err
		}
		theirs := &g.notes[q]
		theirs.parse(g.note(q))
		if theirs.ticket != *ticket {
			return &MismatchError{Member: q, Ticket: theirs.ticket}
		}
		if !theirs.kind.fits(k) {
			return &MemberError{q, fmt.Errorf("its data is in place %d, where place %d is expected", theirs.kind, k)}
		}
	}
	return nil
}

// leave ends a round in which members read each other's data.
func (g *Group) leave() error {
	g.raise(atLeft, g.round)
	return g.awaitAll(atLeft, g.round)
}

func (g *Group) awaitAll(at int, v uint64) error {
	for q := range g.size {
		if q == g.rank {
			continue
		}
		if err := g.await(q, at, v); err != nil {
			return err
		}
	}
	return nil
}

// peek returns n bytes of a member's data, in its place if it can be seen, else in
// scratch.
func (g *Group) peek(q, at, n int, scratch []byte) ([]byte, error) {
	switch note := &g.notes[q]; note.kind {
	case inNote, inSlot:
		return g.small(q, note.kind)[at : at+n], nil
	case inWindow:
		return g.window(q)[at : at+n], nil
	case inArena:
		all := g.peers[q].arena
		lo := note.at + uint64(at)
		if lo > uint64(len(all)) || uint64(n) > uint64(len(all))-lo {
			return nil, &MemberError{q, fmt.Errorf("%d bytes at %d are not in its arena", n, lo)}
		}
		return all[lo : lo+uint64(n)], nil
	}
	err := g.fetch(q, at, scratch[:n])
	return scratch[:n], err
}

// fetch copies a part of a member's data to dst.
func (g *Group) fetch(q, at int, dst []byte) error {
	if note := &g.notes[q]; note.kind == inPrivate {
		if err := readProcess(g.peers[q].pid, note.at+uint64(at), dst); err != nil {
			return &MemberError{q, err}
		}
		return nil
	}
	p, err := g.peek(q, at, len(dst), nil)
	copy(dst, p)
	return err
}

// place tells how a member's own data can be read by others.
func (g *Group) place(p []byte) kind {
	switch {
	case len(p) <= tinyBytes:
		return inNote
	case len(p) <= SmallBytes:
		return inSlot
	case g.arena.holds(p):
		return inArena
	}
	return inPrivate
}

// Close gives the memory back. No operation may be running; the other members need not
// have finished.
func (g *Group) Close() {
	g.aborted.Store(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mem != nil {
		detach(g.mem)
		g.mem = nil
		for i := range g.peers {
			if g.peers[i].arena != nil {
				g.maps.drop(g.peers[i].name)
			}
		}
	}
}
