package shards

import (
	"context"
	"errors"
	"fmt"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// moveBytes is the most that is sent at once: small enough that several holders can share the
// sending of a tensor, and that a member forwards while it receives.
const moveBytes = 4 << 20

// need is what a member registered.
type need struct {
	Tensors []reshard.Tensor
	Pieces  []reshard.Piece
	Node    string
	Halves  bool // it keeps copies as reshard.Copies says; false = it is of a version before that
}

// Sync fills the memory that was registered with the commit that was chosen. Without one the memory
// is an initial state: an element that several members have becomes that of the lowest rank. It
// returns the number of bytes that this member received, in Choose as well. node tells the members
// of one machine apart from others.
//
// The last ranks may be spares, which register nothing and are not in the generation that follows:
// they only give what they have, and keep it. The others save what follows among themselves, with
// the ranks that they have here.
//
// The sets of commits stay as they are if there is an error, so nothing is lost; what is in the
// memory is undefined then.
func (s *State) Sync(ctx context.Context, c Communicator, chosen Commit, found bool, node string, spares int) (received uint64, err error) {
	needs, t, err := s.gatherNeeds(ctx, c, node)
	if err != nil {
		return 0, err
	}
	var available [][]reshard.Piece
	if found {
		available = has(t, s.offers, chosen)
	} else {
		available = reshard.First(t.tensors, needs.pieces)
	}
	moves, err := reshard.Plan(t.tensors, available, needs.pieces, s.most)
	var missing *reshard.MissingError
	if errors.As(err, &missing) {
		return 0, fmt.Errorf("%w: %w", ErrNotWhole, err)
	}
	if err != nil {
		return 0, err
	}
	s.filled, s.former = Commit{}, nil // what is there if this fails nobody knows
	x := s.newTransfer(c, t, chosen, found)
	if received, err = x.run(ctx, moves); err != nil {
		return received, err
	}
	received += s.received
	s.filled, s.unchanged = x.chosen, x.unchanged
	// Nobody trains before all members are known to have the state.
	if err := c.Barrier(ctx); err != nil {
		return received, err
	}
	// The commit before may have copies that this one has not, after a planned change and when more
	// are lost: it is kept until all have agreed on the next one.
	before := s.before(chosen)
	s.drop(func(o Commit) bool { return o != chosen && o != before })
	s.memory.Trim() // the next commit may have other sizes, and the others of the machine need it now
	members := c.World() - spares
	if c.Rank() >= members {
		s.known, s.offers, s.whole, s.last, s.chosen = t.tensors, nil, chosen, Commit{}, holding{}
		return received, nil
	}
	held := s.chosen // spares have theirs until the next commit
	s.holds = survives(needs.nodes, func() holding { return held })
	needs.pieces, needs.nodes = needs.pieces[:members], needs.nodes[:members]
	s.agree(c, t, needs)
	s.share = newShare(t, needs, c.Rank())
	s.plan(t, needs)
	s.chosen, s.settled = holding{}, s.holds
	switch {
	case !found, spares > 0: // copies are made with the next commit
	case s.options.Parity == 0:
		// Copies that were lost with their holders are made up for.
		moves := reshard.Repair(t.tensors, available, s.peers.nodes, s.options.Copies, s.most)
		s.settled = s.repaired(t, available, moves)
		s.send(ctx, c, t, chosen, moves)
	case s.holds().Members < s.options.claim(c.World()):
		s.protectAgain(ctx, c, t, available, chosen)
	}
	s.layout, s.registered = t, needs.pieces
	s.known, s.offers, s.whole, s.last = t.tensors, nil, chosen, Commit{}
	return received, nil
}

// before is the newest commit before another one of which this member has parts, or parity; zero =
// none.
func (s *State) before(c Commit) (newest Commit) {
	consider := func(o Commit) {
		if o.Compare(c) < 0 && o.Compare(newest) > 0 {
			newest = o
		}
	}
	for _, x := range s.sets {
		consider(x.commit)
	}
	for _, p := range s.protections {
		consider(p.commit)
	}
	return newest
}

// needs are what all members have registered, by rank.
type needs struct {
	pieces [][]reshard.Piece // of the table
	nodes  []string
}

func (s *State) gatherNeeds(ctx context.Context, c Communicator, node string) (needs, *table, error) {
	mine := need{Node: node, Halves: true}
	own, err := newTable([][]reshard.Tensor{registered(s.parts)})
	if err != nil {
		return needs{}, nil, err
	}
	mine.Tensors, mine.Pieces = own.tensors, own.pieces(s.parts)
	all, err := gather(ctx, c, mine)
	if err != nil {
		return needs{}, nil, err
	}
	tensors := make([][]reshard.Tensor, len(all), 2*len(all))
	for rank, n := range all {
		tensors[rank] = n.Tensors
		if !n.Halves {
			return needs{}, nil, fmt.Errorf("rank %d keeps copies of other parts: do all workers run the same version?", rank)
		}
		if err := checkPieces(rank, n.Tensors, n.Pieces); err != nil {
			return needs{}, nil, err
		}
	}
	t, err := newTable(tensors)
	if err != nil {
		return needs{}, nil, err
	}
	for _, o := range s.offers { // what is in a commit must be somewhere in the new layout
		for _, x := range o.Tensors {
			if i, ok := t.number[x.Name]; ok && !t.tensors[i].Equal(x) {
				y := t.tensors[i]
				return needs{}, nil, fmt.Errorf("tensor %s is %s %v, and was %s %v in what the training goes on from", x.Name, y.Type, y.Shape, x.Type, x.Shape)
			}
		}
		tensors = append(tensors, o.Tensors)
	}
	if t, err = newTable(tensors); err != nil {
		return needs{}, nil, err
	}
	n := needs{pieces: make([][]reshard.Piece, len(all)), nodes: make([]string, len(all))}
	for rank, of := range all {
		n.nodes[rank] = of.Node
		n.pieces[rank] = t.translate(of.Tensors, of.Pieces)
	}
	if missing := reshard.Missing(t.tensors, n.pieces); len(missing) > 0 {
		return needs{}, nil, fmt.Errorf("no rank has registered %s%v: together the ranks must have all of each tensor",
			t.tensors[missing[0].Tensor].Name, missing[0].Box)
	}
	return n, t, nil
}

func registered(parts []part) []reshard.Tensor {
	tensors := make([]reshard.Tensor, len(parts))
	for i, p := range parts {
		tensors[i] = p.tensor
	}
	return tensors
}

// agree settles which parts have copies, or parity, and who keeps them.
func (s *State) agree(c Communicator, t *table, n needs) {
	copies, parting := s.options.Copies, max(s.options.Copies, 1)
	opposite, near := reshard.Opposite(n.nodes, parting), reshard.Near(t.tensors, n.pieces, n.nodes, parting)
	s.leaving = agreement{reshard.CopiesAt(opposite, near), n.nodes}
	s.peers = agreement{make([][]reshard.Copy, len(n.pieces)), n.nodes}
	if s.options.Parity > 0 {
		s.group = newGroup(c, reshard.Groups(n.nodes, s.options.Parity), t, reshard.Rare(t.tensors, n.pieces, 1))
	} else if copies > 0 {
		s.peers.copies = reshard.Copies(reshard.Rare(t.tensors, n.pieces, copies), n.nodes, copies)
	}
}

// newTransfer prepares to fill the memory that was registered: from the sets of a commit, or, in an
// initial state, from that of others.
func (s *State) newTransfer(c Communicator, t *table, chosen Commit, found bool) *transfer {
	x := &transfer{comm: c, into: make([][]part, len(t.tensors))}
	for _, p := range s.parts {
		i := t.number[p.tensor.Name]
		x.into[i] = append(x.into[i], p)
	}
	if !found {
		x.from = x.into
		return x
	}
	x.chosen = chosen
	x.from = make([][]part, len(t.tensors))
	for _, set := range s.sets {
		if set.commit != chosen {
			continue
		}
		x.local = true
		for _, p := range set.parts {
			i := t.number[p.tensor.Name]
			x.from[i] = append(x.from[i], p)
		}
	}
	return x
}

// Leave ends the part in a generation whose communicator has failed or is not used any more. Copies
// that are complete are kept.
func (s *State) Leave() {
	_ = s.Settle() // what was lost is said by the communicator
	s.memory.Trim()
}
