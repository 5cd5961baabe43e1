package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/leases"
	"github.com/regroup-io/regroup/events/spec"
)

// change is what one pass changes for one job.
type change struct {
	before    []ident.Place
	reasons   []string
	lostNodes []ident.NodeID
	returning bool // places were lost that may be back soon: of a lost node, or in quarantine
}

// scaled gives a reason to a change that has none yet: what the job wants is another number.
func (c *change) scaled(w spec.Workers) {
	if len(c.reasons) == 0 {
		c.reasons = append(c.reasons, fmt.Sprintf("scaled to %d:%d", w.Min, w.Max))
	}
}

// plan assigns the slots by the rules of the package comment and publishes what changed. A queued
// job is only examined; no fact is published about it.
func (t *transition) plan() {
	if len(t.s.Queue) == 0 {
		t.s.View = events.PoolView{Jobs: t.s.View.Jobs}
		return
	}
	p := t.newPool()
	changes := map[ident.JobID]*change{} // of placed jobs
	taken := map[ident.NodeID][]bool{}   // by slot
	for i := range t.s.Queue {
		j := &t.s.Queue[i]
		if !j.Placed {
			continue
		}
		c := &change{before: t.s.View.Jobs[j.ID].Places}
		changes[j.ID] = c
		for _, kept := range t.retain(&p, *j, c) {
			if taken[kept.Node] == nil {
				taken[kept.Node] = make([]bool, t.s.Nodes[kept.Node].Slots)
			}
			taken[kept.Node][kept.Slot] = true
		}
	}
	p.fill(taken)
	for again := true; again; { // rule 2
		t.placed(func(j *Job, row events.PlacementView) {
			t.assign(&p, j, changes[j.ID], row.Workers.Min-len(row.Places))
		})
		again = t.giveBack(&p, changes)
	}
	t.admit(&p, changes)
	t.placed(func(j *Job, row events.PlacementView) { // rule 4
		has := len(row.Places)
		t.assign(&p, j, changes[j.ID], j.whole(min(row.Workers.Max, has+p.available(p.request(j.GPU))))-has)
	})
	t.placed(func(j *Job, row events.PlacementView) { t.publishChange(&p, j, row, changes[j.ID]) })
	t.updateQueue(&p)
}

// placed calls fn for every placed job, oldest first.
func (t *transition) placed(fn func(*Job, events.PlacementView)) {
	for i := range t.s.Queue {
		if j := &t.s.Queue[i]; j.Placed {
			fn(j, t.s.View.Jobs[j.ID])
		}
	}
}

// giveBack takes the places of a gang that cannot run with them (rule 2) and puts it back into the
// queue, where it has its turn before all younger jobs. It reports whether there was one; of
// several the youngest is first, since an older one may run with what it gives back.
func (t *transition) giveBack(p *pool, changes map[ident.JobID]*change) bool {
	var youngest *Job
	t.placed(func(j *Job, row events.PlacementView) {
		if len(row.Places) >= row.Workers.Min {
			j.Returning = false
			return
		}
		j.Returning = j.Returning || changes[j.ID].returning
		if j.Restart && j.Submitted && !j.Returning {
			youngest = j
		}
	})
	if youngest == nil {
		return false
	}
	j := youngest
	row, c := t.s.View.Jobs[j.ID], changes[j.ID]
	c.scaled(row.Workers)
	c.reasons = append(c.reasons, fmt.Sprintf("%d of at least %s left: all wait for the rest", len(row.Places), slots(row.Workers.Min)))
	t.returned(p, row.Places)
	row.Places, row.Waiting = nil, ""
	t.s.View.Jobs[j.ID] = row
	t.publishPlacement(j, row, c)
	j.Placed = false
	t.touch(j.ID)
	return true
}

// retain is rule 1. It returns the places that the job keeps.
func (t *transition) retain(pool *pool, j Job, c *change) []ident.Place {
	row, asks := t.s.View.Jobs[j.ID], pool.request(j.GPU)
	kept := make([]ident.Place, 0, len(row.Places))
	for _, p := range row.Places {
		n := t.s.Nodes[p.Node]
		reason := ""
		switch {
		case n.Gone == Lost, t.lost[p.Node] != "":
			reason, c.returning = fmt.Sprintf("%s is lost", p.Node), true
			if !slices.Contains(c.lostNodes, p.Node) {
				c.lostNodes = append(c.lostNodes, p.Node)
			}
		case n.Gone == Left:
			reason = fmt.Sprintf("%s has left", p.Node)
		case n.Draining:
			reason = fmt.Sprintf("%s is draining", p.Node)
		case n.Excluded != "":
			reason = fmt.Sprintf("%s may not be used: %s", p.Node, n.Excluded)
		case p.Slot < 0 || int(p.Slot) >= n.Slots:
			reason = fmt.Sprintf("%s has only %s now", p.Node, slots(n.Slots))
		case !asks.fits[pool.kindAt(n, p.Slot)]:
			reason = fmt.Sprintf("%s has other GPUs now, and each worker needs %s", p.Node, *j.GPU)
		case n.quarantined(p.Slot) != nil:
			reason, c.returning = fmt.Sprintf("%s is quarantined: %s", p, n.quarantined(p.Slot).Reason), true
		default:
			kept = append(kept, p)
			continue
		}
		if !slices.Contains(c.reasons, reason) {
			c.reasons = append(c.reasons, reason)
		}
	}
	if len(kept) > row.Workers.Max {
		slices.SortStableFunc(kept, func(a, b ident.Place) int { return t.s.byHost(a.Node, b.Node) })
		kept = kept[:row.Workers.Max]
		slices.SortFunc(kept, ident.Place.Compare)
		c.reasons = append(c.reasons, fmt.Sprintf("scaled down to %d:%d", row.Workers.Min, row.Workers.Max))
	}
	row.Places = kept
	t.s.View.Jobs[j.ID] = row
	return kept
}

