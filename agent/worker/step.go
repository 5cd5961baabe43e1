// Package worker decides what the agent of a node must do next, given the newest launch of every
// job, the state of the processes and the workers' calls.
//
// It is a pure machine: Step applies one input and returns the actions in the order in which they
// must be performed. It is level-triggered: every input ends in a comparison of what each launch
// wants with what runs, so repeats, gaps and late inputs are harmless. The phases of an
// incarnation:
//
//	planned --StartProcess--> starting --> running --> ended
//
// planned exists in restart recovery only: the agent joins on behalf of a process that it has not
// started yet. Services decide who is in a generation, whether a dead worker is respawned, and when
// a job is over.
package worker

import (
	"cmp"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// Times that are not part of a specification.
const (
	// A join that was accepted and that no launch has answered is repeated; a lost launch is
	// published again before.
	rejoinEvery = 5 * time.Second
	// a call without an answer counts as lost; each has a timeout of its own
	joinTimeout   = time.Minute
	firstBackoff  = 50 * time.Millisecond // after a refused join; doubles up to lastBackoff
	lastBackoff   = time.Second
	progressEvery = 50 * time.Millisecond // per worker
	masterTimeout = time.Second           // PrepareMaster is repeated
	forgetAfter   = 10 * time.Minute      // a stopped job without processes
	rememberIdle  = 256                   // such jobs; every input and heartbeat costs some time for each

	// holdExit is how long the end of a worker by SIGTERM waits for a SIGTERM to the agent: batch
	// systems send both at once, and an exit on a departing node is no counted failure.
	holdExit = 50 * time.Millisecond
)

// transition is one Step in progress.
type transition struct {
	s       *State
	now     time.Time
	actions []Action
}

func (t *transition) do(a ...Action) { t.actions = append(t.actions, a...) }

// Step applies one input. It is total and changes s in place; now is the agent's clock.
func Step(s State, in Input, now time.Time) (State, []Action) {
	t := &transition{s: &s, now: now}
	in.apply(t)
	for _, id := range s.jobIDs() {
		t.releaseExits(s.jobs[id])
		t.reconcile(s.jobs[id])
	}
	t.forget()
	return s, t.actions
}

// forget drops the jobs that were stopped first if there are many without processes. Should an old
// launch of one come again, the next heartbeat makes the rendezvous publish the newest.
func (t *transition) forget() {
	var idle []*job
	for _, j := range t.s.jobs {
		if !j.idle.IsZero() {
			idle = append(idle, j)
		}
	}
	if len(idle) <= rememberIdle {
		return
	}
	slices.SortFunc(idle, func(a, b *job) int {
		return cmp.Or(a.idle.Compare(b.idle), cmp.Compare(a.launch.Job, b.launch.Job))
	})
	for _, j := range idle[:len(idle)-rememberIdle] {
		delete(t.s.jobs, j.launch.Job)
	}
}

// job returns the state of a job, which it creates if needed.
func (t *transition) job(id ident.JobID) *job {
	j := t.s.jobs[id]
	if j == nil {
		j = &job{incarnations: map[ident.Slot]*incarnation{}}
		j.launch.Job = id
		t.s.jobs[id] = j
	}
	return j
}

func (in Launched) apply(t *transition) {
	l := in.Launch
	if l.Node != t.s.cfg.Node {
		return
	}
	j := t.job(l.Job)
	if l.Revision <= j.launch.Revision {
		return
	}
	l.Spec = l.Spec.WithDefaults()
	l.Members = slices.Clone(l.Members)
	slices.SortFunc(l.Members, func(a, b events.LaunchMember) int { return cmp.Compare(a.Place.Slot, b.Place.Slot) })
	if l.Phase != j.launch.Phase || l.Generation != j.launch.Generation {
		j.launchedAt = t.now
	}
	j.launch, j.idle = l, time.Time{}
	if now := t.s.cfg.contexts(l); !slices.EqualFunc(now, j.contexts, workerenv.Context.Equal) {
		j.contexts, j.contextsAt = now, t.now
	}
	if l.Phase != events.PhaseStop && !j.trains() {
		j.formed = formation{generation: l.Generation, trace: t.startTrace(j)}
	}
}

// reconcile compares what a job's launch wants with what runs.
func (t *transition) reconcile(j *job) {
	t.endLeases(j)
	if t.s.stopping || j.launch.Phase == events.PhaseStop {
		t.stopAll(j)
	} else if j.launch.Revision > 0 && j.inProcess() {
		t.inProcess(j)
	} else if j.launch.Revision > 0 {
		t.restart(j)
	}
	for _, slot := range j.slots() {
		t.applyDeadlines(j, j.incarnations[slot])
	}
	t.keepSpares(j)
}

// stopAll ends every worker of a job. A stopped job without processes is dropped after a while.
func (t *transition) stopAll(j *job) {
	alive := false
	for _, slot := range j.slots() {
		w := j.incarnations[slot]
		if w.phase == planned {
			delete(j.incarnations, slot)
			continue
		}
		if w.join != nil && w.alive() && j.launch.Phase == events.PhaseStop {
			t.dismiss(w, workerprotocol.Removed)
		}
		if !w.alive() {
			continue
		}
		alive = true
		if now := t.s.immediate || j.launch.Now; now || t.s.stopping || w.verdict == "" {
			t.stop(j, w, now)
		} // otherwise it was just notified that it is no member any more, and has its grace to exit by itself
	}
	if !alive {
		t.releaseMasters(j)
	}
	switch {
	case alive:
		j.idle = time.Time{}
	case j.idle.IsZero():
		j.idle = t.now
	case t.now.Sub(j.idle) >= forgetAfter:
		delete(t.s.jobs, j.launch.Job)
	}
}

// stop terminates a process, and kills it after the grace. A process that is still being started is
// stopped afterwards.
func (t *transition) stop(j *job, w *incarnation, now bool) {
	if w.phase != running || w.killed || w.dying {
		return
	}
	if now {
		t.kill(w)
		return
	}
	if !w.stopRequested {
		w.stopRequested = true
		w.stoppedAt = t.now
		w.killAt = t.now.Add(j.launch.Spec.Stop.Grace.D())
		t.do(SignalProcess{Worker: w.ref.Incarnation, Signal: cmp.Or(j.launch.Spec.Stop.Signal, "SIGTERM")})
	}
}

func (t *transition) kill(w *incarnation) {
	if w.phase != running || w.killed || w.dying {
		return
	}
	if !w.stopRequested {
		w.stoppedAt = t.now
	}
	w.stopRequested, w.killed = true, true
	t.do(KillProcess{Worker: w.ref.Incarnation})
}

func (t *transition) applyDeadlines(j *job, w *incarnation) {
	if w.stopRequested && !w.killed && !w.killAt.IsZero() && !t.now.Before(w.killAt) {
		t.kill(w)
	}
	if w.alive() && !w.releasedAt.IsZero() && !t.now.Before(w.releasedAt.Add(j.launch.Spec.Stop.Grace.D())) {
		t.stop(j, w, false)
	}
	if w.progressPending && t.now.Sub(w.sentAt) >= progressEvery {
		t.sendProgress(w)
	}
	if w.join != nil && !t.now.Before(w.join.due()) {
		t.sendJoin(w)
	}
}

// due returns when the join must be sent: a call in flight gets its time to be answered.
func (q *join) due() time.Time {
	if !q.sentAt.IsZero() {
		return q.sentAt.Add(joinTimeout)
	}
	return q.sendAt
}

// Deadline returns when Step must be given a Tick even without other inputs; zero = never.
func Deadline(s State) time.Time {
	var d time.Time
	at := func(x time.Time) {
		if !x.IsZero() && (d.IsZero() || x.Before(d)) {
			d = x
		}
	}
	for _, j := range s.jobs {
		if !s.stopping && j.launch.Phase != events.PhaseStop && j.sparesDue() {
			at(j.sparesAt())
		}
		if !j.idle.IsZero() {
			at(j.idle.Add(forgetAfter))
		}
		for _, w := range j.incarnations {
			at(s.leaseDeadline(j, w))
			if w.stopRequested && !w.killed && w.phase == running {
				at(w.killAt)
			}
			if w.phase == running && !w.releasedAt.IsZero() && !w.stopRequested && !w.dying {
				at(w.releasedAt.Add(j.launch.Spec.Stop.Grace.D()))
			}
			if w.heldExit != nil {
				at(w.heldAt.Add(holdExit))
			}
			if w.progressPending {
				at(w.sentAt.Add(progressEvery))
			}
			if w.join != nil && w.phase != starting && (w.phase != planned || w.address != "") {
				at(w.join.due())
			}
			if w.phase == planned && w.address == "" {
				at(j.master.asked.Add(masterTimeout))
			}
		}
	}
	return d
}
