package job

import (
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
)

// figuresOf says what was measured of the GPU of a place, beside others of its model; empty =
// nothing is known.
func figuresOf(at ident.Place, nodes []events.NodeView) string {
	var own figures.GPU
	var all []figures.GPU
	for _, n := range nodes {
		if n.Preflight == nil {
			continue
		}
		all = append(all, n.Preflight.GPUs...)
		if n.Node != at.Node || len(n.GPUs) != n.Slots || int(at.Slot) >= len(n.GPUs) {
			continue // or its slots have no GPUs of their own
		}
		id := n.GPUs[at.Slot].ID
		if i := slices.IndexFunc(n.Preflight.GPUs, func(g figures.GPU) bool { return g.ID == id }); i >= 0 {
			own = n.Preflight.GPUs[i]
		}
	}
	var said []string
	for _, c := range own.Compare(all) {
		if c.Value > 0 {
			said = append(said, c.String())
		}
	}
	if said == nil {
		return ""
	}
	return "before its first worker " + own.ID + " had " + strings.Join(said, ", ")
}
