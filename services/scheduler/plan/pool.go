package plan

import (
	"cmp"
	"maps"
	"slices"

	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

// pool holds the slots during one pass. Those of each kind are counted.
type pool struct {
	nodes       map[ident.NodeID]Node
	names       []ident.NodeID // in the order of the host list, then by name
	kinds       []kind
	index       map[kind]int // of kinds
	free        []slot       // in the order of names
	freeOf      []int        // how many of them
	size        []int        // slots of usable nodes
	couldHave   []int        // size and the healthy slots of suspected nodes, which may recover
	quarantined []int        // slots of quarantined nodes and quarantined slots, which return in time
	nodeCount   int          // usable nodes

	holders  []ident.JobID // queued jobs for which free slots are kept, in order
	heldFor  []int         // by kind: for which of the holders; -1 = for none
	any      *request      // of jobs that ask for nothing
	requests map[spec.GPU]*request
}

// slot is a free one.
type slot struct {
	ident.Place
	kind int
}

// newPool returns a pool that knows no free slots yet.
func (t *transition) newPool() pool {
	p := pool{nodes: t.s.Nodes, names: slices.SortedFunc(maps.Keys(t.s.Nodes), t.s.byHost)}
	p.addKinds()
	n := len(p.kinds)
	p.freeOf, p.size, p.couldHave, p.quarantined = make([]int, n), make([]int, n), make([]int, n), make([]int, n)
	p.heldFor = slices.Repeat([]int{-1}, n)
	return p
}

// fill counts the slots, and finds those that are free.
func (p *pool) fill(taken map[ident.NodeID][]bool) {
	for _, id := range p.names {
		n := p.nodes[id]
		if !n.keepsPlaces() {
			continue
		}
		if n.schedulable() {
			p.nodeCount++
		}
		used := taken[id]
		p.eachSlot(n, func(s ident.Slot, kind int) {
			if n.Quarantine != nil || n.quarantined(s) != nil {
				p.quarantined[kind]++
				return
			}
			p.couldHave[kind]++
			if !n.schedulable() {
				return
			}
			p.size[kind]++
			if used == nil || !used[s] {
				p.add(ident.Place{Node: id, Slot: s}, kind)
			}
		})
	}
}

func (p *pool) add(place ident.Place, kind int) {
	p.free = append(p.free, slot{place, kind})
	p.freeOf[kind]++
}

// returned adds places that were a job's.
func (t *transition) returned(p *pool, places []ident.Place) {
	for _, place := range places {
		if n := t.s.Nodes[place.Node]; n.schedulable() {
			p.add(place, p.kindAt(n, place.Slot))
		}
	}
	slices.SortFunc(p.free, func(a, b slot) int { return cmp.Or(t.s.byHost(a.Node, b.Node), cmp.Compare(a.Slot, b.Slot)) })
}

// available returns how many free slots will do that are kept for no other job.
func (p *pool) available(r *request) (n int) {
	for kind, c := range p.freeOf {
		if r.fits[kind] && p.heldFor[kind] < 0 {
			n += c
		}
	}
	return n
}

// take takes the first n of the available slots.
func (p *pool) take(r *request, n int) (places []ident.Place) {
	n = min(n, p.available(r))
	if n <= 0 {
		return nil
	}
	at := 0 // the slot after the last one that is taken
	var left []slot
	for ; len(places) < n; at++ {
		if s := p.free[at]; r.fits[s.kind] && p.heldFor[s.kind] < 0 {
			places = append(places, s.Place)
			p.freeOf[s.kind]--
		} else {
			left = append(left, s)
		}
	}
	copy(p.free[at-len(left):], left)
	p.free = p.free[at-len(left):]
	return places
}

// hold keeps the free slots that will do for a queued job, unless they are kept for an earlier one.
// It reports whether there are slots left that are kept for none.
func (p *pool) hold(r *request, id ident.JobID) bool {
	last := len(p.holders)
	for kind := range p.heldFor {
		if r.fits[kind] && p.heldFor[kind] < 0 {
			p.heldFor[kind] = last
			if len(p.holders) == last {
				p.holders = append(p.holders, id)
			}
		}
	}
	return slices.Contains(p.heldFor, -1)
}

// holds reports whether slots are kept for a job.
func (p *pool) holds(id ident.JobID) bool { return slices.Contains(p.holders, id) }

// headOf returns the job that the others of a request are behind: the last one for which slots that
// will do are kept; empty = there is none.
func (p *pool) headOf(r *request) (head ident.JobID) {
	last := -1
	for kind, of := range p.heldFor {
		if r.fits[kind] && of > last {
			last, head = of, p.holders[of]
		}
	}
	return head
}

// heldFrom returns how many free slots that would do are kept for other jobs than this one, and for
// which.
func (p *pool) heldFrom(r *request, id ident.JobID) (n int, others []ident.JobID) {
	for kind, of := range p.heldFor {
		if r.fits[kind] && of >= 0 && p.holders[of] != id && p.freeOf[kind] > 0 {
			n += p.freeOf[kind]
			if !slices.Contains(others, p.holders[of]) {
				others = append(others, p.holders[of])
			}
		}
	}
	return n, others
}

// most returns how many slots a job could ever get with the present nodes.
func (p *pool) most(r *request) int { return r.total(p.couldHave) + r.total(p.quarantined) }
