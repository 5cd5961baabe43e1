package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/agent/workerapi/wire"
)

// hang stops a process as SIGSTOP does: its connections stay open, it does nothing, and only
// SIGKILL ends it. A member of a running generation stops at its next step.
func (p *process) hang() {
	if !p.alive || p.done || p.hung {
		return
	}
	p.hung = true
	p.w.logf("%s: %s hangs", p.node.id, p.start.Place)
}

// wake resumes a process.
func (p *process) wake() {
	if !p.alive || !p.hung {
		return
	}
	p.hung = false
	p.w.logf("%s: %s goes on", p.node.id, p.start.Place)
	if a := p.unread; a != nil {
		p.unread = nil
		p.assigned(*a)
		return
	}
	switch g := p.group; {
	case p.done:
		p.exit(0, "")
	case p.waiting:
		p.call(p.calls)
	case g == nil:
		p.job.resume(p)
	case g.broken || p.generationLost:
		p.generationLost = false
		p.abort(nil)
	case g.stuck:
		g.stuck = false
		p.w.after(g.pace(), g.advance)
	}
}

// stopped reports whether a member hangs; the others wait for it in their collective.
func (g *group) stopped() bool {
	for r := range g.world {
		if p := g.members[r]; p != nil && p.hung {
			g.stuck = true
		}
	}
	return g.stuck
}

// resume continues a program under restart recovery.
func (j *jobRun) resume(p *process) {
	if g := j.worlds[p.start.Generation]; g != nil && g.stuck {
		g.stuck = false
		j.runSteps(g)
	}
}

// stopped reports whether a rank hangs.
func (g *restarted) stopped() bool {
	for _, r := range slices.Sorted(maps.Keys(g.ranks)) {
		g.stuck = g.stuck || g.ranks[r].hung
	}
	return g.stuck
}

// hangWorker stops a worker. If its job has no hang detection, the worker continues after a while.
func (w *world) hangWorker(f fault) {
	alive := w.running()
	if len(alive) == 0 {
		return
	}
	p := alive[f.a%len(alive)]
	p.hang()
	if !p.found() || f.b%2 == 0 {
		w.after(f.last, p.wake)
	}
}

// found reports whether hang detection covers a process: its job is known to make steps, and it
// takes part in them.
func (p *process) found() bool {
	if p.job.spec.Health.Hang == 0 || p.w.check.view(p.job).Step == 0 {
		return false
	}
	if p.inProcess() {
		return p.group != nil && p.group.running && !p.group.broken
	}
	g := p.job.worlds[p.start.Generation]
	return g != nil && g.whole && !g.hurt
}

// wakeAll ends the hangs that no service would detect.
func (w *world) wakeAll() {
	for _, p := range w.running() {
		if p.job.spec.Health.Hang == 0 {
			p.wake()
		}
	}
}

// reportStep reports the steps of a program under restart recovery, if its job has hang detection.
func (j *jobRun) reportStep(g *restarted) {
	if p := g.ranks[0]; p != nil && p.alive && j.spec.Health.Hang > 0 {
		p.node.input(worker.WorkerReported{Worker: p.start.Worker, Report: wire.Report{Generation: uint64(p.start.Generation), Step: uint64(j.saved)}})
	}
}

// hangLimit is the hang timeout of the simulation's jobs that have one: longer than any healthy
// pause.
const hangLimit = 10 * time.Second
