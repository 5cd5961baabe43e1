package shm

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"
)

const (
	// SmallBytes is the largest data that goes through a slot.
	SmallBytes = 8 << 10
	// inlineBytes is the largest data that is part of the header. One cache line then tells that a
	// member has entered, in which operation, and its data.
	inlineBytes = 16
	// DescriptorBytes is the size of the description of an operation.
	DescriptorBytes = 32
	// MaxMembers is the largest size of a group. With the segment's descriptor it is as many
	// descriptors as the kernel passes in one message.
	MaxMembers = 252

	stagingBytes = 512 << 10 // of a staging buffer
	blockBytes   = 1 << 10
	pageBytes    = 4 << 10

	// Offsets in a member's block. Counters that others wait for have two cache lines each, because
	// processors fetch lines in pairs.
	offDoorbell = 0   // u32: futex
	offAsleep   = 4   // u32: 1 = ring the doorbell
	offProgress = 128 // u64: bytes, of all rounds
	offDone     = 256 // u64: rounds
	offHeaders  = 384 // two headers; round i uses header i modulo 2

	// Offsets in a header.
	offRound      = 0 // u64: advanced when the rest is written
	offDescriptor = 8
	offLocation   = offDescriptor + DescriptorBytes // u64: location, and where
	offInline     = offLocation + 8
	headerBytes   = 128

	// addresses are shorter; arm64 may have a tag above, which the kernel does not need
	locationShift = 56
)

// location is where the data of a member is.
type location uint64

const (
	locInline location = iota
	locSlot
	locArena
	locPrivate
	locStaging
)

// small reports whether the data is a copy, so that its member may go on at once.
func (k location) small() bool { return k == locInline || k == locSlot }

// fits reports whether members may have their data at these locations in the same operation.
func (k location) fits(o location) bool {
	large := func(k location) bool { return k == locArena || k == locPrivate }
	return k == o || large(k) && large(o)
}

// header is what a member publishes when it enters a round.
type header struct {
	descriptor [DescriptorBytes]byte
	location   location
	at         uint64 // address, or offset in the arena
}

func (n *header) put(b []byte) {
	copy(b[offDescriptor:], n.descriptor[:])
	binary.NativeEndian.PutUint64(b[offLocation:], uint64(n.location)<<locationShift|n.at&(1<<locationShift-1))
}

func (n *header) parse(b []byte) {
	copy(n.descriptor[:], b[offDescriptor:])
	place := binary.NativeEndian.Uint64(b[offLocation:])
	n.location, n.at = location(place>>locationShift), place&(1<<locationShift-1)
}

// segmentBytes is the size of a group's segment. Untouched pages, such as those of unused staging
// buffers, take no memory.
func segmentBytes(members int) int {
	return pages(members*blockBytes) + members*2*(SmallBytes+stagingBytes)
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

// header is the memory of a member's header of this round.
func (g *Group) header(rank int) []byte {
	at := g.entered()
	return g.block(rank)[at : at+headerBytes]
}

// entered is the offset of the counter that says that a member has entered this round.
func (g *Group) entered() int { return offHeaders + int(g.round%2)*headerBytes + offRound }

// small is a member's small data of this round.
func (g *Group) small(rank int, k location) []byte {
	if k == locInline {
		return g.header(rank)[offInline : offInline+inlineBytes]
	}
	return g.slot(rank)
}

// slot is a member's slot of this round.
func (g *Group) slot(rank int) []byte {
	at := pages(g.size*blockBytes) + (2*rank+int(g.round%2))*SmallBytes
	return g.mem[at : at+SmallBytes : at+SmallBytes]
}

// stagingBuffer is a member's staging buffer of this round.
func (g *Group) stagingBuffer(rank int) []byte {
	at := pages(g.size*blockBytes) + g.size*2*SmallBytes + (2*rank+int(g.round%2))*stagingBytes
	return g.mem[at : at+stagingBytes : at+stagingBytes]
}
