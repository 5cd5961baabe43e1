package shards

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
)

// history is a simulated job, from its initial state until nothing is left of it, or for some
// generations: real states of members that come, leave and are killed, and the real planner.
// Package elastic is simulated, in member_test.go, and there are no checkpoints.
type history struct {
	rand    *rand.Rand
	options Options
	most    int // see State
	story   []string
	detail  bool // tell everything that happens

	members    []*member // by rank
	layout     [][]part  // by rank, in the last generation
	born       int       // members
	generation uint64
	initial    map[Commit]content // initial states that are commits
	agreed     map[Commit]bool
	promises   []promise // the newest commit first

	mu     sync.Mutex
	broken *violation     // the first
	counts map[string]int // of what has happened
}

// count counts something that has happened.
func (h *history) count(what string, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[what] += n
}

// violation is an invariant that does not hold; their numbers are those of invariants.
type violation struct {
	number int
	text   string
}

func (v *violation) String() string {
	return fmt.Sprintf("invariant %d, %s: %s", v.number, invariants[v.number], v.text)
}

var invariants = []string{
	"nobody waits forever, and what fails has a reason",
	"each element of a generation's begin is that of one commit, on all ranks",
	"the commit is the newest of which everything is left, was agreed on, and is not older than one that was promised",
	"what is called lost is lost",
	"what is received is what is lacking",
	"nobody keeps more than two commits, and of others no more than was asked for",
	"as many losses as are claimed are survived, and not one more",
	"what is kept of a commit is of that commit",
}

// promise is a commit that all members have settled, and what it survives.
type promise struct {
	commit   Commit
	members  []*member
	survives []bool // by the set of those who are lost
}

// generation is one generation of a history.
type generation struct {
	*history

	number   uint64
	layout   [][]part        // by rank
	nodes    []string        // by rank
	away     bool            // parts that are live are not in the registered memory while they are used
	lives    map[string]bool // tensors whose parts are
	steps    []step
	leaves   []bool // by rank: after the last step, if that is a planned change
	told     bool   // they know that, all of them
	network  *network
	states   []*State // by rank
	initial  Commit   // what an initial state would be called
	expected expected
}

// expected is what a generation begins with.
type expected struct {
	commit      Commit
	found, lost bool
}

// step is a step of the training, and its commit.
type step struct {
	commit                  Commit
	operations              int // of the program, before the commit
	restores, leaving, pins bool
	overlaps                bool // live parts are copied while the program goes on
	withdraws               int  // the rank that withdraws the commit before; -1 = none
	writes                  int  // commits until what is pinned is written
}

func (h *history) tell(format string, args ...any) {
	h.story = append(h.story, fmt.Sprintf(format, args...))
}

func (h *history) check(number int, holds bool, format string, args ...any) {
	if holds {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.broken == nil {
		h.broken = &violation{number, fmt.Sprintf("generation %d: ", h.generation) + fmt.Sprintf(format, args...)}
	}
}

func (h *history) violated() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.broken != nil
}

func newHistory(seed uint64, detail bool) *history {
	r := rand.New(rand.NewPCG(seed, 41))
	all := []Options{{Copies: 1}, {Copies: 1}, {Copies: 1}, {Copies: 2}, {Copies: 2}, {Parity: 2}, {Parity: 2}, {Parity: 2}, {Parity: 3}, {Parity: 3}, {Parity: 4}, {}}
	return &history{
		rand: r, options: all[r.IntN(len(all))], most: []int{13, 40, 100, 1 << 20}[r.IntN(4)], detail: detail,
		initial: map[Commit]content{}, agreed: map[Commit]bool{}, counts: map[string]int{},
	}
}

// maxWorld is the most members: all sets of losses are tried.
const maxWorld = 6

// run simulates a history. It is called in a bubble of synctest.
func (h *history) run(ctx context.Context) {
	h.tell("%v, %d bytes at once", h.options, h.most)
	h.join(1 + h.rand.IntN(1+h.rand.IntN(maxWorld)))
	for range 3 + h.rand.IntN(7) {
		if len(h.members) == 0 || !h.runGeneration(ctx) || h.violated() {
			return
		}
		h.change()
	}
}

// join adds newcomers, on nodes of others or of their own. Some have prefetched what is not
// sharded.
func (h *history) join(n int) {
	for range n {
		node := h.rand.IntN(4)
		m := &member{id: h.born, node: "abcd"[node : node+1], state: New(h.options)}
		m.state.most = h.most
		h.born++
		if len(h.members) > 0 && h.rand.IntN(3) == 0 {
			m.commits = slices.Clone(h.members[0].commits[:min(1, len(h.members[0].commits))])
		}
		h.members = append(h.members, m)
	}
	if h.rand.IntN(3) == 0 {
		h.rand.Shuffle(len(h.members), func(i, k int) { h.members[i], h.members[k] = h.members[k], h.members[i] })
	}
	order := h.rand.Perm(4)
	slices.SortStableFunc(h.members, func(a, b *member) int { return order[a.node[0]-'a'] - order[b.node[0]-'a'] })
}

// change is what happens between two generations.
func (h *history) change() {
	for range h.rand.IntN(2) * h.rand.IntN(2) * h.rand.IntN(2) {
		if i := h.rand.IntN(max(1, len(h.members))); i < len(h.members) {
			h.tell("  %v dies between two generations", h.members[i])
			h.members = slices.Delete(h.members, i, i+1)
			h.count("members lost between generations", 1)
		}
	}
	if room := maxWorld - len(h.members); room > 0 && len(h.members) > 0 && h.rand.IntN(2) == 0 {
		h.join(1 + h.rand.IntN(min(room, 3)))
	}
}

