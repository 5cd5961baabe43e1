package round

import (
	"cmp"
	"slices"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
)

// What a round's document does without when it would outgrow its store.
const (
	shortReason = 48     // bytes of why a node is out
	mostOut     = 10_000 // nodes that are out and remembered
)

// Shrink leaves out what only people read: the words with which nodes went, and in the end the nodes that went first. One of those
// that asks again is taken for new.
func (s State) Shrink() (State, bool) {
	x := s.External
	if x == nil {
		return s, false
	}
	done := false
	for n, o := range x.Out {
		if len(o.Reason) > shortReason {
			o.Reason, done = limits.Shorten(o.Reason, shortReason), true
			x.Out[n] = o
		}
	}
	if done || len(x.Out) <= mostOut {
		return s, done
	}
	type out struct {
		node  events.NodeID
		agent events.Incarnation
	}
	all := make([]out, 0, len(x.Out))
	for n, o := range x.Out {
		all = append(all, out{n, o.Agent})
	}
	slices.SortFunc(all, func(a, b out) int { return cmp.Or(cmp.Compare(a.agent, b.agent), cmp.Compare(a.node, b.node)) })
	for _, o := range all[:len(all)-mostOut] { // ULIDs sort by age
		delete(x.Out, o.node)
	}
	return s, true
}
