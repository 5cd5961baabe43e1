package sim

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/regroup-io/regroup/agent/worker"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// process is one worker.
type process struct {
	w              *world
	node           *node
	incarnation    int // of the node
	agent          ident.Incarnation
	job            *jobRun
	start          worker.StartProcess
	pid            int
	alive          bool // from the moment of its start action
	endedWithAgent bool // its agent's machine went down
	running        bool
	deaf           bool                 // it ignores the stop signal
	dying          *worker.ProcessDying // it has ended, whether or not its agent can wait for it already
	reclaimed      time.Duration        // how long its agent cannot, at least

	// In-process recovery.
	waiting      bool // in a call of join
	calls        int  // of join
	req          workerprotocol.JoinRequest
	left         uint64 // the newest generation that it has left
	leftReported uint64 // the same, as reported to its agent
	group        *group
	rank         int
	commit       *snapshot
	void         ledger // what its copy counts although it was rolled back (a mutation)
	planned      bool
	done         bool

	hung           bool                       // as under SIGSTOP
	unread         *workerprotocol.Assignment // received while hung
	generationLost bool                       // its generation was lost while it was hung

	// Restart recovery.
	world int
}

func newProcess(n *node, a worker.StartProcess) {
	w := n.w
	p := &process{w: w, node: n, incarnation: n.incarnation, agent: n.agent, job: w.jobOf(a.Job), start: a, alive: true, rank: -1, deaf: w.chance(5)}
	if p.job == nil {
		w.check.fail(12, "%s starts a process of %s, which nobody submitted", n.id, a.Job)
		return
	}
	w.check.starts(p)
	n.procs[a.Worker] = p
	w.logf("%s: starts %s attempt %d g%d", n.id, a.Place, a.Attempt, a.Generation)
	if w.chance(1) {
		p.after(w.between(time.Millisecond, 50*time.Millisecond), func() {
			p.alive = false
			n.input(worker.ProcessFailedToStart{Worker: a.Worker, ExitCode: 1, Detail: "out of memory"})
		})
		return
	}
	starts, imports := w.between(5*time.Millisecond, 200*time.Millisecond), w.between(5*time.Millisecond, 300*time.Millisecond)
	if d, written := n.startDelay[a.Place.Slot]; written {
		delete(n.startDelay, a.Place.Slot)
		starts, imports = d/2, d/2
	}
	p.after(starts, func() {
		w.made++
		p.running, p.pid = true, 1000+w.made
		n.input(worker.ProcessStarted{Worker: a.Worker, PID: p.pid})
		if !p.alive {
			return
		}
		if p.inProcess() {
			p.after(imports, func() { p.join(false, nil) })
			return
		}
		p.rank, _ = strconv.Atoi(a.Env["RANK"])
		p.world, _ = strconv.Atoi(a.Env["WORLD_SIZE"])
		p.job.enter(p)
	})
}

func (p *process) inProcess() bool { return p.job.spec.Recovery == spec.RecoveryInProcess }

// after calls do later unless the process has ended by then.
func (p *process) after(d time.Duration, do func()) {
	p.w.after(d, func() {
		if p.alive {
			do()
		}
	})
}

// exit ends the process; its agent and its peers detect it.
func (p *process) exit(code int, signal string) {
	if !p.alive || (p.hung && signal != "SIGKILL") {
		return
	}
	if !p.running { // it ends as soon as it runs
		p.after(50*time.Millisecond, func() { p.exit(code, signal) })
		return
	}
	p.w.logf("%s: %s exits %d %s", p.node.id, p.start.Place, code, signal)
	p.vanish()
	number := map[string]int{"SIGKILL": 9, "SIGTERM": 15}[signal]
	p.dying = &worker.ProcessDying{Worker: p.start.Worker, ExitCode: max(0, code), Signal: signal, Number: number}
	age := p.w.between(0, 20*time.Millisecond)
	if p.w.chance(20) || p.reclaimed > 0 {
		age = max(p.reclaimed, p.w.between(50*time.Millisecond, 300*time.Millisecond))
	}
	incarnation := p.incarnation
	p.w.after(age, func() {
		if p.node.incarnation == incarnation {
			p.node.input(worker.ProcessExited{Worker: p.start.Worker, ExitCode: code, Signal: signal, Number: number, Age: age})
		}
	})
}

// vanish ends the process without an input to its agent, which may be down too.
func (p *process) vanish() {
	p.alive = false
	if p.group != nil && !p.done {
		p.group.lose(p)
	}
	p.job.quit(p)
}

