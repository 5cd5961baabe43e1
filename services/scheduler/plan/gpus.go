package plan

import (
	"slices"

	"github.com/regroup-io/regroup/events/devices"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// kind is what a slot has. Slots of one kind are alike for every job.
type kind struct {
	own    bool // it has a GPU of its own
	model  string
	memory int // MiB
}

// noGPU is the index of the kind of slots that have no GPU of their own.
const noGPU = 0

// kindOf returns the kind of the slots with these GPUs.
func kindOf(g devices.Slots) kind { return kind{true, g.Model, g.MemoryMiB} }

// eachSlot calls fn for the slots of a node, in order.
func (p *pool) eachSlot(n Node, fn func(ident.Slot, int)) {
	slot := 0
	give := func(count, kind int) {
		for range min(max(0, count), n.Slots-slot) {
			fn(ident.Slot(slot), kind)
			slot++
		}
	}
	for _, g := range n.GPUs {
		give(g.Count, p.index[kindOf(g)])
	}
	give(n.Slots, noGPU)
}

// kindAt returns the kind of a slot of a node.
func (p *pool) kindAt(n Node, s ident.Slot) int {
	at := int(s)
	for _, g := range n.GPUs {
		if at -= max(0, g.Count); at < 0 {
			return p.index[kindOf(g)]
		}
	}
	return noGPU
}

// addKinds finds the kinds of the slots of all nodes.
func (p *pool) addKinds() {
	p.kinds, p.index = []kind{noGPU: {}}, map[kind]int{}
	for _, id := range p.names {
		if n := p.nodes[id]; n.Gone == "" {
			for _, g := range n.GPUs {
				k := kindOf(g)
				if _, known := p.index[k]; !known {
					p.index[k] = len(p.kinds)
					p.kinds = append(p.kinds, k)
				}
			}
		}
	}
}

// request is what jobs ask for that may have the same slots.
type request struct {
	gpu          *spec.GPU // nil = nothing
	fits         []bool    // by kind
	described    bool      // the view says what there is
	capacityText string    // cached result of capacity once all slots are assigned
}

// request returns what a job asks for.
func (p *pool) request(g *spec.GPU) *request {
	var key spec.GPU
	if g == nil {
		if p.any == nil {
			p.any = &request{fits: slices.Repeat([]bool{true}, len(p.kinds))}
		}
		return p.any
	}
	key = *g
	if r := p.requests[key]; r != nil {
		return r
	}
	r := &request{gpu: &key, fits: make([]bool, len(p.kinds))}
	for i, k := range p.kinds {
		r.fits[i] = k.own && key.Matches(k.model, k.memory)
	}
	if p.requests == nil {
		p.requests = map[spec.GPU]*request{}
	}
	p.requests[key] = r
	return r
}

// fitsNode reports whether any slot of a node will do.
func (p *pool) fitsNode(r *request, n Node) bool {
	if r.gpu == nil {
		return true
	}
	return slices.ContainsFunc(n.GPUs, func(g devices.Slots) bool { return g.Count > 0 && r.fits[p.index[kindOf(g)]] })
}

// total returns how many slots of a count by kind will do.
func (r *request) total(count []int) (n int) {
	for kind, c := range count {
		if r.fits[kind] {
			n += c
		}
	}
	return n
}
