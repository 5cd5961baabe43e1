package round

import (
	"slices"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

// With elastic.multipleOf the members of a generation are a multiple of a number. Those beyond it
// are spares: joined, and waiting for a generation with room for them. A spare that was in a
// generation before may have parts of the state that no member has. It gives them to the members
// while their generation begins, in which it has one of the ranks behind theirs, and then waits.
//
// Example (script what_is_beyond_a_multiple_waits_and_gives): of four workers with multipleOf 2 one
// is lost. The next generation has two members, ranks 0 and 1; the third worker is spare 2 of it.
// When the lost one is back the two leave at a commit, and all four train.

// whole returns how many of n workers can be in a generation.
func (s *State) whole(n int) int {
	if s.Workers.Max > 0 {
		n = min(n, s.Workers.Max)
	}
	return s.Spec.Elastic.Whole(n)
}

// grows reports whether more workers could be in the next generation than stay of the sealed one.
func (t *transition) grows() bool {
	stay, more := 0, 0
	for x := range t.all() {
		switch {
		case x.Leaving || t.linkExcluded(x):
		case x.State == active && t.rank(x) >= 0:
			stay++
		case t.restart() && !x.over(), x.State == joined && !x.Unsynced: // restart: they join when a round is open
			more++
		}
	}
	return t.whole(stay+more) > stay
}

// seats returns the members of the next generation, in the order of their ranks, of those that are
// ready. Where some must wait these are of nodes that have no whole number of multiples: ranks that
// belong together are on one node. But one that has the state is a member.
func (t *transition) seats(ready ident.Places) tables.MemberTable {
	n := t.whole(len(ready))
	all := assign(ready, t.ranksOfNodes(), t.HostOrder, 0)
	if extra := len(all) - n; extra > 0 && t.Spec.Elastic.MultipleOf > 1 {
		if some := withoutOdd(all, t.Spec.Elastic.MultipleOf, extra); t.holdsState(ready) == t.holdsState(some) {
			return assign(some, t.ranksOfNodes(), t.HostOrder, n)
		}
	}
	return assign(ready, t.ranksOfNodes(), t.HostOrder, n)
}

// withoutOdd drops up to so many members of nodes that have no multiple of a number of them, of the
// last nodes first.
func withoutOdd(all tables.MemberTable, multiple, drop int) (kept ident.Places) {
	for end := len(all); end > 0; {
		begin := end
		for begin > 0 && all[begin-1].Place.Node == all[end-1].Place.Node {
			begin--
		}
		odd := min((end-begin)%multiple, drop)
		drop -= odd
		for _, m := range all[begin : end-odd] {
			kept = append(kept, m.Place)
		}
		end = begin
	}
	return kept
}

func (t *transition) holdsState(places ident.Places) bool {
	return slices.ContainsFunc(places, func(p ident.Place) bool { return t.member(p).Commit != tables.Commit{} })
}

// sparesOf returns those of the ready ones that are not among the members and have a commit, in the
// order of places.
func (t *transition) sparesOf(ready ident.Places, members tables.MemberTable) (spares tables.MemberTable) {
	if t.restart() {
		return nil
	}
	for _, p := range ready {
		x := t.member(p)
		if x.Commit != (tables.Commit{}) && !slices.ContainsFunc(members, func(m tables.Member) bool { return m.Place == p }) {
			spares = append(spares, tables.Member{Place: p, Incarnation: x.Incarnation, Attempt: x.Attempt, Agent: x.Agent, Address: x.Address, PID: x.PID, Commit: x.Commit})
		}
	}
	return spares
}

// spare returns the number of a member among the spares of the sealed generation, or -1.
func (s *State) spare(x *Member) int {
	return slices.IndexFunc(s.Spares, func(m tables.Member) bool { return m.Place == x.Place && m.Incarnation == x.Incarnation })
}

// spareNode returns the lowest rank on a node that has spares: by it the ranks of a node find each
// other, so that what is on one node is not taken for copies on two.
func (s *State) spareNode(n ident.NodeID) int {
	if rank, ok := s.firstRank(n); ok {
		return rank
	}
	return len(s.View.Members) + slices.IndexFunc(s.Spares, func(m tables.Member) bool { return m.Place.Node == n })
}

// address returns that of a rank of the sealed generation; the spares follow the members.
func (s *State) address(rank int) string {
	if n := len(s.View.Members); rank >= n {
		return s.Spares[rank-n].Address
	}
	return s.View.Members[rank].Address
}

func (s *State) sparePlaces() (places ident.Places) {
	for _, m := range s.Spares {
		places = append(places, m.Place)
	}
	return places
}
