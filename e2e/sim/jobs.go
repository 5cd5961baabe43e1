package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/cloudevent"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/events/tables"
)

// jobRun is one job as its users and its workers see it.
type jobRun struct {
	w      *world
	id     ident.JobID
	shape  jobShape
	spec   spec.Job
	groups map[ident.Generation]*group
	wanted []spec.Workers // every range of workers that was ever requested

	// Restart recovery: the program continues from a checkpoint on disk.
	worlds map[ident.Generation]*restarted
	saved  int // seconds of work that are on disk
}

func newJobRun(w *world, i int, s jobShape) *jobRun {
	jobSpec := s.spec()
	jobSpec.Workers = jobSpec.WithDefaults().Workers
	jobSpec.Name = fmt.Sprintf("job%d", i)
	j := &jobRun{
		w: w, shape: s, spec: jobSpec.WithDefaults(), groups: map[ident.Generation]*group{}, worlds: map[ident.Generation]*restarted{},
		wanted: []spec.Workers{jobSpec.Workers},
	}
	e := events.Event{ID: "submit-" + jobSpec.Name, Source: "/client", Time: epoch, Body: events.JobSubmit{Spec: jobSpec}}
	j.id = ident.JobIDFrom(jobSpec.Name, e.Source, e.ID)
	w.at(epoch.Add(s.at), func() { w.command(e) })
	w.buildParticipants(j, s.participants)
	return j
}

// send publishes a client's command, with an id of its kind.
func (w *world) send(kind string, b events.Body) {
	w.command(events.Event{ID: w.id(kind), Source: "/client", Time: w.now, Body: b})
}

// command publishes a client's command.
func (w *world) command(e events.Event) {
	w.logf("client: %s %s", e.Body.Type().Kind(), brief(e.Body))
	m, err := cloudevent.Encode(e)
	if err != nil {
		panic(err) // the simulation's own client is wrong
	}
	w.publish(m)
}

func (w *world) jobOf(id ident.JobID) *jobRun {
	for _, j := range w.jobs {
		if j.id == id {
			return j
		}
	}
	return nil
}

// groupOf finds the communicator of a generation, which must be the same for all its members.
func (j *jobRun) groupOf(n ident.Generation, token string, world, spares int) *group {
	g := j.groups[n]
	if g == nil {
		g = &group{w: j.w, job: j, generation: n, token: token, world: world, spares: spares, members: map[int]*process{}, lost: map[int]bool{}}
		j.groups[n] = g
	}
	if g.token != token || g.world != world || g.spares != spares {
		j.w.check.fail(1, "%s of %s has two worlds: %d and %d ranks", n, j.id, g.world, world)
	}
	return g
}

func (j *jobRun) zero() snapshot { return snapshot{samples: j.spec.Data.Samples} }

// sample is the order of the samples: a permutation computed from the index.
func (j *jobRun) sample(epoch, i uint64) uint64 {
	n := j.spec.Data.Samples
	step := uint64(7)
	for gcd(step, n) != 1 {
		step += 2
	}
	return (i*step + epoch*13) % n
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// total is the ledger of an epoch in which every sample was consumed exactly once.
func (j *jobRun) total() ledger {
	l := ledger{count: j.spec.Data.Samples}
	for i := range j.spec.Data.Samples {
		l.sum += tables.SampleHash(i)
	}
	return l
}

// restarted is one generation under restart recovery.
type restarted struct {
	world int
	ranks map[int]*process
	whole bool
	hurt  bool
	stuck bool // a rank hangs
}

// enter handles the initialisation of a process: work starts when all ranks are present.
func (j *jobRun) enter(p *process) {
	g := j.worlds[p.start.Generation]
	if g == nil {
		g = &restarted{world: p.world, ranks: map[int]*process{}}
		j.worlds[p.start.Generation] = g
	}
	if g.world != p.world {
		j.w.check.fail(1, "%s of %s has two worlds: %d and %d ranks", p.start.Generation, j.id, g.world, p.world)
		return
	}
	if q := g.ranks[p.rank]; q != nil && q != p {
		j.w.check.fail(1, "rank %d of %s of %s was started at %s and at %s", p.rank, p.start.Generation, j.id, q.start.Place, p.start.Place)
		return
	}
	g.ranks[p.rank] = p
	if len(g.ranks) == g.world && !g.hurt {
		g.whole = true
		j.runSteps(g)
		return
	}
	p.after(6*time.Second, func() {
		if !g.whole || g.hurt {
			p.exit(1, "")
		}
	})
}

// runSteps does one second of work at a time and saves it.
func (j *jobRun) runSteps(g *restarted) {
	if g.hurt || g.stopped() {
		return
	}
	if j.saved < j.shape.work {
		j.w.after(time.Second, func() {
			if !g.hurt && !g.stopped() {
				j.saved++
				j.reportStep(g)
				j.runSteps(g)
			}
		})
		return
	}
	for _, r := range slices.Sorted(maps.Keys(g.ranks)) {
		p := g.ranks[r]
		p.after(j.w.between(0, 400*time.Millisecond), func() {
			p.done = true
			p.exit(0, "")
		})
	}
}

// quit removes a process; its peers fail or hang.
func (j *jobRun) quit(p *process) {
	g := j.worlds[p.start.Generation]
	if g == nil || j.shape.apart > 0 || p.done || g.hurt || g.ranks[p.rank] != p {
		return
	}
	g.hurt = true
	for _, r := range slices.Sorted(maps.Keys(g.ranks)) {
		q := g.ranks[r]
		if q.alive && !q.done && (j.w.sc.exact || j.w.maybe(60)) {
			q.after(j.w.between(10*time.Millisecond, 800*time.Millisecond), func() { q.exit(1, "") })
		}
	}
}
