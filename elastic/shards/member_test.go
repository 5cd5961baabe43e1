package shards

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// member is one worker of a simulated job.
type member struct {
	id      int
	node    string
	state   *State
	commits []Commit // of which it has what is not sharded, the newest first
	parts   []part   // in this generation
	same    bool     // they were not changed since they were saved or filled
	pins    []pin
	brings  chan struct{} // closed when the parts that are away are in the registered memory
	before  int           // bytes received when the last commit was saved
}

func (m *member) String() string { return fmt.Sprintf("%d@%s", m.id, m.node) }

// pin is a commit that is being written to disk.
type pin struct {
	*Pinned
	commit Commit
	until  int // commits more
}

// put adds a commit of what is not sharded. Two are kept.
func (m *member) put(c Commit) {
	m.commits = append([]Commit{c}, m.commits[:min(1, len(m.commits))]...)
}

// errPlanned ends the program of a member in a planned change.
var errPlanned = errors.New("planned change")

// live is the program of a member in one generation: what package elastic does with a sharded
// state, in its order.
func (g *generation) live(ctx context.Context, e *end, m *member) error {
	e.enter(choosing)
	chosen, found, err := m.state.Choose(ctx, e, m.commits)
	if err != nil {
		g.failed(e, err)
		return err
	}
	g.hasChosen(e, m, chosen, found)
	if found {
		m.commits = slices.DeleteFunc(m.commits, func(c Commit) bool { return c.Compare(chosen) > 0 })
	} else {
		chosen = g.initial
	}
	rebuilt := e.bytes()
	if _, err := e.meet(ctx, "what is not sharded", nil); err != nil {
		return err
	}
	if !slices.Contains(m.commits, chosen) {
		m.put(chosen)
	}
	e.enter(syncing)
	before := m.parts
	m.parts = slices.Clone(g.layout[e.rank])
	contentOf(g.junk(e.rank)).fill(m.parts) // an initial state, and otherwise nothing
	for i, p := range m.parts {
		k := slices.IndexFunc(before, func(o part) bool { return o.tensor.Equal(p.tensor) && o.box.Equal(p.box) })
		stays := k >= 0 && found && g.number%3 > 0
		if stays {
			m.parts[i].memory = before[k].memory
		}
		if err := m.state.Register(p.tensor, p.box, m.parts[i].memory, stays && m.same); err != nil {
			return err
		}
		if g.lives[p.tensor.Name] {
			m.state.SetLive(p.tensor.Name, g.away)
		}
	}
	m.state.copies = func() { _ = e.wait(ctx, &call{kind: "copy"}) }
	lacks := g.lacking(e, m, chosen, found)
	received, err := m.state.Sync(ctx, e, chosen, found, g.nodes[e.rank], 0)
	if err != nil {
		g.failed(e, err)
		return err
	}
	g.check(4, int(received) == e.bytes() && e.bytes() == rebuilt+lacks,
		"rank %d has received %d bytes, %d of them to rebuild and %d in all are counted, and it lacked %d", e.rank, received, rebuilt, e.bytes(), lacks)
	g.sameAs(1, e, chosen, m.parts, "begins with")
	g.history.count("bytes that were in place", m.state.Unchanged())
	m.same = true
	if m.before = e.bytes(); !found {
		m.state.Save(ctx, e, chosen, Parting{}, false)
	}
	for _, s := range g.steps {
		if err := g.step(ctx, e, m, s); err != nil {
			g.failed(e, err)
			return err
		}
	}
	return nil
}

