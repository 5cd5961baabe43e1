package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// pool is the slots of one pass.
type pool struct {
	nodes map[events.NodeID]Node
	names []events.NodeID // in the order of the host list, then by name
	free  []events.Place  // in the order of names
	size  int             // slots of usable nodes
	could int             // with those of suspected nodes, which may well come back
	later int             // slots in quarantine, which come back in time
	count int             // usable nodes
	said  string          // what room says, once all is given out
}

// change is what one pass does to one job.
type change struct {
	before  []events.Place
	reasons []string
	gone    []events.NodeID
}

// plan gives the slots out by the rules of the package comment and tells what changed. Jobs that are queued cost a look each, and
// no fact is published about them.
func (t *turn) plan() {
	before := t.s.View
	if len(t.s.Queue) == 0 {
		t.s.View.Queue, t.s.View.Head, t.s.View.Capacity, t.s.View.MaxSlots = nil, "", "", 0
		return
	}
	changes := map[events.JobID]*change{} // of placed jobs
	taken := map[events.NodeID][]bool{}   // by slot
	for i := range t.s.Queue {
		j := &t.s.Queue[i]
		if !j.Placed {
			continue
		}
		c := &change{before: t.s.View.Jobs[j.ID].Places}
		changes[j.ID] = c
		for _, p := range t.keep(*j, c) {
			if taken[p.Node] == nil {
				taken[p.Node] = make([]bool, t.s.Nodes[p.Node].Slots)
			}
			taken[p.Node][p.Slot] = true
		}
	}
	p := t.pool(taken)
	t.placed(func(j *Job, row events.PlacementView) { // rule 2
		t.take(&p, j, changes[j.ID], row.Workers.Min-len(row.Places))
	})
	holder := t.gangs(&p, changes)
	if holder == "" { // rule 4
		t.placed(func(j *Job, row events.PlacementView) {
			t.take(&p, j, changes[j.ID], row.Workers.Max-len(row.Places))
		})
	}
	t.placed(func(j *Job, row events.PlacementView) { t.report(&p, j, row, changes[j.ID], holder) })
	t.queue(&p, before, holder)
}

// placed calls fn for every placed job, oldest first.
func (t *turn) placed(fn func(*Job, events.PlacementView)) {
	for i := range t.s.Queue {
		if j := &t.s.Queue[i]; j.Placed {
			fn(j, t.s.View.Jobs[j.ID])
		}
	}
}

// keep is rule 1; it returns the places that the job keeps.
func (t *turn) keep(j Job, c *change) []events.Place {
	row := t.s.View.Jobs[j.ID]
	kept := make([]events.Place, 0, len(row.Places))
	var why []string
	for _, p := range row.Places {
		n := t.s.Nodes[p.Node]
		reason := ""
		switch {
		case n.Gone == Lost, slices.Contains(t.lost, p.Node):
			reason = fmt.Sprintf("%s is lost", p.Node)
			if !slices.Contains(c.gone, p.Node) {
				c.gone = append(c.gone, p.Node)
			}
		case n.Gone == Left:
			reason = fmt.Sprintf("%s has left", p.Node)
		case n.Draining:
			reason = fmt.Sprintf("%s is draining", p.Node)
		case n.Excluded != "":
			reason = fmt.Sprintf("%s may not be used: %s", p.Node, n.Excluded)
		case p.Slot < 0 || int(p.Slot) >= n.Slots:
			reason = fmt.Sprintf("%s has only %s now", p.Node, slots(n.Slots))
		case n.benched(p.Slot) != nil:
			reason = fmt.Sprintf("%s is benched: %s", p, n.benched(p.Slot).Reason)
		default:
			kept = append(kept, p)
			continue
		}
		if !slices.Contains(why, reason) {
			why = append(why, reason)
		}
	}
	c.reasons = append(c.reasons, why...)
	if len(kept) > row.Workers.Max {
		slices.SortStableFunc(kept, func(a, b events.Place) int { return t.s.byHost(a.Node, b.Node) })
		kept = kept[:row.Workers.Max]
		slices.SortFunc(kept, compare)
		c.reasons = append(c.reasons, fmt.Sprintf("scaled down to %d:%d", row.Workers.Min, row.Workers.Max))
	}
	row.Places = kept
	t.s.View.Jobs[j.ID] = row
	return kept
}

