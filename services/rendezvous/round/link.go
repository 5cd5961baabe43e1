package round

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
)

const (
	linkFailures = 2                // generations without a good step after which the link between two nodes counts as cut
	linkCutFirst = 10 * time.Second // how long one side is then excluded, doubled each time
	linkCutMax   = 2 * time.Minute
)

// Link is the link between two nodes whose members could not reach each other. Which node is at
// fault is unknown: both have rejoined, so both are alive, and other nodes may reach them.
type Link struct {
	Nodes [2]ident.NodeID `json:"nodes"` // sorted
	// Generations that this link broke since the last good one with both nodes.
	Failures    int              `json:"failures"`
	LastFailure ident.Generation `json:"last_failure"` // the newest of them
	// While the link is cut: the node that is excluded; empty = too few would be left.
	Excluded ident.NodeID  `json:"excluded,omitempty"`
	Until    time.Time     `json:"until,omitzero"`    // the link is cut until then
	CutFor   spec.Duration `json:"cut_for,omitempty"` // duration of the last cut
}

func (p Link) isCut() bool { return !p.Until.IsZero() }

func (p Link) connects(n ident.NodeID) bool { return slices.Contains(p.Nodes[:], n) }

// linkExcluded reports whether a member is excluded because its node cannot reach another one.
func (s *State) linkExcluded(x *Member) bool {
	return slices.ContainsFunc(s.Links, func(p Link) bool { return p.isCut() && p.Excluded == x.Place.Node })
}

// suspectLink records broken connections. A report from one side suffices: the first failure ends
// the generation, so the other side seldom reports it.
func (t *transition) suspectLink(j events.MemberJoin) {
	if j.Left != t.View.Generation || t.restart() {
		return
	}
	for _, b := range j.Broken {
		b = [2]int{min(b[0], b[1]), max(b[0], b[1])}
		if b[0] < 0 || b[1] >= len(t.View.Members) || slices.Contains(t.BrokenConns, b) {
			continue
		}
		if t.View.Members[b[0]].Place.Node != t.View.Members[b[1]].Place.Node {
			t.BrokenConns = append(t.BrokenConns, b)
		}
	}
}

// updateLinks counts broken connections against their links, excludes nodes and readmits them.
func (t *transition) updateLinks() {
	t.Links = slices.DeleteFunc(t.Links, func(p Link) bool { return len(t.membersOn(p.Nodes[0])) == 0 || len(t.membersOn(p.Nodes[1])) == 0 })
	t.restoreLinks()
	if !t.open() {
		return
	}
	t.countLinkFailures()
	if slices.ContainsFunc(t.Links, Link.isCut) {
		t.excludeNodes()
	}
}

// restoreLinks ends cuts that have expired. The excluded node joins by a planned change, and one
// more generation that breaks at the link cuts it again.
func (t *transition) restoreLinks() {
	for i := range t.Links {
		p := &t.Links[i]
		if !p.isCut() || t.now.Before(p.Until) {
			continue
		}
		out, other := p.Excluded, p.Nodes[0]
		if out == other {
			other = p.Nodes[1]
		}
		p.Excluded, p.Until = "", zeroTime
		if slices.ContainsFunc(t.membersOn(out), func(x Member) bool { return t.admissible(&x) }) {
			t.requestGrowth(events.Cause{
				Kind: events.CauseGrow, Node: out, Rank: -1,
				Detail: fmt.Sprintf("%s is let in again to see whether it can reach %s", out, other),
			})
		}
	}
}

// admissible reports whether a member has joined and can be in the next generation.
func (t *transition) admissible(x *Member) bool {
	return x.State == joined && !x.Unsynced && t.rank(x) < 0 && !t.linkExcluded(x)
}

// countLinkFailures counts the broken connections of a generation without a good step against their
// links, once both ends have rejoined. If one end has died or does not rejoin, the link was not the
// cause.
func (t *transition) countLinkFailures() {
	if t.LastGood >= t.View.Generation {
		return
	}
	for _, b := range t.BrokenConns {
		x, y := t.memberOfRank(b[0]), t.memberOfRank(b[1])
		if x == nil || y == nil || x.State != joined || y.State != joined {
			continue
		}
		p := t.link(x.Place.Node, y.Place.Node)
		if p.LastFailure == t.View.Generation {
			continue
		}
		p.LastFailure = t.View.Generation
		if p.Failures++; p.Failures >= linkFailures {
			p.Failures = linkFailures - 1
			p.CutFor = min(max(2*p.CutFor, spec.Duration(linkCutFirst)), spec.Duration(linkCutMax))
			p.Until = t.now.Add(p.CutFor.D())
		}
	}
}