// step is one step of the training, with its commit.
func (g *generation) step(ctx context.Context, e *end, m *member, s step) error {
	e.enter(training)
	for range s.operations {
		if _, err := e.meet(ctx, "gradients", nil); err != nil {
			return err
		}
	}
	last := m.state.Last()
	if s.withdraws == e.rank && last != (Commit{}) {
		m.state.Withdraw()
		g.count("commits withdrawn", 1)
	}
	m.state.Copied()
	if m.brings != nil { // until then the program has other memory
		<-m.brings
		m.brings = nil
	}
	g.truth(s.commit).fill(m.parts)
	m.same = false
	if s.restores && last != (Commit{}) && !m.state.Withdrawn() {
		if err := m.state.Restore(); err != nil {
			return err
		}
		g.sameAs(1, e, last, m.parts, "is restored to")
		g.truth(s.commit).fill(m.parts)
	}
	e.enter(settling)
	if err := g.settle(e, m); err != nil {
		return err
	}
	e.enter(agreeing)
	all, err := e.meet(ctx, "agree", fmt.Append(nil, m.state.Withdrawn()))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(all, func(b []byte) bool { return string(b) == "true" }) {
		m.state.Withdraw()
		m.commits = slices.DeleteFunc(m.commits, func(c Commit) bool { return c == last })
	}
	g.agree(s.commit)
	m.put(s.commit)
	m.before = e.bytes()
	after := Parting{Planned: s.leaving}
	if s.leaving && g.told {
		after.Leaving = g.leaves
	}
	if g.away && s.overlaps && !s.leaving { // what is away comes later
		for i := range m.parts {
			if g.lives[m.parts[i].tensor.Name] {
				contentOf(g.junk(e.rank)).fill(m.parts[i : i+1])
			}
		}
	}
	m.state.Save(ctx, e, s.commit, after, s.overlaps)
	m.same = true
	if g.away && s.overlaps && !s.leaving {
		parts, brought := m.parts, make(chan struct{})
		m.brings = brought
		go func() {
			_ = e.wait(ctx, &call{kind: "bring"})
			for i := range parts {
				if g.lives[parts[i].tensor.Name] {
					g.truth(s.commit).fill(parts[i : i+1])
				}
			}
			m.state.Brought(true)
			close(brought)
		}()
	}
	if s.overlaps && !s.leaving { // what is not live may change at once
		for i := range m.parts {
			if !g.lives[m.parts[i].tensor.Name] {
				contentOf(g.junk(e.rank)).fill(m.parts[i : i+1])
				m.same = false
			}
		}
	}
	m.written(g)
	if p := m.state.Pin(); s.pins && p != nil {
		m.pins = append(m.pins, pin{p, s.commit, s.writes})
	} else if p != nil {
		m.state.Unpin(p)
	}
	if !s.leaving {
		return nil
	}
	e.enter(parting)
	if err := g.settle(e, m); err != nil {
		return err
	}
	if err := e.Barrier(ctx); err != nil {
		return err
	}
	return errPlanned
}

// settle waits for the copies of the last commit, and counts them.
func (g *generation) settle(e *end, m *member) error {
	if err := m.state.Settle(); err != nil {
		return err
	}
	if last := m.state.Last(); last != (Commit{}) {
		due := m.state.copied(last)
		g.check(4, e.bytes()-m.before == due, "rank %d has received %d bytes of copies of the commit of %v, and %d were due", e.rank, e.bytes()-m.before, last, due)
	}
	return nil
}

// copied is how many bytes others have sent of a commit of this generation.
func (s *State) copied(c Commit) (n int) {
	for _, x := range s.sets {
		if x.commit == c && !x.own {
			n += len(x.data)
		}
	}
	for _, p := range s.protections {
		if p.commit != c {
			continue
		}
		for _, x := range p.ranges(nil) {
			n += len(x.places)
		}
	}
	return n
}

// written compares what has been written to disk with its commit.
func (m *member) written(g *generation) {
	m.pins = slices.DeleteFunc(m.pins, func(p pin) bool {
		return p.until == 0 && m.unpin(g, p)
	})
	for i := range m.pins {
		m.pins[i].until--
	}
}

func (m *member) unpin(g *generation, p pin) bool {
	list, err := p.Parts()
	g.check(0, err == nil, "what member %v writes of the commit of %v: %v", m, p.commit, err)
	var parts []part
	for _, x := range list {
		if x.Box.Elements() > 0 {
			parts = append(parts, part{tensor: x.Tensor, box: x.Box, memory: x.Memory})
		}
	}
	what, differs := g.truth(p.commit).differs(parts)
	g.check(7, !differs, "what member %v writes of the commit of %v has another %s", m, p.commit, what)
	m.state.Unpin(p.Pinned)
	return true
}
