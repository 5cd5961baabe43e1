package round

import (
	"cmp"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// assign gives ranks to places: nodes by seniority (the generation in which they first took part), then name; slots
// within a node in order; cut at limit (0 = none). Local and cross ranks are Horovod's: local_rank counts on the node, and
// for each local rank the nodes that own it form a cross group, in order.
func assign(places []events.Place, seniority map[events.NodeID]events.Generation, limit int) []events.Member {
	order := slices.Clone(places)
	slices.SortFunc(order, func(a, b events.Place) int {
		return cmp.Or(cmp.Compare(seniority[a.Node], seniority[b.Node]), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Slot, b.Slot))
	})
	if limit > 0 && len(order) > limit {
		order = order[:limit]
	}
	members := make([]events.Member, len(order))
	local := map[events.NodeID]int{} // members so far on each node
	cross := map[int]int{}           // nodes so far that own each local rank
	for r, p := range order {
		l := local[p.Node]
		members[r] = events.Member{Place: p, Rank: r, LocalRank: l, CrossRank: cross[l]}
		local[p.Node]++
		cross[l]++
	}
	for r := range members {
		members[r].LocalSize = local[members[r].Place.Node]
		members[r].CrossSize = cross[members[r].LocalRank]
	}
	return members
}
