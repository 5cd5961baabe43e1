package shards

import (
	"errors"
	"slices"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// truth is the content of a commit.
func (g *generation) truth(c Commit) content {
	g.mu.Lock()
	defer g.mu.Unlock()
	if initial, ok := g.history.initial[c]; ok {
		return initial
	}
	return contentOf(c.Generation<<32 | c.Step)
}

// junk names what is in the memory of a rank before a generation has its state.
func (g *generation) junk(rank int) uint64 { return 1<<60 | g.number<<32 | uint64(rank) }

// expect finds out with which commit the generation must begin: the newest of which a member has
// what is not sharded, and all together everything else.
func (g *generation) expect() {
	var all []Commit
	for _, m := range g.members {
		all = append(all, m.commits...)
	}
	slices.SortFunc(all, func(a, b Commit) int { return b.Compare(a) })
	all = slices.Compact(all)
	for _, c := range all {
		whole := holdingsOf(g.states, c).whole(0)
		if !whole && !g.agreed[c] && !slices.ContainsFunc(g.states, func(s *State) bool { return slices.Contains(s.commits(), c) }) {
			continue // an initial state of which nobody has filled the parts
		}
		g.expected.lost = true
		if slices.ContainsFunc(g.states, func(s *State) bool { return s.withdrawn == c }) {
			continue
		}
		if whole {
			g.expected = expected{commit: c, found: true}
			break
		}
	}
	for _, p := range g.promises {
		gone := 0
		for i, m := range p.members {
			if !slices.Contains(g.members, m) {
				gone |= 1 << i
			}
		}
		if p.survives[gone] {
			g.check(2, g.expected.found && g.expected.commit.Compare(p.commit) >= 0,
				"the commit of %v was promised, and %+v is what there is", p.commit, g.expected)
			break
		}
	}
	if g.expected.found {
		g.check(2, g.agreed[g.expected.commit] || g.history.initial[g.expected.commit] != nil, "nobody has agreed on %v", g.expected.commit)
		return
	}
	g.initial = Commit{Generation: g.number}
	if len(all) > 0 {
		g.initial = all[0]
	}
	if !g.expected.lost {
		first := contentOf(0)
		for rank := len(g.layout) - 1; rank >= 0; rank-- { // the lowest rank counts
			contentOf(g.junk(rank)).fill(g.layout[rank])
			first.take(g.layout[rank])
		}
		g.history.initial[g.initial] = first
	}
}

// hasChosen checks what a member has chosen.
func (g *generation) hasChosen(e *end, m *member, chosen Commit, found bool) {
	switch x := g.expected; {
	case x.lost:
		g.check(2, false, "rank %d has chosen %v, and parts of all commits are lost", e.rank, chosen)
	case found != x.found || found && chosen != x.commit:
		g.check(2, false, "rank %d has chosen %v, %t, not %+v", e.rank, chosen, found, x)
	}
	if found {
		if m.state.received > 0 {
			g.count("members that rebuild", 1)
		}
		g.check(4, int(m.state.received) == e.bytes(), "rank %d has received %d bytes to rebuild something, and %d are counted", e.rank, m.state.received, e.bytes())
	}
}

// failed checks the reason of an error.
func (g *generation) failed(e *end, err error) {
	switch {
	case errors.Is(err, errPlanned), e.Failed() != nil:
	case errors.Is(err, ErrNotWhole):
		g.check(3, g.expected.lost, "rank %d, %s: %v; but there is the commit of %v", e.rank, e.phase, err, g.expected.commit)
	default:
		g.check(0, false, "rank %d, %s: %v", e.rank, e.phase, err)
	}
}

func (g *generation) agree(c Commit) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.agreed[c] = true
}

// sameAs compares parts with a commit.
func (g *generation) sameAs(number int, e *end, c Commit, parts []part, does string) {
	what, differs := g.truth(c).differs(parts)
	g.check(number, !differs, "rank %d %s the commit of %v, but %s", e.rank, does, c, what)
}

// lacking is how many bytes of what a member needs it does not have.
func (g *generation) lacking(e *end, m *member, chosen Commit, found bool) (n int) {
	has := make([]bool, starts[len(starts)-1])
	mark := func(parts []part) {
		for _, p := range parts {
			p.each(func(at, _, n int) {
				for k := range n {
					has[at+k] = true
				}
			})
		}
	}
	if found {
		for _, x := range m.state.sets {
			if x.commit == chosen {
				mark(x.parts)
			}
		}
	} else { // the lowest rank sends
		for _, parts := range g.layout[:e.rank] {
			mark(parts)
		}
	}
	for _, p := range m.parts {
		p.each(func(at, _, bytes int) {
			for k := range bytes {
				if has[at+k] != found {
					n++
				}
			}
		})
	}
	return n
}

