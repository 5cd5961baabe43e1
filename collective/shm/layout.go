package shm

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

const (
	// SmallBytes is the size up to which data goes through a slot.
	SmallBytes = 8 << 10
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
	atEntered  = 128 // u64: rounds
	atProgress = 256 // u64: bytes, of all rounds
	atLeft     = 384 // u64: rounds
	atNotes    = 512 // two notes, that of round i at i modulo 2
	atIdentity = 896 // process id, u64; address of the probe, u64

	noteBytes = 128
)

// kind says where the data of a member is.
type kind uint64

const (
	inSlot kind = iota
	inArena
	inPrivate
	inWindow
)

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

func (n note) put(b []byte) {
	copy(b, n.ticket[:])
	binary.NativeEndian.PutUint64(b[TicketBytes:], uint64(n.kind))
	binary.NativeEndian.PutUint64(b[TicketBytes+8:], n.at)
}

func parseNote(b []byte) (n note) {
	copy(n.ticket[:], b)
	n.kind = kind(binary.NativeEndian.Uint64(b[TicketBytes:]))
	n.at = binary.NativeEndian.Uint64(b[TicketBytes+8:])
	return n
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
	at := atNotes + int(g.round%2)*noteBytes
	return g.block(rank)[at : at+noteBytes]
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
