package sim

import (
	"math/rand/v2"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/scheduler/plan"
)

// models are those of the GPUs of all nodes. Neighbouring slots, and the same ones of neighbouring
// nodes, have different ones.
var models = [2]string{"Even", "Odd"}

func modelOf(n ident.NodeID, s int) string { return models[(int(n[len(n)-1]-'a')+s)%len(models)] }

// gpus are those that the agent of a node finds.
func (n *node) gpus() (all []devices.GPU) {
	for s := range n.offered() {
		all = append(all, devices.GPU{Model: modelOf(n.id, s)})
	}
	return all
}

// asksFor returns the GPU that a job asks for by number: 0 = none, 1 = any, then one of each model.
func asksFor(number int) *spec.GPU {
	switch number {
	case 0:
		return nil
	case 1:
		return &spec.GPU{}
	}
	return &spec.GPU{Model: models[number-2]}
}

// drawGPUs has the jobs of one seed in four ask for GPUs, if the nodes have as many as they need.
func drawGPUs(sc *scenario) {
	if sc.seed%4 != 1 {
		return
	}
	r := rand.New(rand.NewPCG(sc.seed, 13))
	for i := range sc.jobs {
		j, number := &sc.jobs[i], r.IntN(2+len(models))
		have := 0
		for node, slots := range sc.nodes {
			for s := range slots {
				if asks := asksFor(number); asks != nil && asks.Matches(modelOf(nodeName(node), s), 0) {
					have++
				}
			}
		}
		if j.participants == nil && j.workers.Min < have { // one slot may be in quarantine
			j.gpu = number
		}
	}
}

// freeSlots counts the slots that are unassigned and open for new work that asks for a GPU.
func freeSlots(s plan.State, asks *spec.GPU) (free int) {
	taken := map[ident.Place]bool{}
	for _, row := range s.View.Jobs {
		for _, p := range row.Places {
			taken[p] = true
		}
	}
	for id, n := range s.Nodes {
		if n.Gone != "" || n.Draining || n.Excluded != "" || n.Suspected || n.Quarantine != nil {
			continue
		}
		for _, q := range n.QuarantinedSlots {
			taken[ident.Place{Node: id, Slot: q.Slot}] = true
		}
		for i := range n.Slots {
			if !taken[ident.Place{Node: id, Slot: ident.Slot(i)}] && (asks == nil || asks.Matches(modelOf(id, i), 0)) {
				free++
			}
		}
	}
	return free
}