// arrived is called when all have come to an operation. What they have of the commit that is whole
// then is promised. If nobody was lost, it is also what was claimed.
func (g *generation) arrived(p phase, op string) {
	settled := p == agreeing || p == parting && op == "barrier"
	if !settled && (p != syncing || op != "barrier" || !g.expected.found) {
		return
	}
	if settled && slices.ContainsFunc(g.states, (*State).Withdrawn) {
		return // what was promised before still holds
	}
	commit := g.states[0].last
	if !settled || commit == (Commit{}) {
		commit = g.expected.commit
	}
	table := holdingsOf(g.states, commit).table()
	// From a planned change until the next generation has made a commit the one before is kept.
	older := slices.DeleteFunc(g.promises, func(x promise) bool {
		return x.commit.Compare(commit) >= 0 || p == agreeing
	})
	g.promises = append([]promise{{commit, slices.Clone(g.members), table}}, older...)
	if g.network.failed != nil {
		return
	}
	alone := make([]string, len(g.states))
	for m := range alone {
		alone[m] = string(rune('a' + m))
	}
	members, nodes := fewest(table, alone)-1, fewest(table, g.nodes)-1
	t, has, groups := planned(g.states, commit)
	if claim := reshard.Survives(t.tensors, has, groups, nil); claim != members {
		g.check(6, false, "%s: %d losses are claimed to be survived, and %d are", p, claim, members)
	}
	if claim := reshard.Survives(t.tensors, has, groups, g.nodes); claim != nodes {
		g.check(6, false, "%s: %d losses of nodes are claimed to be survived, and %d are", p, claim, nodes)
	}
	for rank, s := range g.states {
		g.kept(s)
		switch {
		case p == parting && g.handsOver():
		case settled:
			g.check(6, members >= s.options.claim(len(g.states)), "%s: %d losses are survived, and %d were asked for", p, members, s.options.claim(len(g.states)))
		default:
			x := s.chosen
			said := reshard.Survives(x.tensors, x.has, x.groups, nil)
			g.check(6, members == said, "rank %d says that %d losses are survived, and %d are", rank, said, members)
		}
	}
	last := g.states[0].last
	switch {
	case p == parting && g.handsOver():
		g.haveHandedOver(last, table)
		return
	case p == parting:
		g.leaversMayLeave(table)
	}
	if settled && last != (Commit{}) {
		g.keepNoMore(last, p == parting)
	}
}

// handsOver reports whether those who leave send what they alone have, and nothing else is sent.
func (g *generation) handsOver() bool { return g.told && g.options != (Options{}) }

// haveHandedOver checks that those who leave may do so, and that nothing else was sent.
func (g *generation) haveHandedOver(c Commit, table []bool) {
	leavers, most := 0, 0
	for rank, leaves := range g.leaves {
		if leaves {
			leavers |= 1 << rank
			most += size(g.layout[rank])
		}
	}
	g.check(6, table[leavers], "after a planned change without %b parts are lost", leavers)
	kept := 0
	for rank, s := range g.states {
		kept += s.kept(c)
		g.check(5, !g.leaves[rank] || s.kept(c) == 0, "rank %d leaves, and was sent %d bytes", rank, s.kept(c))
	}
	g.check(5, kept <= most, "%d bytes were sent, and those who leave have %d", kept, most)
}

// keepNoMore checks what is kept for others of a commit of this generation: at most as many copies
// as there shall be of the largest parts, or a k-th of those.
func (g *generation) keepNoMore(c Commit, leaving bool) {
	largest := 0
	for _, parts := range g.layout {
		largest = max(largest, size(parts))
	}
	most := min(max(g.options.Copies, 1), len(g.states)-1) * largest
	switch k := min(g.options.Parity, len(g.states)-1); {
	case leaving:
	case k > 0:
		most = largest/k + 8 // an element more
	case g.options.Copies == 0:
		most = 0
	}
	for rank, s := range g.states {
		g.check(5, s.kept(c) <= most, "rank %d keeps %d bytes for others, and at most %d are due", rank, s.kept(c), most)
	}
}

// leaversMayLeave checks that any run of members may leave that is not too long.
func (g *generation) leaversMayLeave(table []bool) {
	n, copies := len(g.states), min(max(1, g.options.Copies), len(g.states)-1)
	for from := range n {
		lost := 0
		for k := range n * copies / (copies + 1) {
			lost |= 1 << ((from + k) % n)
		}
		g.check(6, table[lost], "after a planned change without %b parts are lost", lost)
	}
}

// kept checks all that a state keeps.
func (g *generation) kept(s *State) {
	g.check(5, len(s.commits()) <= 2, "%v are kept", s.commits())
	for _, x := range s.sets {
		what, differs := g.truth(x.commit).differs(x.parts)
		g.check(7, !differs, "of the commit of %v another %s is kept", x.commit, what)
	}
	for _, p := range s.protections {
		if !p.kept {
			continue
		}
		truth := g.truth(p.commit)
		var sum []byte
		for _, x := range p.ranges(nil) {
			sum = append(sum, make([]byte, max(0, len(x.places)-len(sum)))...)
			for k, at := range x.places {
				sum[k] ^= truth[at]
			}
		}
		g.check(7, slices.Equal(sum, p.parity), "of the commit of %v another parity is kept", p.commit)
	}
}