// admit is rule 3. The slots that a job waits for are kept from later ones.
func (t *transition) admit(p *pool, changes map[ident.JobID]*change) {
	for i := range t.s.Queue {
		j := &t.s.Queue[i]
		if j.Placed || !j.Submitted {
			continue
		}
		least, asks := t.s.View.Jobs[j.ID].Workers.Min, p.request(j.GPU)
		switch {
		case least <= p.available(asks):
			j.Placed = true
			changes[j.ID] = &change{reasons: []string{"placed"}}
			t.assign(p, j, nil, least)
		case least <= asks.total(p.couldHave):
			if !p.hold(asks, j.ID) {
				return
			}
		}
	}
}

// assign gives a job n of the slots that will do, or as many as there are.
func (t *transition) assign(p *pool, j *Job, c *change, n int) {
	got := p.take(p.request(j.GPU), n)
	if len(got) == 0 {
		return
	}
	row := t.s.View.Jobs[j.ID]
	row.Places = append(slices.Clone(row.Places), got...)
	slices.SortFunc(row.Places, ident.Place.Compare)
	t.s.View.Jobs[j.ID] = row
	if c != nil && !slices.Contains(c.reasons, "placed") && !slices.Contains(c.reasons, "got more slots") {
		c.reasons = append(c.reasons, "got more slots")
	}
}

// publishChange publishes what changed for a placed job, and why it has fewer slots than it wants.
func (t *transition) publishChange(p *pool, j *Job, row events.PlacementView, c *change) {
	if !j.Submitted {
		return
	}
	wanted := j.PublishedWorkers != row.Workers
	if wanted {
		c.scaled(row.Workers)
	}
	if wanted || len(c.lostNodes) > 0 || !slices.Equal(c.before, row.Places) {
		t.publishPlacement(j, row, c)
	}
	row.Waiting = p.shortfall(j, row)
	t.s.View.Jobs[j.ID] = row
}

// publishPlacement publishes the job's places. The specification, which is part of the fact, is
// added on publication: the pool of ten thousand jobs must not hold it.
func (t *transition) publishPlacement(j *Job, row events.PlacementView, c *change) {
	first := j.PublishedWorkers == spec.Workers{}
	j.PublishedWorkers = row.Workers
	reason, trace := strings.Join(c.reasons, "; "), t.traceOf(j, first)
	var ends leases.Ends
	var lost []ident.Incarnation
	for _, n := range c.lostNodes {
		ends = ends.Later(t.s.Nodes[n].LeaseEnds)
		lost = append(lost, cmp.Or(t.lost[n], t.s.Nodes[n].Incarnation))
	}
	t.d.Facts = append(t.d.Facts, events.Fact{Entity: string(j.ID), Trace: trace, Body: events.PlacementSet{
		Job: j.ID, Places: slices.Clone(row.Places), Workers: row.Workers, Reason: reason, LostNodes: c.lostNodes, Hosts: t.s.hosts(row.Places),
		LostAgents: lost, LeaseEnds: ends, Agents: t.s.agents(row.Places),
	}})
	switch {
	case trace != "":
		t.span(j.ID, trace, reason, t.now)
	case len(c.lostNodes) > 0:
		j.Incident.Lost = &Loss{Nodes: c.lostNodes, Reason: reason, At: t.now}
	}
}

// byHost orders nodes as in the host list; nodes that are not in it follow, by name.
func (s *State) byHost(a, b ident.NodeID) int {
	return cmp.Or(cmp.Compare(s.hostOrder(a), s.hostOrder(b)), cmp.Compare(a, b))
}

func (s *State) hostOrder(n ident.NodeID) int {
	if o := s.Nodes[n].Order; o > 0 {
		return o
	}
	return math.MaxInt
}

// hosts returns the nodes of places in the order of the host list; nil = by name.
func (s *State) hosts(places []ident.Place) []ident.NodeID {
	var nodes []ident.NodeID
	for _, p := range places {
		nodes = append(nodes, p.Node)
	}
	nodes = slices.Compact(nodes) // places are sorted
	if slices.IsSortedFunc(nodes, s.byHost) {
		return nil
	}
	slices.SortFunc(nodes, s.byHost)
	return nodes
}

// agents returns the newest agents of the nodes of places.
func (s *State) agents(places []ident.Place) (agents []ident.Incarnation) {
	for i, p := range places { // sorted
		if i == 0 || places[i-1].Node != p.Node {
			agents = append(agents, s.Nodes[p.Node].Incarnation)
		}
	}
	return agents
}
