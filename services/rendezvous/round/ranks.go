package round

import (
	"cmp"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// assign gives ranks to places: nodes by seniority (the generation in which they first took part), then name; slots
// within a node in order; cut at limit (0 = none). Local and cross ranks are Horovod's: local_rank counts on the node, and
// for each local rank the nodes that own it form a cross group, in order.
func assign(places []events.Place, seniority map[events.NodeID]events.Generation, limit int) events.Roster {
	order := slices.Clone(places)
	slices.SortFunc(order, comparePlaces)
	var nodes [][]events.Place
	for i, p := range order {
		if i == 0 || order[i-1].Node != p.Node {
			nodes = append(nodes, nil)
		}
		last := &nodes[len(nodes)-1]
		*last = append(*last, p)
	}
	slices.SortStableFunc(nodes, func(a, b []events.Place) int { return cmp.Compare(seniority[a[0].Node], seniority[b[0].Node]) })
	members := make(events.Roster, 0, len(order))
	for _, n := range nodes {
		for _, p := range n {
			if limit == 0 || len(members) < limit {
				members = append(members, events.Member{Place: p})
			}
		}
	}
	members.Number()
	return members
}

func comparePlaces(a, b events.Place) int {
	return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Slot, b.Slot))
}