// link returns the record of the link between two nodes, which it creates if needed.
func (t *transition) link(a, b ident.NodeID) *Link {
	nodes := [2]ident.NodeID{min(a, b), max(a, b)}
	i, ok := slices.BinarySearchFunc(t.Links, nodes, func(p Link, n [2]ident.NodeID) int {
		return cmp.Or(cmp.Compare(p.Nodes[0], n[0]), cmp.Compare(p.Nodes[1], n[1]))
	})
	if !ok {
		t.Links = slices.Insert(t.Links, i, Link{Nodes: nodes})
	}
	return &t.Links[i]
}

// excludeNodes excludes one side of each cut link, or no node if too few members would remain.
func (t *transition) excludeNodes() {
	out := t.linkCover()
	left := t.count(func(x *Member) bool { return t.survives(x) && !slices.Contains(out, x.Place.Node) })
	if left < max(t.Workers.Min, 1) {
		out = nil
	}
	var newest *Link
	for i := range t.Links {
		p := &t.Links[i]
		if !p.isCut() {
			continue
		}
		before := p.Excluded
		p.Excluded = ""
		for _, n := range p.Nodes {
			if slices.Contains(out, n) {
				p.Excluded = n
			}
		}
		if p.Excluded != "" && p.Excluded != before && (newest == nil || p.LastFailure > newest.LastFailure) {
			newest = p
		}
	}
	if newest != nil {
		t.View.Cause = t.linkCause(newest)
	}
}

func (t *transition) linkCause(p *Link) events.Cause {
	c := events.Cause{Kind: events.CauseLink, Node: p.Excluded, Rank: -1, Detail: fmt.Sprintf(
		"%s and %s cannot reach each other; %s is left out for %s", p.Nodes[0], p.Nodes[1], p.Excluded, p.CutFor.D())}
	if r, ok := t.firstRank(p.Excluded); ok {
		c.Rank = ident.Rank(r)
	}
	return c
}

// linkCover returns nodes whose exclusion leaves no cut link, chosen greedily to keep many members:
// each time the node with the fewest members per cut link, then the least senior, then the last by
// name.
func (t *transition) linkCover() []ident.NodeID {
	var out []ident.NodeID
	open := slices.DeleteFunc(slices.Clone(t.Links), func(p Link) bool { return !p.isCut() })
	for len(open) > 0 {
		degree := map[ident.NodeID]int{}
		var nodes []ident.NodeID
		for _, p := range open {
			for _, n := range p.Nodes {
				if degree[n]++; degree[n] == 1 {
					nodes = append(nodes, n)
				}
			}
		}
		worst := slices.MaxFunc(nodes, func(a, b ident.NodeID) int {
			return cmp.Or(
				cmp.Compare(degree[a]*len(t.membersOn(b)), degree[b]*len(t.membersOn(a))),
				cmp.Compare(t.seniority(a), t.seniority(b)),
				cmp.Compare(a, b),
			)
		})
		out = append(out, worst)
		open = slices.DeleteFunc(open, func(p Link) bool { return p.connects(worst) })
	}
	return out
}

// seniority returns a node's seniority; a node without one is the least senior.
func (t *transition) seniority(n ident.NodeID) ident.Generation {
	if g, ok := t.Seniority[n]; ok {
		return g
	}
	return t.View.Generation + 1
}

// clearLinkFailures resets links on which a good generation depended.
func (t *transition) clearLinkFailures() {
	if len(t.Links) == 0 || t.LastGood != t.View.Generation {
		return
	}
	t.Links = slices.DeleteFunc(t.Links, func(p Link) bool {
		_, a := t.firstRank(p.Nodes[0])
		_, b := t.firstRank(p.Nodes[1])
		return a && b
	})
}

// excludedPlaces returns the members of the previous generation that have rejoined and are excluded
// from the next. The round does not wait for them, and they need no replacement.
func (t *transition) excludedPlaces() ident.Places {
	return t.places(func(x *Member) bool { return x.State == joined && t.linkExcluded(x) && t.rank(x) >= 0 })
}

// linksDeadline returns when the first excluded node is readmitted.
func (s *State) linksDeadline() (d time.Time) {
	for _, p := range s.Links {
		d = events.Earliest(d, p.Until)
	}
	return d
}

func (s *State) linkPartitions() (out []events.LinkPartition) {
	for _, p := range s.Links {
		if p.isCut() {
			out = append(out, events.LinkPartition{Nodes: p.Nodes, Excluded: p.Excluded, Until: p.Until})
		}
	}
	return out
}
