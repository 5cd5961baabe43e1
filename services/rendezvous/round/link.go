package round

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	linkStrikes  = 2                // generations without a good step after which a pair's link counts as cut
	linkHold     = 10 * time.Second // for which one side is left out then, twice as long each time
	linkHoldMost = 2 * time.Minute
)

// Pair is the link between two nodes whose members could not reach each other. Which of the two is at fault nobody can
// tell: both came back, so both live, and everybody else may reach them.
type Pair struct {
	Nodes   [2]events.NodeID  `json:"nodes"`          // in order
	Strikes int               `json:"strikes"`        // generations that broke here since the last good one with both
	Last    events.Generation `json:"last"`           // newest of them
	Out     events.NodeID     `json:"out,omitempty"`  // while it is cut: the one that is left out; empty = too few would be left
	Until   time.Time         `json:"until,omitzero"` // cut until then
	Hold    spec.Duration     `json:"hold,omitempty"` // for how long it was cut the last time
}

func (p *Pair) cut() bool { return !p.Until.IsZero() }

// heldBack tells whether a seat is left out because its node cannot reach another one.
func (s *State) heldBack(x *Seat) bool {
	for i := range s.Links {
		if p := &s.Links[i]; p.cut() && p.Out == x.Place.Node {
			return true
		}
	}
	return false
}

// suspectLink notes whose connection broke. One direction is enough: the first failure ends a generation, so that the
// other side seldom comes to say the same.
func (t *turn) suspectLink(j events.MemberJoin) {
	if j.Left != t.View.Generation || t.restart() {
		return
	}
	for _, b := range j.Broken {
		b = [2]int{min(b[0], b[1]), max(b[0], b[1])}
		if b[0] < 0 || b[1] >= len(t.View.Members) || slices.Contains(t.Broken, b) {
			continue
		}
		if t.View.Members[b[0]].Place.Node != t.View.Members[b[1]].Place.Node {
			t.Broken = append(t.Broken, b)
		}
	}
}

// links charges broken connections to the link, leaves nodes out and lets them in again.
func (t *turn) links() {
	t.Links = slices.DeleteFunc(t.Links, func(p Pair) bool { return len(t.seatsOn(p.Nodes[0])) == 0 || len(t.seatsOn(p.Nodes[1])) == 0 })
	t.retry()
	if !t.open() {
		return
	}
	t.strike()
	if slices.ContainsFunc(t.Links, func(p Pair) bool { return p.cut() }) {
		t.leaveOut()
	}
}

// retry ends cuts that have lasted long enough: who was left out comes in by a planned change, and one more generation
// that breaks there cuts the link again.
func (t *turn) retry() {
	for i := range t.Links {
		p := &t.Links[i]
		if !p.cut() || t.now.Before(p.Until) {
			continue
		}
		out := p.Out
		p.Out, p.Until = "", zeroTime
		seats := t.seatsOn(out)
		if !t.open() && slices.ContainsFunc(seats, func(x Seat) bool { return t.waitsOutside(&x) }) {
			t.grow(events.Cause{
				Kind: events.CauseGrow, Node: out, Rank: -1,
				Detail: fmt.Sprintf("%s is let in again to see whether it can reach %s", out, p.other(out)),
			})
		}
	}
}

func (p *Pair) other(n events.NodeID) events.NodeID {
	if p.Nodes[0] == n {
		return p.Nodes[1]
	}
	return p.Nodes[0]
}

// waitsOutside tells whether a seat has joined and may be taken in.
func (t *turn) waitsOutside(x *Seat) bool {
	return x.State == joined && !x.Cold && t.rankOf(x.Place, x.Incarnation) < 0 && !t.heldBack(x)
}

// strike charges what broke in a generation that made no good step to the link, once both ends have come back. If one of
// them has died or stays silent, it was not the link.
func (t *turn) strike() {
	if t.Good >= t.View.Generation {
		return
	}
	for _, b := range t.Broken {
		x, y := t.memberAt(b[0]), t.memberAt(b[1])
		if x == nil || y == nil || x.State != joined || y.State != joined {
			continue
		}
		p := t.pair(x.Place.Node, y.Place.Node)
		if p.Last == t.View.Generation {
			continue
		}
		p.Last = t.View.Generation
		if p.Strikes++; p.Strikes >= linkStrikes {
			p.Strikes = linkStrikes - 1
			p.Hold = min(max(2*p.Hold, spec.Duration(linkHold)), spec.Duration(linkHoldMost))
			p.Until = t.now.Add(p.Hold.D())
		}
	}
}