// term delivers the stop signal.
func (p *process) term() {
	if p.deaf || p.hung {
		return
	}
	p.after(p.w.between(time.Millisecond, 300*time.Millisecond), func() {
		switch {
		case p.done || (p.inProcess() && p.w.maybe(50)):
			p.exit(0, "")
		default:
			p.exit(-1, "SIGTERM")
		}
	})
}

// join leaves the generation, if it is in one, and asks for the next.
func (p *process) join(planned bool, accused []int) {
	if p.group != nil {
		p.left = uint64(p.group.generation)
		p.group = nil
	}
	p.planned, p.rank, p.waiting = false, -1, true
	p.calls++
	p.req = workerprotocol.JoinRequest{
		Address: string(p.node.id) + ".test:" + strconv.Itoa(p.pid), Left: p.left, Planned: planned, Accused: accused,
		Unsynced: p.left == 0 && p.start.Attempt%4 != 0, // some programs cannot prefetch
	}
	if p.left > 0 && !planned {
		p.req.NoticeMS = 1
	}
	if p.commit != nil {
		p.req.Commit = workerprotocol.Commit{Generation: p.commit.generation, Step: p.commit.step, Hash: p.commit.hash()}
	}
	p.call(p.calls)
}

// call is one long poll; it is repeated until there is an answer.
func (p *process) call(number int) {
	if !p.alive || p.hung || !p.waiting || p.calls != number {
		return
	}
	p.node.input(worker.WorkerJoined{Worker: p.start.Worker, Request: p.req})
	p.after(p.w.between(time.Second, 2*time.Second), func() { p.call(number) })
}

// assigned handles the answer to join.
func (p *process) assigned(a workerprotocol.Assignment) {
	if !p.alive || !p.waiting {
		return
	}
	if p.hung {
		p.unread = &a
		return
	}
	if a.Verdict == workerprotocol.Prefetch {
		p.prefetch(a)
		return
	}
	p.waiting = false
	if a.Verdict != workerprotocol.Assigned {
		p.after(p.w.between(time.Millisecond, 100*time.Millisecond), func() { p.exit(0, "") })
		return
	}
	if a.Generation <= p.left {
		p.waiting = true // as in the SDK: the answer is to a cancelled call, so it asks again
		return
	}
	p.rank = a.Rank
	p.group = p.job.groupOf(ident.Generation(a.Generation), a.Token, a.World, a.Spares)
	p.group.admit(p)
}

// prefetch fetches the state from a generation that this process is not in, while that generation
// runs. Sometimes it takes as long as it may.
func (p *process) prefetch(a workerprotocol.Assignment) {
	if a.Generation <= p.req.Holders || !p.req.Unsynced {
		return
	}
	p.req.Holders = a.Generation
	p.calls++
	number := p.calls
	p.call(number)
	took := p.w.between(10*time.Millisecond, 400*time.Millisecond)
	if p.w.chance(10) {
		took = p.w.between(time.Second, 4*time.Second)
	}
	p.after(took, func() {
		if p.waiting && p.calls == number {
			p.req.Unsynced = false
			p.calls++
			p.call(p.calls)
		}
	})
}

// change handles a change of the generation that the agent reports.
func (p *process) change(c workerprotocol.Change) {
	g := p.group
	if !p.alive || g == nil || uint64(g.generation) != c.Generation {
		return
	}
	switch c.Kind {
	case workerprotocol.ChangePlanned:
		p.planned = true
	case workerprotocol.ChangeUndone:
		p.planned = false
	case workerprotocol.ChangeLost:
		if p.hung {
			p.generationLost = true
			return
		}
		var accused []int
		if c.Rank >= 0 {
			accused = []int{c.Rank}
		}
		p.abort(accused)
	}
}

// abort leaves a broken generation; the peers detect that its connections are closed.
func (p *process) abort(accused []int) {
	g := p.group
	if !p.alive || g == nil || p.done || p.hung {
		return
	}
	if p.w.mutant.voidSteps && g.running {
		p.void.add(g.open)
	}
	p.join(false, accused)
	g.lose(p)
}

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
		p.node.input(worker.WorkerReported{Worker: p.start.Worker, Report: workerprotocol.Report{Generation: uint64(p.start.Generation), Step: uint64(j.saved)}})
	}
}

// hangLimit is the hang timeout of the simulation's jobs that have one: longer than any healthy
// pause.
const hangLimit = 10 * time.Second
