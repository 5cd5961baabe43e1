package round

import (
	"cmp"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// assign gives ranks to places: nodes by seniority (the generation in which they first took part), then as hosts lists them, then name;
// slots within a node in order; cut at limit (0 = none). Local and cross ranks are Horovod's: local_rank counts on the node, and
// for each local rank the nodes that own it form a cross group, in order.
func assign(places []events.Place, seniority map[events.NodeID]events.Generation, hosts []events.NodeID, limit int) events.MemberTable {
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
	line := map[events.NodeID]int{}
	for i, n := range hosts {
		line[n] = i - len(hosts) // all others come behind
	}
	slices.SortStableFunc(nodes, func(a, b []events.Place) int {
		m, n := a[0].Node, b[0].Node
		return cmp.Or(cmp.Compare(seniority[m], seniority[n]), cmp.Compare(line[m], line[n]))
	})
	members := make(events.MemberTable, 0, len(order))
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