// pool lists the free slots.
func (t *turn) pool(taken map[events.NodeID][]bool) pool {
	p := pool{nodes: t.s.Nodes, names: slices.SortedFunc(maps.Keys(t.s.Nodes), t.s.byHost)}
	for _, id := range p.names {
		n := t.s.Nodes[id]
		switch {
		case !n.keeps():
			continue
		case n.Quarantine != nil:
			p.later += n.Slots
			continue
		}
		p.could += n.sound()
		p.later += n.Slots - n.sound()
		if !n.usable() {
			continue
		}
		p.size += n.sound()
		p.count++
		used := taken[id]
		for i := range n.Slots {
			if (used == nil || !used[i]) && n.benched(events.Slot(i)) == nil {
				p.free = append(p.free, events.Place{Node: id, Slot: events.Slot(i)})
			}
		}
	}
	return p
}

// gangs is rule 3; it returns the job that holds back the others, if one does.
func (t *turn) gangs(p *pool, changes map[events.JobID]*change) (holder events.JobID) {
	for i := range t.s.Queue {
		j := &t.s.Queue[i]
		if j.Placed || !j.Submitted {
			continue
		}
		least := t.s.View.Jobs[j.ID].Workers.Min
		switch {
		case least <= len(p.free):
			j.Placed = true
			changes[j.ID] = &change{reasons: []string{"placed"}}
			t.take(p, j, nil, least)
		case least <= p.could:
			return j.ID
		}
	}
	return ""
}

// take gives a job up to n more places.
func (t *turn) take(p *pool, j *Job, c *change, n int) {
	n = min(n, len(p.free))
	if n <= 0 {
		return
	}
	row := t.s.View.Jobs[j.ID]
	row.Places = append(slices.Clone(row.Places), p.free[:n]...)
	slices.SortFunc(row.Places, compare)
	t.s.View.Jobs[j.ID] = row
	p.free = p.free[n:]
	if c != nil && !slices.Contains(c.reasons, "placed") && !slices.Contains(c.reasons, "got more slots") {
		c.reasons = append(c.reasons, "got more slots")
	}
}

func compare(a, b events.Place) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

// report tells what changed for a placed job, and why it has less than it wants.
func (t *turn) report(p *pool, j *Job, row events.PlacementView, c *change, holder events.JobID) {
	if !j.Submitted {
		return
	}
	wanted := j.Told != row.Workers
	if wanted && len(c.reasons) == 0 {
		c.reasons = append(c.reasons, fmt.Sprintf("scaled to %d:%d", row.Workers.Min, row.Workers.Max))
	}
	if wanted || len(c.gone) > 0 || !slices.Equal(c.before, row.Places) {
		first := j.Told == spec.Workers{}
		j.Told = row.Workers
		t.set(j, row, c, first)
	}
	row.Waiting = p.lacks(row, holder)
	t.s.View.Jobs[j.ID] = row
}

// queue brings the view of those who wait up to date. Only the first of them, and who holds the others back, say with figures what is
// in their way: that may change with every job that ends. The others are told once that they are queued, so what a job costs does
// not grow with the length of the queue.
func (t *turn) queue(p *pool, before events.PoolView, holder events.JobID) {
	v := &t.s.View
	v.Head, v.Capacity, v.MaxSlots = holder, p.room(), p.could+p.later
	v.Queue = make([]events.JobID, 0, len(t.s.Queue)-len(v.Jobs)/2)
	for i := range t.s.Queue {
		j := &t.s.Queue[i]
		if j.Placed || !j.Submitted {
			continue
		}
		v.Queue = append(v.Queue, j.ID)
		first := len(v.Queue) == 1
		row := v.Jobs[j.ID]
		if row.Waiting != "" && !first && j.ID != holder && j.ID != before.Head && !t.s.touched[j.ID] {
			continue
		}
		waiting := p.waits(row.Workers.Min, first || j.ID == holder)
		if waiting == row.Waiting {
			continue
		}
		row.Waiting = waiting
		v.Jobs[j.ID] = row
		t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(j.ID), Body: events.PlacementWaiting{
			Job: j.ID, Reason: waiting, Need: row.Workers.Min, Free: len(p.free),
		}})
	}
}

// set tells the job's places. Its specification, which the fact has as well, is added when it is published: the pool of ten thousand
// jobs must not hold it.
func (t *turn) set(j *Job, row events.PlacementView, c *change, first bool) {
	reason, trace := strings.Join(c.reasons, "; "), t.traceOf(j, first)
	t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(j.ID), Trace: trace, Body: events.PlacementSet{
		Job: j.ID, Places: slices.Clone(row.Places), Workers: row.Workers, Reason: reason, LostNodes: c.gone, Hosts: t.s.hosts(row.Places),
	}})
	switch {
	case trace != "":
		t.span(j.ID, trace, reason, t.now)
	case len(c.gone) > 0:
		j.Incident.Lost = &Loss{Nodes: c.gone, Reason: reason, At: t.now}
	}
}
