package shm

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

const (
	// SmallBytes is the size up to which data goes through a slot.
	SmallBytes = 8 << 10
	// tinyBytes is the size up to which data is in the note itself: one cache line brings the
	// news that a member has entered, what it has entered, and its data.
	tinyBytes = 16
	// TicketBytes is the size of the description of an operation.
	TicketBytes = 32
	// MaxMembers of a group: with that of the segment, as many descriptors as the system
	// hands over at once.
	MaxMembers = 252

	stageBytes = 512 << 10 // of a window
	blockBytes = 1 << 10
	pageBytes  = 4 << 10

	// Places in a block. Counters that others wait for have two cache lines each, because
	// processors fetch lines in pairs.
	atBell     = 0   // u32: futex
	atSleeps   = 4   // u32: 1 = ring the bell
	atProgress = 128 // u64: bytes, of all rounds
	atLeft     = 256 // u64: rounds
	atNotes    = 384 // two notes, that of round i at i modulo 2
	atIdentity = 640 // process id, u64; address of the probe, u64

	// Places in a note.
	atRound   = 0 // u64: counted up when the rest is there
	atTicket  = 8
	atPlace   = atTicket + TicketBytes // u64: kind, and where
	atTiny    = atPlace + 8
	noteBytes = 128

	kindShift = 56 // addresses of programs are shorter; arm64 may have a tag above, which the kernel does not need
)

// kind says where the data of a member is.
type kind uint64

const (
	inNote kind = iota
	inSlot
	inArena
	inPrivate
	inWindow
)

// small tells whether the data is copied, so that its member may go on at once.
func (k kind) small() bool { return k == inNote || k == inSlot }

// fits tells whether members can have their data in these places in the same operation.
func (k kind) fits(o kind) bool {
	large := func(k kind) bool { return k == inArena || k == inPrivate }
	return k == o || large(k) && large(o)
}

// note is what a member says when it enters.
type note struct {
	ticket [TicketBytes]byte
	kind   kind
	at     uint64 // address, or offset in the arena
}

func (n *note) put(b []byte) {
	copy(b[atTicket:], n.ticket[:])
	binary.NativeEndian.PutUint64(b[atPlace:], uint64(n.kind)<<kindShift|n.at&(1<<kindShift-1))
}

func (n *note) parse(b []byte) {
	copy(n.ticket[:], b[atTicket:])
	place := binary.NativeEndian.Uint64(b[atPlace:])
	n.kind, n.at = kind(place>>kindShift), place&(1<<kindShift-1)
}

// segmentBytes is the size of the segment of a group. Pages that nobody touches, as those
// of the windows where none are needed, take no memory.
func segmentBytes(members int) int {
	return pages(members*blockBytes) + members*2*(SmallBytes+stageBytes)
}

func pages(n int) int { return (n + pageBytes - 1) / pageBytes * pageBytes }

func (g *Group) block(rank int) []byte {
	return g.mem[rank*blockBytes : (rank+1)*blockBytes]
}

func (g *Group) word(rank, at int) *uint32 {
	return (*uint32)(unsafe.Pointer(&g.mem[rank*blockBytes+at]))
}

func (g *Group) counter(rank, at int) *atomic.Uint64 {
	return (*atomic.Uint64)(unsafe.Pointer(&g.mem[rank*blockBytes+at]))
}

// note is the place of a member's note of this round.
func (g *Group) note(rank int) []byte {
	at := g.entered()
	return g.block(rank)[at : at+noteBytes]
}

// entered is where members count that they have entered this round.
func (g *Group) entered() int { return atNotes + int(g.round%2)*noteBytes + atRound }

// small is a member's small data of this round.
func (g *Group) small(rank int, k kind) []byte {
	if k == inNote {
		return g.note(rank)[atTiny : atTiny+tinyBytes]
	}
	return g.slot(rank)
}

// slot is a member's slot of this round.
func (g *Group) slot(rank int) []byte {
	at := pages(g.size*blockBytes) + (2*rank+int(g.round%2))*SmallBytes
	return g.mem[at : at+SmallBytes : at+SmallBytes]
}

// window is a member's window of this round.
func (g *Group) window(rank int) []byte {
	at := pages(g.size*blockBytes) + g.size*2*SmallBytes + (2*rank+int(g.round%2))*stageBytes
	return g.mem[at : at+stageBytes : at+stageBytes]
}
