package plan

import (
	"cmp"
	"math"
	"slices"

	"github.com/regroup-io/regroup/events"
)

// byHost orders nodes as the host list names them; those that it does not name come behind, by name.
func (s *State) byHost(a, b events.NodeID) int {
	return cmp.Or(cmp.Compare(s.line(a), s.line(b)), cmp.Compare(a, b))
}

func (s *State) line(n events.NodeID) int {
	if o := s.Nodes[n].Order; o > 0 {
		return o
	}
	return math.MaxInt
}

// hosts lists the nodes of places in the order of the host list; nil if that is their order by name.
func (s *State) hosts(places []events.Place) []events.NodeID {
	var nodes []events.NodeID
	for _, p := range places {
		if len(nodes) == 0 || nodes[len(nodes)-1] != p.Node { // places are sorted
			nodes = append(nodes, p.Node)
		}
	}
	if slices.IsSortedFunc(nodes, s.byHost) {
		return nil
	}
	slices.SortFunc(nodes, s.byHost)
	return nodes
}
