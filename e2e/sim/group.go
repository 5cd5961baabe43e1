package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// group is the communicator of one generation: the data plane without tensors. Its members step
// together.
type group struct {
	w          *world
	job        *jobRun
	generation ident.Generation
	token      string
	world      int
	spares     int              // which have the ranks behind the members' until these have the state
	members    map[int]*process // and spares
	lost       map[int]bool     // ranks that were members and are no more
	running    bool
	broken     bool
	step       uint64
	state      snapshot
	open       ledger // consumed since the last commit
	first      bool   // its first good step was reported
	stuck      bool   // a member hangs
	torn       *torn  // how a written scenario interrupts the next commit
}

// torn is a commit that only one member has, because another one dies during it.
type torn struct{ keeps, dies ident.Place }

// admit adds a member that holds the token and a free rank.
func (g *group) admit(p *process) {
	if g.broken || g.lost[p.rank] {
		p.after(g.w.between(time.Millisecond, 30*time.Millisecond), func() { p.abort(nil) })
		return
	}
	if other := g.members[p.rank]; other != nil && other != p && other.alive {
		g.w.check.fail(4, "rank %d of %s belongs to %s and to %s", p.rank, g.generation, other.start.Place, p.start.Place)
		return
	}
	if p.rank < 0 || p.rank >= g.world+g.spares {
		g.w.check.fail(2, "rank %d in a world of %d with %d spares", p.rank, g.world, g.spares)
		return
	}
	g.members[p.rank] = p
	if len(g.members) == g.world+g.spares {
		g.w.after(g.w.between(5*time.Millisecond, 60*time.Millisecond), g.sync)
		return
	}
	p.after(3*time.Second, func() { // a member is missing
		if p.group == g && !g.running && !g.broken {
			p.abort(g.missing())
		}
	})
}

func (g *group) missing() []int {
	var out []int
	for r := range g.world + g.spares {
		if g.members[r] == nil {
			out = append(out, r)
		}
	}
	return out
}

// lose breaks the group: every other member fails soon, and accuses a rank.
func (g *group) lose(p *process) {
	if g.members[p.rankIn(g)] == p {
		g.lost[p.rankIn(g)] = true
	}
	if g.broken {
		return
	}
	g.broken = true
	lost := p.rankIn(g)
	for r := range g.world + g.spares {
		q := g.members[r]
		if q == nil || q == p {
			continue
		}
		accused := lost
		if g.w.chance(20) { // a live peer that seemed lost
			accused = g.w.any(g.world)
		}
		g.accuse(q, accused)
	}
}

// rankIn is a process's rank in a group, also after it has left.
func (p *process) rankIn(g *group) int {
	for r := range g.world + g.spares {
		if g.members[r] == p {
			return r
		}
	}
	return -1
}

// sync gives all members the newest commit that any of them holds.
func (g *group) sync() {
	if g.broken || g.brokenByPartition() {
		return
	}
	var newest *snapshot
	for r := range g.world + g.spares {
		if c := g.members[r].commit; c != nil && (newest == nil || c.newer(*newest)) {
			newest = c
		}
	}
	g.state = g.job.zero()
	if newest != nil {
		g.state = newest.clone()
	}
	for r := range g.world + g.spares {
		p := g.members[r]
		g.state.account.add(p.void)
		p.void = ledger{}
		if newest != nil {
			c := newest.clone()
			p.commit = &c
		}
	}
	for r := g.world; r < g.world+g.spares; r++ {
		g.members[r].join(false, nil)
		delete(g.members, r)
	}
	g.running, g.step, g.open = true, g.state.step, ledger{}
	g.w.logf("%s %s runs: world %d from step %d", g.job.id, g.generation, g.world, g.step)
	g.w.after(g.w.between(20*time.Millisecond, 60*time.Millisecond), g.advance)
}

// advance performs one step of all members together.
func (g *group) advance() {
	if g.broken || g.brokenByPartition() || g.stopped() {
		return
	}
	g.step++
	if g.step == uint64(g.job.shape.breaks) {
		g.members[g.world-1].abort([]int{0})
		return
	}
	s := g.job.spec
	n := min(uint64(g.job.shape.batch), s.Data.Samples-(g.state.cursor+g.open.count))
	from := g.state.cursor + g.open.count
	for r := range uint64(g.world) { // uneven shares; the reduction adds up what each has consumed
		share := ledger{}
		for i := from + n*r/uint64(g.world); i < from+n*(r+1)/uint64(g.world); i++ {
			share.add(ledger{count: 1, sum: tables.SampleHash(g.job.sample(g.state.epoch, i))})
		}
		g.open.add(share)
	}
	ends := g.state.cursor+g.open.count == s.Data.Samples
	for r := range g.world {
		rep := workerprotocol.Report{Generation: uint64(g.generation), Step: g.step}
		if !g.first {
			rep.First = &workerprotocol.FirstStep{
				Survivor: g.members[r].left == uint64(g.generation)-1 && g.generation > 1,
				AbortMS:  3, RejoinMS: 20, SyncMS: 5, StepMS: 10,
			}
		}
		g.report(g.members[r], worker.WorkerReported{Worker: g.members[r].start.Worker, Report: rep})
	}
	g.first = true
	if g.broken {
		return
	}
	if ends || g.step%uint64(g.job.shape.every) == 0 {
		g.commit(ends)
		return
	}
	g.w.after(g.pace(), g.advance)
}

