package schedule

// Action says what a receiver does with the elements that arrive.
type Action uint8

// The actions of a receive. Sends carry Copy.
const (
	// Copy stores the elements over what was there.
	Copy Action = iota
	// Reduce combines the elements with what is there.
	Reduce
	// Finish is the Reduce that completes a segment: this rank is its owner and
	// applies what is done once per element, such as the division of an average.
	Finish
)

// Ring is a rank's place among the ranks: 0 <= Rank < World.
type Ring struct {
	World int
	Rank  int
}

// Next is the rank that this one sends to.
func (r Ring) Next() int { return r.mod(r.Rank + 1) }

// Prev is the rank that this one receives from.
func (r Ring) Prev() int { return r.mod(r.Rank - 1) }

func (r Ring) mod(i int) int { return ((i % r.World) + r.World) % r.World }

// Transfer is one message: the elements [Lo, Hi) of the buffer, possibly none.
type Transfer struct {
	Lo, Hi int
	// After is how much of the other list must be finished first: for a send the
	// number of receives, for a receive the number of sends. A send waits until
	// its elements have arrived; a receive waits until the old content of its
	// elements has left.
	After  int
	Action Action
}

// Plan is what one rank does in one collective operation.
//
// The zero value is ready. Filling a plan again reuses its memory, so that a
// communicator allocates nothing once it has seen its largest operation.
type Plan struct {
	// Sends go to the next rank and Recvs come from the previous one, in this order.
	Sends, Recvs []Transfer
	// Steps is the number of rounds that the operation takes if every rank can
	// send and receive one message per round and nothing is divided into chunks
	// (for a broadcast: with its chunks, since they are what fills the pipeline).
	Steps int

	starts []int // of the sends of each step, to find what a later receive overwrites
}

func (p *Plan) reset(steps int) {
	p.Sends, p.Recvs, p.starts, p.Steps = p.Sends[:0], p.Recvs[:0], p.starts[:0], steps
}

// step appends one round: a send of one segment and a receive of another. Every
// segment, even an empty one, is at least one message: the header of that message
// is how ranks that called different operations find out instead of hanging.
func (p *Plan) step(send, recv [2]int, chunk int, action Action, overwrites int) {
	// What is sent now arrived in the previous round, chunk by chunk in this order.
	first := len(p.starts) == 0
	arrived := len(p.Recvs) - chunks(send, chunk)
	p.starts = append(p.starts, len(p.Sends))
	for k := range chunks(send, chunk) {
		t := cut(send, chunk, k)
		if !first {
			t.After = arrived + k + 1
		}
		p.Sends = append(p.Sends, t)
	}
	for k := range chunks(recv, chunk) {
		t := cut(recv, chunk, k)
		t.Action = action
		if overwrites >= 0 {
			t.After = p.starts[overwrites] + k + 1
		}
		p.Recvs = append(p.Recvs, t)
	}
}

// nothing marks a receive that overwrites no element that is sent in this plan.
const nothing = -1

func chunks(seg [2]int, chunk int) int {
	return max(1, (seg[1]-seg[0]+chunk-1)/chunk)
}

func cut(seg [2]int, chunk, k int) Transfer {
	lo := seg[0] + k*chunk
	return Transfer{Lo: lo, Hi: min(lo+chunk, seg[1])}
}

// Segment is the part [lo, hi) of n elements that belongs to rank i of world.
// The parts differ by at most one element and are in order; some are empty when
// n < world.
func Segment(n, world, i int) (lo, hi int) {
	// Not i*n/world: the product could overflow for n near the largest int.
	q, r := n/world, n%world
	lo = i*q + min(i, r)
	if i < r {
		return lo, lo + q + 1
	}
	return lo, lo + q
}