// draw draws a generation.
func (h *history) draw() *generation {
	h.generation++
	world := len(h.members)
	g := &generation{history: h, number: h.generation, leaves: make([]bool, world), nodes: make([]string, world)}
	for rank, m := range h.members {
		g.states = append(g.states, m.state)
		g.nodes[rank] = fmt.Sprint(slices.IndexFunc(h.members, func(o *member) bool { return o.node == m.node }))
	}
	var what string
	g.layout, what = drawLayout(h.rand, world)
	if len(h.layout) == world && h.rand.IntN(2) == 0 {
		what = "as before"
		for rank, parts := range h.layout {
			g.layout[rank] = slices.Clone(parts)
			for i, p := range parts {
				g.layout[rank][i].memory = make([]byte, p.bytes())
			}
		}
	}
	h.layout = g.layout
	g.lives, g.away = map[string]bool{}, h.rand.IntN(3) == 0
	for _, parts := range g.layout {
		for _, p := range parts {
			g.lives[p.tensor.Name] = (int(p.tensor.Name[0])+int(g.number))%3 > 0
		}
	}
	g.expect()
	first := g.expected.commit.Step
	for k := range h.rand.IntN(5) {
		g.steps = append(g.steps, step{
			commit: Commit{Generation: g.number, Step: first + uint64(k) + 1}, operations: h.rand.IntN(3),
			restores: h.rand.IntN(8) == 0, pins: h.rand.IntN(6) == 0, writes: h.rand.IntN(4),
			overlaps: h.rand.IntN(2) == 0, withdraws: max(h.rand.IntN(world*12)-world*11, -1),
		})
	}
	if n := len(g.steps); n > 0 && h.rand.IntN(3) == 0 {
		g.steps[n-1].leaving = true
		copies := max(1, h.options.Copies) // as many as follow each other may leave
		from, some := h.rand.IntN(world), h.rand.IntN(world*copies/(copies+1)+1)
		for k := range some {
			g.leaves[(from+k)%world] = true
		}
		if g.told = h.rand.IntN(2) == 0; g.told && h.options != (Options{}) { // all but one, whichever
			for rank := range world {
				g.leaves[rank] = rank != from && h.rand.IntN(2) == 0
			}
		}
	}
	var faults []*fault
	most := []int{0, 1, 1, 1, 1, 2, 2, 3}[h.rand.IntN(8)]
	if !g.expected.found { // what is lost before the first commit has been seen soon
		most = h.rand.IntN(4) / 3
	}
	for range most {
		f := &fault{phase: phases[h.rand.IntN(len(phases))], n: 1 + h.rand.IntN(1<<h.rand.IntN(8)), kind: "kill", ranks: []int{h.rand.IntN(world)}}
		if h.options.Parity > 0 && h.rand.IntN(3) == 0 { // few, and seldom
			f.phase, f.n = rebuildingParts, 1+f.n%16
		}
		switch h.rand.IntN(10) {
		case 0:
			f.kind = "cut"
		case 1:
			f.kind = "damage"
		case 2: // all of a node
			node := g.nodes[f.ranks[0]]
			f.ranks = nil
			for rank := range world {
				if g.nodes[rank] == node {
					f.ranks = append(f.ranks, rank)
				}
			}
		}
		faults = append(faults, f)
	}
	g.network = newNetwork(world, g.number, h.rand, faults)
	g.network.arrived = g.arrived
	g.network.log = func(string, ...any) {}
	if h.detail {
		g.network.log = h.tell
	}
	switch x := g.expected; {
	case x.found:
		h.count("generations that begin with a commit", 1)
	case x.lost:
		h.count("generations in which parts are lost", 1)
	default:
		h.count("generations that begin with an initial state", 1)
	}
	h.tell("generation %d: members %v, layout %s, %d steps, leave %v, faults %v; begins with %+v", g.number, h.members, what, len(g.steps), g.leaves, faults, g.expected)
	return g
}

// runGeneration simulates one generation. It returns false if the job has ended with it.
func (h *history) runGeneration(ctx context.Context) bool {
	g := h.draw()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ends := make([]error, len(h.members))
	for rank, m := range h.members {
		e := g.network.ends[rank]
		go func() {
			ends[rank] = g.live(ctx, e, m)
			m.state.Leave()
			e.leave()
		}()
	}
	err := g.network.run()
	g.check(0, err == nil, "%v", err)
	g.network.stop()
	synctest.Wait()
	var left []*member
	for rank, m := range h.members {
		planned := errors.Is(ends[rank], errPlanned)
		if g.network.ends[rank].dead {
			h.tell("  rank %d is dead", rank)
			h.count("members killed", 1)
			continue
		}
		h.tell("  rank %d: %v; it keeps %v", rank, ends[rank], m.state.commits())
		g.kept(m.state)
		if planned && g.leaves[rank] {
			h.count("members removed as planned", 1)
			continue
		}
		left = append(left, m)
	}
	h.count("deliveries", g.network.steps)
	for _, f := range g.network.faults {
		if f.n <= 0 {
			h.count(f.kind+" while "+string(f.phase), 1)
		}
	}
	h.members = left
	return !g.expected.lost
}

// commits are those of which the state has something.
func (s *State) commits() (list []Commit) {
	for _, x := range s.sets {
		list = append(list, x.commit)
	}
	for _, p := range s.protections {
		list = append(list, p.commit)
	}
	slices.SortFunc(list, Commit.Compare)
	return slices.Compact(list)
}

// String is what happened.
func (h *history) String() string { return strings.Join(h.story, "\n") }
