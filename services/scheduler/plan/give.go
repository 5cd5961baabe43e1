package plan

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
)

// pool is the slots of one pass.
type pool struct {
	nodes map[events.NodeID]Node
	names []events.NodeID // sorted
	free  []events.Place  // sorted
	size  int             // slots of usable nodes
	could int             // with those of suspected nodes, which may well come back
	later int             // slots in quarantine, which come back in time
	count int             // usable nodes
}

// change is what one pass does to one job.
type change struct {
	before  []events.Place
	reasons []string
	gone    []events.NodeID
}

// plan gives the slots out by the rules of the package comment and tells what changed.
func (t *turn) plan() {
	if len(t.s.Queue) == 0 {
		return
	}
	changes := map[events.JobID]*change{}
	taken := map[events.NodeID][]bool{} // by slot
	for _, j := range t.s.Queue {
		c := &change{before: t.s.View.Jobs[j.ID].Places}
		changes[j.ID] = c
		for _, p := range t.keep(j, c) {
			if taken[p.Node] == nil {
				taken[p.Node] = make([]bool, t.s.Nodes[p.Node].Slots)
			}
			taken[p.Node][p.Slot] = true
		}
	}
	p := t.pool(taken)
	for i := range t.s.Queue { // rule 2
		if j := &t.s.Queue[i]; j.Placed {
			row := t.s.View.Jobs[j.ID]
			t.take(&p, j, changes[j.ID], row.Workers.Min-len(row.Places))
		}
	}
	holder := t.gangs(&p, changes)
	if holder == "" { // rule 4
		for i := range t.s.Queue {
			if j := &t.s.Queue[i]; j.Placed {
				row := t.s.View.Jobs[j.ID]
				t.take(&p, j, changes[j.ID], row.Workers.Max-len(row.Places))
			}
		}
	}
	for i := range t.s.Queue {
		t.report(&p, &t.s.Queue[i], changes[t.s.Queue[i].ID], holder)
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
		kept = kept[:row.Workers.Max]
		c.reasons = append(c.reasons, fmt.Sprintf("scaled down to %d:%d", row.Workers.Min, row.Workers.Max))
	}
	row.Places = kept
	t.s.View.Jobs[j.ID] = row
	return kept
}

// pool lists the free slots.
func (t *turn) pool(taken map[events.NodeID][]bool) pool {
	p := pool{nodes: t.s.Nodes, names: slices.Sorted(maps.Keys(t.s.Nodes))}
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
			changes[j.ID].reasons = append(changes[j.ID].reasons, "placed")
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

// report tells what changed for a job, and why it has less than it wants.
func (t *turn) report(p *pool, j *Job, c *change, holder events.JobID) {
	if !j.Submitted {
		return
	}
	row := t.s.View.Jobs[j.ID]
	waiting := p.waiting(row, j, holder, t.s)
	if j.Placed {
		wanted := j.Told != row.Workers
		if wanted && len(c.reasons) == 0 {
			c.reasons = append(c.reasons, fmt.Sprintf("scaled to %d:%d", row.Workers.Min, row.Workers.Max))
		}
		if wanted || len(c.gone) > 0 || !slices.Equal(c.before, row.Places) {
			first := j.Told == events.Workers{}
			j.Told = row.Workers
			t.set(j, row, c, first)
		}
	} else if waiting != row.Waiting {
		t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(j.ID), Body: events.PlacementWaiting{
			Job: j.ID, Reason: waiting, Need: row.Workers.Min, Free: len(p.free),
		}})
	}
	row.Waiting = waiting
	t.s.View.Jobs[j.ID] = row
}

// set tells the job's places.
func (t *turn) set(j *Job, row events.PlacementView, c *change, first bool) {
	reason, trace := strings.Join(c.reasons, "; "), t.traceOf(j, first)
	t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(j.ID), Trace: trace, Body: events.PlacementSet{
		Job: j.ID, Places: slices.Clone(row.Places), Workers: row.Workers, Spec: j.Spec, Reason: reason, Gone: c.gone,
	}})
	switch {
	case trace != "":
		t.span(j.ID, trace, reason, t.now)
	case len(c.gone) > 0:
		j.Incident.Lost = &Loss{Nodes: c.gone, Reason: reason, At: t.now}
	}
}