func (g *group) pace() time.Duration {
	return g.w.between(g.job.shape.pace, g.job.shape.pace*5/4)
}

func (g *group) report(p *process, in worker.Input) {
	if p.alive {
		p.node.later(g.w.between(0, 3*time.Millisecond), in)
	}
}

// commit is the reduction after which every member copies the state. A member that has the result
// saves it, even if a peer dies meanwhile; one that has not, fails.
func (g *group) commit(ends bool) {
	next := g.state.clone()
	next.generation, next.step = uint64(g.generation), g.step
	next.consume(g.open, ends)
	finished := next.epoch == uint64(g.job.shape.epochs)
	planned := false
	for r := range g.world {
		planned = planned || g.members[r].planned
	}
	g.w.check.committed(g.job, next)
	slowest := time.Duration(0)
	for r := range g.world {
		p := g.members[r]
		late := g.w.between(0, 15*time.Millisecond)
		slowest = max(slowest, late)
		p.after(late, func() {
			if g.torn != nil && g.torn.dies == p.start.Place {
				p.exit(-1, "SIGKILL")
				return
			}
			if p.group != g || (g.torn != nil && g.torn.keeps != p.start.Place) || (g.broken && g.w.maybe(50)) {
				return
			}
			p.saved(next, planned, finished)
		})
	}
	g.w.after(slowest+time.Microsecond, func() {
		if g.broken || planned || finished {
			return
		}
		g.state, g.open = next, ledger{}
		g.advance()
	})
}

// saved handles a commit at one member.
func (p *process) saved(c snapshot, planned, finished bool) {
	c = c.clone()
	p.commit = &c
	g := p.group
	g.report(p, worker.WorkerCommitted{Worker: p.start.Worker, Report: workerprotocol.CommitReport{
		Commit: workerprotocol.Commit{Generation: c.generation, Step: c.step, Hash: c.hash()}, Ledger: c.ledger(),
	}})
	switch {
	case finished:
		p.done = true
		done := workerprotocol.DoneReport{Generation: uint64(g.generation), Step: c.step, Ledger: c.ledger()}
		p.after(4*time.Millisecond, func() {
			p.node.input(worker.WorkerFinished{Worker: p.start.Worker, Report: done})
			p.after(p.w.between(time.Millisecond, 300*time.Millisecond), func() { p.exit(0, "") })
		})
	case planned:
		p.after(p.w.between(time.Millisecond, 20*time.Millisecond), func() {
			if p.group == g {
				p.join(true, nil)
			}
		})
	}
}

// brokenByPartition breaks the group if two members cannot reach each other; each accuses the
// other.
func (g *group) brokenByPartition() bool {
	for r := range g.world {
		for q := range r {
			a, b := g.members[r], g.members[q]
			if a == nil || b == nil || g.w.partitioned[[2]ident.NodeID{a.node.id, b.node.id}] <= 0 {
				continue
			}
			g.accuse(a, q)
			g.accuse(b, r)
			return true
		}
	}
	return false
}

// accuse has a member fail soon, which accuses a rank.
func (g *group) accuse(p *process, rank int) {
	p.after(g.w.between(time.Millisecond, 80*time.Millisecond), func() {
		if p.group == g {
			p.abort([]int{rank})
		}
	})
}

// partition separates the workers of two nodes for d.
func (w *world) partition(a, b ident.NodeID, d time.Duration) {
	set := func(by int) {
		w.partitioned[[2]ident.NodeID{a, b}] += by
		w.partitioned[[2]ident.NodeID{b, a}] += by
	}
	set(1)
	w.after(d, func() { set(-1) })
}

// ledger counts the samples consumed of one epoch.
type ledger struct{ count, sum uint64 }

func (l *ledger) add(m ledger) { l.count += m.count; l.sum += m.sum }

// snapshot is one committed state: the position in the data together with the ledger.
type snapshot struct {
	generation, step uint64
	epoch, cursor    uint64
	samples          uint64
	account          ledger   // of the current epoch
	epochs           []ledger // finished
}

func (s snapshot) clone() snapshot {
	s.epochs = slices.Clone(s.epochs)
	return s
}

func (s snapshot) newer(o snapshot) bool {
	if s.generation != o.generation {
		return s.generation > o.generation
	}
	return s.step > o.step
}

func (s snapshot) hash() string {
	return ident.Token(fmt.Sprint(s.generation, s.step, s.epoch, s.cursor, s.account, s.epochs))[:8]
}

// consume advances by the samples of the steps since the last commit.
func (s *snapshot) consume(l ledger, ends bool) {
	s.account.add(l)
	s.cursor += l.count
	if ends {
		s.epochs = append(s.epochs, s.account)
		s.epoch, s.cursor, s.account = s.epoch+1, 0, ledger{}
	}
}

func (s snapshot) ledger() workerprotocol.Ledger {
	l := workerprotocol.Ledger{Samples: s.samples}
	for i, e := range s.epochs {
		l.Epochs = append(l.Epochs, workerprotocol.LedgerEpoch{Epoch: uint64(i), Count: e.count, Sum: e.sum, Done: true})
	}
	if s.account.count > 0 {
		l.Epochs = append(l.Epochs, workerprotocol.LedgerEpoch{Epoch: s.epoch, Count: s.account.count, Sum: s.account.sum})
	}
	return l
}