// pair returns what is known of the link between two nodes.
func (t *turn) pair(a, b events.NodeID) *Pair {
	nodes := [2]events.NodeID{min(a, b), max(a, b)}
	i, ok := slices.BinarySearchFunc(t.Links, nodes, func(p Pair, n [2]events.NodeID) int {
		return cmp.Or(cmp.Compare(p.Nodes[0], n[0]), cmp.Compare(p.Nodes[1], n[1]))
	})
	if !ok {
		t.Links = slices.Insert(t.Links, i, Pair{Nodes: nodes})
	}
	return &t.Links[i]
}

// leaveOut chooses one side of each cut link, if enough members are left without them; else the round goes on trying.
func (t *turn) leaveOut() {
	out, left := t.sides(), 0
	for i := range t.Seats {
		x := &t.Seats[i]
		if (x.State == member || x.State == joined) && !x.Leaving && t.rankOf(x.Place, x.Incarnation) >= 0 && !slices.Contains(out, x.Place.Node) {
			left++
		}
	}
	if left < max(t.Workers.Min, 1) {
		out = nil
	}
	var newest *Pair
	for i := range t.Links {
		p := &t.Links[i]
		if !p.cut() {
			continue
		}
		before := p.Out
		p.Out = ""
		for _, n := range p.Nodes {
			if slices.Contains(out, n) {
				p.Out = n
			}
		}
		if p.Out != "" && p.Out != before && (newest == nil || p.Last > newest.Last) {
			newest = p
		}
	}
	if newest != nil {
		t.View.Cause = t.linkCause(newest)
	}
}

func (t *turn) linkCause(p *Pair) events.Cause {
	c := events.Cause{Kind: events.CauseLink, Node: p.Out, Rank: -1, Detail: fmt.Sprintf(
		"%s and %s cannot reach each other; %s is left out for %s", p.Nodes[0], p.Nodes[1], p.Out, p.Hold.D())}
	if r, ok := t.firstRank(p.Out); ok {
		c.Rank = r
	}
	return c
}

// sides are nodes without which no cut link is left, chosen so that many members stay: again and again the node whose
// seats cost the least per link; of equals the less senior, then the last by name.
func (t *turn) sides() []events.NodeID {
	var open []*Pair
	for i := range t.Links {
		if t.Links[i].cut() {
			open = append(open, &t.Links[i])
		}
	}
	var out []events.NodeID
	for len(open) > 0 {
		degree := map[events.NodeID]int{}
		var nodes []events.NodeID
		for _, p := range open {
			for _, n := range p.Nodes {
				if degree[n]++; degree[n] == 1 {
					nodes = append(nodes, n)
				}
			}
		}
		worst := slices.MaxFunc(nodes, func(a, b events.NodeID) int {
			return cmp.Or(
				cmp.Compare(degree[a]*len(t.seatsOn(b)), degree[b]*len(t.seatsOn(a))),
				cmp.Compare(t.since(a), t.since(b)),
				cmp.Compare(a, b),
			)
		})
		out = append(out, worst)
		open = slices.DeleteFunc(open, func(p *Pair) bool { return p.Nodes[0] == worst || p.Nodes[1] == worst })
	}
	return out
}

// since is a node's seniority; one that has none is the least senior.
func (t *turn) since(n events.NodeID) events.Generation {
	if g, ok := t.Seniority[n]; ok {
		return g
	}
	return t.View.Generation + 1
}

// proven forgets what was charged to links that a good generation needed.
func (t *turn) proven() {
	if len(t.Links) == 0 || t.Good != t.View.Generation {
		return
	}
	t.Links = slices.DeleteFunc(t.Links, func(p Pair) bool {
		_, a := t.firstRank(p.Nodes[0])
		_, b := t.firstRank(p.Nodes[1])
		return a && b
	})
}

// aside are the members of the generation that is over who have come back and are left out of the next: nobody waits for them,
// and nobody needs to replace them.
func (t *turn) aside() events.Places {
	var out events.Places
	if len(t.Links) == 0 {
		return nil
	}
	for i := range t.Seats {
		if x := &t.Seats[i]; x.State == joined && t.heldBack(x) && t.rankOf(x.Place, x.Incarnation) >= 0 {
			out = append(out, x.Place)
		}
	}
	return out
}

// linksDeadline is when the first node that is left out is let in again.
func (s *State) linksDeadline() (d time.Time) {
	for i := range s.Links {
		if p := &s.Links[i]; p.cut() && (d.IsZero() || p.Until.Before(d)) {
			d = p.Until
		}
	}
	return d
}

// cutLinks is what people see of it.
func (s *State) cutLinks() (out []events.LinkPartition) {
	for i := range s.Links {
		if p := &s.Links[i]; p.cut() {
			out = append(out, events.LinkPartition{Nodes: p.Nodes, Excluded: p.Out, Until: p.Until})
		}
	}
	return out
}
