package schedule

import (
	"fmt"
	"slices"
)

// Action says what a receiver does with the elements that arrive.
type Action uint8

// The actions of a receive. Sends carry Copy.
const (
	// Copy stores the elements over what was there.
	Copy Action = iota
	// Reduce combines the buffer with the elements, in this order.
	Reduce
	// Under combines the elements with the buffer, in this order.
	Under
	// Finish is the Reduce that completes a segment: this rank is its owner and
	// applies what is done once per element, such as the division of an average.
	Finish
	// Stash keeps the elements in Slot until all have arrived; see Plan.Fold.
	Stash
)

// Place is a rank's place among the ranks: 0 <= Rank < World.
type Place struct {
	World int
	Rank  int
}

// Next is the following rank of the ring.
func (r Place) Next() int { return r.mod(r.Rank + 1) }

// Prev is the rank before this one in the ring.
func (r Place) Prev() int { return r.mod(r.Rank - 1) }

func (r Place) mod(i int) int { return ((i % r.World) + r.World) % r.World }

// Transfer is one message: the elements [Lo, Hi) of the buffer, possibly none.
type Transfer struct {
	Peer   int
	Lo, Hi int
	// After is how much of the other list must be finished first: for a send the
	// number of receives, for a receive the number of sends. A send waits until
	// its elements have arrived; a receive waits until the old content of its
	// elements has left.
	After  int
	Action Action
	Slot   int // of a Stash
}

// Plan is what one rank does in one collective operation.
//
// The zero value is ready. Filling a plan again reuses its memory, so that a
// communicator allocates nothing once it has seen its largest operation.
type Plan struct {
	// Sends and Recvs are executed in this order each.
	Sends, Recvs []Transfer
	// Slots is the number of stashes that the receives need, of Fold's size each. When all sends
	// and receives are done, the elements of Fold become the combination of all ranks'
	// contributions in the order of the ranks: slots 0, 1, ... hold those of the other ranks,
	// ascending, and the buffer this rank's own. No slots: no fold.
	Slots int
	Fold  Span
	// Finish: what is done once per element remains to be done: to the elements of Fold or, without
	// slots, to all.
	Finish bool
	// Steps is the number of rounds that the operation takes if every rank can
	// send and receive one message per round and nothing is divided into chunks
	// (for a pipeline: with its chunks, since they are what fills it).
	Steps int

	starts []int // of the sends of each step, to find what a later receive overwrites
}

// Span is the elements [Lo, Hi).
type Span struct{ Lo, Hi int }

// Len is the number of elements.
func (s Span) Len() int { return s.Hi - s.Lo }

func (p *Plan) reset(steps int) {
	p.Sends, p.Recvs, p.starts, p.Steps = p.Sends[:0], p.Recvs[:0], p.starts[:0], steps
	p.Slots, p.Fold, p.Finish = 0, Span{}, false
}

// send appends s in chunks, all of which wait for the given number of receives.
func (p *Plan) send(peer int, s Span, chunk, after int) {
	p.Sends = divide(p.Sends, Transfer{Peer: peer, After: after}, s, chunk, 0)
}

// recv appends s in chunks, all of which wait for the given number of sends.
func (p *Plan) recv(peer int, s Span, chunk, after int, action Action) {
	p.Recvs = divide(p.Recvs, Transfer{Peer: peer, After: after, Action: action}, s, chunk, 0)
}

// divide appends a transfer of s in chunks. Each waits for later more of the other list than the
// one before it.
func divide(list []Transfer, t Transfer, s Span, chunk, later int) []Transfer {
	for k := range chunks(s, chunk) {
		part := cut(s, chunk, k)
		t.Lo, t.Hi = part.Lo, part.Hi
		list = append(list, t)
		t.After += later
	}
	return list
}

// chunks is at least one: the header of an empty message is how ranks that called
// different operations find out instead of hanging.
func chunks(s Span, chunk int) int {
	return max(1, (s.Len()+chunk-1)/chunk)
}

func cut(s Span, chunk, k int) Span {
	lo := s.Lo + k*chunk
	return Span{lo, min(lo+chunk, s.Hi)}
}

// Segment is the part of n elements that belongs to rank i of world. The parts
// differ by at most one element and are in order; some are empty when n < world.
func Segment(n, world, i int) Span {
	// Not i*n/world: the product could overflow for n near the largest int.
	q, r := n/world, n%world
	lo := i*q + min(i, r)
	if i < r {
		return Span{lo, lo + q + 1}
	}
	return Span{lo, lo + q}
}

// Blocks is where the blocks of n elements begin, one for each rank of world, and the last one
// ends. counts are their lengths; nil = they are equal.
func Blocks(n, world int, counts []int) ([]int, error) {
	if counts == nil {
		if n%world != 0 {
			return nil, fmt.Errorf("%d elements are no multiple of %d ranks", n, world)
		}
		counts = slices.Repeat([]int{n / world}, world)
	}
	if len(counts) != world {
		return nil, fmt.Errorf("%d counts for %d ranks", len(counts), world)
	}
	offsets := make([]int, world+1)
	for i, k := range counts {
		if k < 0 || k > n-offsets[i] {
			return nil, fmt.Errorf("block %d has %d of %d elements, from %d on", i, k, n, offsets[i])
		}
		offsets[i+1] = offsets[i] + k
	}
	if offsets[world] != n {
		return nil, fmt.Errorf("the counts add up to %d of %d elements", offsets[world], n)
	}
	return offsets, nil
}
