package shards

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/regroup-io/regroup/elastic/reshard"
)

// offeredParity is a member's part in the parity of a commit, as it tells the others.
type offeredParity struct {
	Commit     Commit
	Generation uint64 // in which the group was made
	Ranks      []int  // of the group, in that generation
	At         int    // the position of this member
	Kept       bool
	Pieces     []reshard.Piece // of Tensors: what of this member's parts is in the parity
}

// survivors are who is left of a group, and what it has of a commit.
type survivors struct {
	generation    uint64
	ranks         []int // in that generation
	reshard.Group       // with the members' ranks now
}

// compare orders the groups of a commit; those that are equal are the same.
func (g *survivors) compare(o *survivors) int {
	return cmp.Or(cmp.Compare(o.generation, g.generation), slices.Compare(g.ranks, o.ranks))
}

// teller is the rank that tells what the lost ones of the group had.
func (g *survivors) teller() int {
	return g.Members[slices.IndexFunc(g.Members, func(m int) bool { return m >= 0 })]
}

// groupsOf are the groups that have parity of a commit, those of the newest generation first.
type groupsOf []*survivors

func (list groupsOf) plain() []reshard.Group {
	groups := make([]reshard.Group, len(list))
	for i, g := range list {
		groups[i] = g.Group
	}
	return groups
}

// gatherGroups finds out what is left of the groups of all commits.
func (s *State) gatherGroups(ctx context.Context, c Communicator, offers []offer, t *table) (map[Commit]groupsOf, error) {
	groups := map[Commit]groupsOf{}
	for rank, o := range offers {
		for _, p := range o.Parity {
			if p.At < 0 || p.At >= len(p.Ranks) {
				return nil, errDamaged(rank)
			}
			if err := checkPieces(rank, o.Tensors, p.Pieces); err != nil {
				return nil, err
			}
			g := &survivors{generation: p.Generation, ranks: p.Ranks}
			list := groups[p.Commit]
			if i := slices.IndexFunc(list, func(o *survivors) bool { return g.compare(o) == 0 }); i >= 0 {
				g = list[i]
			} else {
				g.Members, g.Pieces = slices.Repeat([]int{-1}, len(p.Ranks)), make([][]reshard.Piece, len(p.Ranks))
				g.Kept = make([]bool, len(p.Ranks))
				groups[p.Commit] = append(list, g)
			}
			g.Members[p.At], g.Kept[p.At], g.Pieces[p.At] = rank, p.Kept, t.translate(o.Tensors, p.Pieces)
		}
	}
	var commits []Commit
	for commit, list := range groups {
		commits = append(commits, commit)
		slices.SortFunc(list, (*survivors).compare)
	}
	slices.SortFunc(commits, Commit.Compare)
	return groups, s.gatherLost(ctx, c, offers, t, commits, groups)
}

