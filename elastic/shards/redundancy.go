package shards

import (
	"slices"
	"sync"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// Redundancy is how many losses a commit survives, whichever they are.
type Redundancy struct {
	Members int
	Nodes   int // with all of their members
}

// holding is what the members have of a commit.
type holding struct {
	tensors []reshard.Tensor
	has     [][]reshard.Piece // by rank
	groups  []reshard.Group
}

// survives returns what members that have this survive. It is computed when it is asked for first,
// which takes about as long as a plan, so that nobody waits for it who has no use for it. Any
// goroutine may ask. nodes names the node of each member.
func survives(nodes []string, what func() holding) func() Redundancy {
	return sync.OnceValue(func() Redundancy {
		h := what()
		return Redundancy{reshard.Survives(h.tensors, h.has, h.groups, nil), reshard.Survives(h.tensors, h.has, h.groups, nodes)}
	})
}

// Whole is the newest commit of which the members are known to have everything, as of the last Save
// or Sync, and what it survives; zero = none. Copies and parity that are on their way do not count.
// It holds until the next Save, or a loss.
func (s *State) Whole() (Commit, func() Redundancy) { return s.whole, s.holds }

// plan prepares what commits of a generation survive when they are whole.
func (s *State) plan(t *table, n needs) {
	copied := func(a agreement) func() Redundancy {
		return survives(n.nodes, func() holding {
			return holding{t.tensors, reshard.Copied(n.pieces, a.copies), nil}
		})
	}
	s.planned, s.parting = copied(s.peers), copied(s.leaving)
	if s.options.Parity > 0 {
		s.planned = s.protected(t, n.pieces)
	}
}

// protected is what members with these pieces of a commit survive when its parity is complete.
func (s *State) protected(t *table, has [][]reshard.Piece) func() Redundancy {
	nodes, parity := s.peers.nodes, s.options.Parity
	return survives(nodes, func() holding {
		return holding{t.tensors, has, reshard.Protected(reshard.Groups(nodes, parity), reshard.Rare(t.tensors, has, 1))}
	})
}

// repaired is what members with these pieces of a commit survive when they have made these moves.
func (s *State) repaired(t *table, has [][]reshard.Piece, moves []reshard.Move) func() Redundancy {
	return survives(s.peers.nodes, func() holding {
		all := make([][]reshard.Piece, len(has))
		for rank, pieces := range has {
			all[rank] = slices.Clone(pieces)
		}
		for _, m := range moves {
			to := m.Chain[1]
			all[to] = append(all[to], m.Piece)
		}
		return holding{t.tensors, all, nil}
	})
}

// better is the better one of two that both hold.
func better(a, b func() Redundancy) func() Redundancy {
	return func() Redundancy {
		x, y := a(), b()
		return Redundancy{max(x.Members, y.Members), max(x.Nodes, y.Nodes)}
	}
}
