package job

import (
	"testing"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/figures"
	"github.com/regroup-io/regroup/events/ident"
)

// TestTheFiguresOfTheSlowest are those of the GPU of its slot, beside all others of the model.
func TestTheFiguresOfTheSlowest(t *testing.T) {
	node := func(name ident.NodeID, tflops ...float64) events.NodeView {
		n := events.NodeView{Node: name, Slots: len(tflops), Preflight: &figures.Preflight{}}
		for i, v := range tflops {
			id := string(name) + "-" + string(rune('a'+i))
			n.GPUs = append(n.GPUs, devices.GPU{ID: id})
			n.Preflight.GPUs = append(n.Preflight.GPUs, figures.GPU{ID: id, Model: "H100", MatmulTFLOPS: v})
		}
		return n
	}
	nodes := []events.NodeView{node("n1", 650, 655), node("n2", 412, 660), {Node: "n3", Slots: 2}}
	nodes[0].Slots = 1 // and two GPUs
	for at, want := range map[ident.Place]string{
		{Node: "n2", Slot: 0}: "before its first worker n2-a had matrix product 412 TFLOP/s (median of 3 others 655)",
		{Node: "n2", Slot: 2}: "",
		{Node: "n1", Slot: 0}: "",
		{Node: "n3", Slot: 0}: "",
		{Node: "n4", Slot: 0}: "",
	} {
		if got := figuresOf(at, nodes); got != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
}