// gatherLost has one member of each group tell what those had that are lost.
func (s *State) gatherLost(ctx context.Context, c Communicator, offers []offer, t *table, commits []Commit, groups map[Commit]groupsOf) error {
	type lost struct {
		*survivors
		at int
	}
	var all []lost
	mine := [][]reshard.Piece{} // of the tensors of this member's offer
	for _, commit := range commits {
		for _, g := range groups[commit] {
			for at, m := range g.Members {
				if m >= 0 {
					continue
				}
				all = append(all, lost{g, at})
				if g.teller() == c.Rank() {
					p := s.protection(commit, g)
					mine = append(mine, offers[c.Rank()].number(p.table.parts(p.pieces[at])))
				}
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	told, err := gather(ctx, c, mine)
	if err != nil {
		return err
	}
	for _, l := range all {
		rank := l.teller()
		if len(told[rank]) == 0 {
			return errDamaged(rank)
		}
		pieces := told[rank][0]
		told[rank] = told[rank][1:]
		if err := checkPieces(rank, offers[rank].Tensors, pieces); err != nil {
			return err
		}
		l.Pieces[l.at] = t.translate(offers[rank].Tensors, pieces)
	}
	return nil
}

// protection is this member's part in the parity of a commit; nil = none.
func (s *State) protection(commit Commit, g *survivors) *protection {
	for _, p := range s.protections {
		if p.commit == commit && p.generation == g.generation && slices.Equal(p.ranks, g.ranks) {
			return p
		}
	}
	return nil
}

// rebuilding is what one member of a group rebuilds of what a lost one had.
type rebuilding struct {
	*survivors
	lost, keeper int // positions
	pieces       []reshard.Piece
}

// planRebuild says what to rebuild of what nobody has, and returns what the members have then.
func planRebuild(t *table, groups groupsOf, has [][]reshard.Piece) (list []rebuilding, after [][]reshard.Piece) {
	after = slices.Clone(has)
	if len(groups) == 0 {
		return nil, after
	}
	missing := t.missing(after)
	for _, g := range groups {
		some := false
		for lost, m := range g.Members {
			if m >= 0 || len(missing) == 0 {
				continue
			}
			for keeper, pieces := range g.Rebuilt(t.tensors, lost) {
				if !overlap(missing, pieces) {
					continue
				}
				some = true
				list = append(list, rebuilding{g, lost, keeper, pieces})
				at := g.Members[keeper]
				after[at] = slices.Concat(after[at], pieces)
			}
		}
		if some { // an older group need not do it again
			missing = t.missing(after)
		}
	}
	return list, after
}

// missing are the parts that nobody has, by tensor.
func (t *table) missing(has [][]reshard.Piece) map[int][]reshard.Box {
	missing := map[int][]reshard.Box{}
	for _, p := range reshard.Missing(t.tensors, has) {
		missing[p.Tensor] = append(missing[p.Tensor], p.Box)
	}
	return missing
}

func overlap(boxes map[int][]reshard.Box, pieces []reshard.Piece) bool {
	return slices.ContainsFunc(pieces, func(p reshard.Piece) bool {
		return slices.ContainsFunc(boxes[p.Tensor], func(b reshard.Box) bool {
			_, some := b.Intersect(p.Box)
			return some
		})
	})
}

// rebuild carries out such a list. Who rebuilds something has it as a set of the commit then.
func (s *State) rebuild(ctx context.Context, c Communicator, t *table, commit Commit, list []rebuilding) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	start := func(steps []func() error) {
		wg.Go(func() {
			for _, f := range steps {
				if err := f(); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	send := map[int][]func() error{}
	var recv []func() error
	var rebuilt []*set
	for _, r := range list {
		keeper := r.Members[r.keeper]
		s.offers[keeper].add(commit, t.parts(r.pieces))
		p := s.protection(commit, r.survivors)
		if p == nil {
			continue
		}
		from, end := p.stripe(r.lost, r.keeper)
		size := end - from // more of the others' stripes is not needed
		if p.at != r.keeper {
			from, end = p.stripe(p.at, r.keeper)
			end = min(end, from+size)
			send[keeper] = append(send[keeper], func() error { return sendRange(ctx, c, keeper, p.own, from, end, s.most) })
			continue
		}
		x := newSet(commit, t.parts(r.pieces), &s.memory)
		rebuilt = append(rebuilt, x)
		copy(x.data, p.parity)
		var sources []source
		for of, m := range r.Members {
			if of != r.lost && of != r.keeper && m >= 0 {
				from, end := p.stripe(of, r.keeper)
				sources = append(sources, source{m, min(end-from, size)})
				s.received += uint64(min(end-from, size))
			}
		}
		recv = append(recv, func() error { return recvXOR(ctx, c, sources, x.data, s.most) })
	}
	for _, steps := range send {
		start(steps)
	}
	start(recv)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		for _, x := range rebuilt {
			s.memory.Put(x.data)
		}
		return fmt.Errorf("rebuild parts from their parity: %w", err)
	}
	s.sets = append(s.sets, rebuilt...)
	return nil
}
