package worker

import (
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/workerenv"
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/spares"
)

// sparesAfter is how long after the last start of a worker of the job spares are started: until
// then they would compete with it for the processors.
const sparesAfter = 3 * time.Second

// keptSpares are the spares of a job on this node.
type keptSpares struct {
	asked  KeepSpares // the newest request; Count 0 = none are kept
	after  time.Time  // the last start of a worker before it
	seen   SparesKept // the newest answer
	failed bool       // workers have failed because of seen.Problem
}

// keepSpares asks for the spares of a job, once after each start of a worker that may have taken
// one, and ends them with the job. A job that begins when they are ready gets those that its first
// workers take as well.
func (t *transition) keepSpares(j *job) {
	k := &j.spares
	if t.s.stopping || j.launch.Phase == events.PhaseStop {
		if k.asked.Count > 0 {
			t.do(KeepSpares{Job: j.launch.Job})
		}
		*k = keptSpares{asked: KeepSpares{Request: k.asked.Request}}
		return
	}
	if !j.sparesDue() || t.now.Before(j.sparesAt()) {
		return
	}
	want := t.s.cfg.sparesOf(j)
	want.Request = k.asked.Request + 1
	*k = keptSpares{asked: want, after: j.lastStart, seen: SparesKept{Ready: k.seen.Ready}}
	t.do(want)
}

// sparesOf returns the request for the spares that a job should have now.
func (c Config) sparesOf(j *job) KeepSpares {
	l := j.launch
	p := l.Spec.Processes
	k := KeepSpares{
		Job: l.Job, Count: j.spareCount(), Preload: p.Preload, Contexts: j.contexts, Command: l.Spec.Command, Dir: l.Spec.Workdir, User: p.User,
		Limits: p.Limits, Inherited: Inherited{SubmitEnvironment: p.SubmitEnvironment},
	}
	k.Env, k.Defaults = c.Variables(l, events.LaunchMember{}, workerenv.Process{})
	if j.inProcess() {
		k.Preload = append([]string{"regroup.torch?"}, k.Preload...)
	}
	return k
}

// spareCount returns how many spares a job should have now.
func (j *job) spareCount() int {
	n := j.launch.Spec.Processes.Spares
	switch {
	case j.launch.Spec.Processes.SpareContexts && len(j.contexts) == 0:
		return 0 // no worker is here
	case j.beginsWithSpares():
		return n + len(j.launch.Members)
	}
	return n
}

// contexts returns those of a job's workers on this node, if its spares should have one.
func (c Config) contexts(l events.Launch) (all []workerenv.Context) {
	if l.Spec.Processes.SpareContexts {
		for _, m := range l.Members {
			all = append(all, c.Context(l, m))
		}
	}
	return all
}

// sparesDue reports whether spares are to be asked for, at sparesAt.
func (j *job) sparesDue() bool {
	k := &j.spares
	switch {
	case j.launch.Spec.Processes.Spares == 0 || j.lastStart.IsZero() && !j.beginsWithSpares():
		return false
	case !slices.EqualFunc(j.contexts, k.asked.Contexts, workerenv.Context.Equal):
		return true
	}
	return !k.after.Equal(j.lastStart) || j.spareCount() != k.asked.Count
}

// sparesAt returns when what is due is asked for. A launch may lack a worker for a moment, until it
// is known who takes its place; spares do not end for that.
func (j *job) sparesAt() time.Time {
	switch {
	case j.lastStart.IsZero():
		return time.Time{}
	case j.contextsAt.After(j.lastStart):
		return j.contextsAt.Add(sparesAfter)
	}
	return j.lastStart.Add(sparesAfter)
}

// beginsWithSpares reports whether the job has not begun, and does so when its spares are ready.
func (j *job) beginsWithSpares() bool {
	l := j.launch
	return l.Spec.Processes.AwaitSpares && l.Phase == events.PhasePrepare && l.From == 0 && j.lastStart.IsZero() && len(l.Members) > 0
}

// awaitsSpares reports whether the first worker in a slot must not be started yet: the job begins
// when its spares are ready. If one cannot be, the worker fails. Its next attempt has them started
// again.
func (t *transition) awaitsSpares(j *job, m events.LaunchMember) bool {
	k := &j.spares
	if !j.beginsWithSpares() || k.asked.Count > 0 && k.seen.Ready >= k.asked.Count {
		return false
	}
	if w := j.incarnations[m.Place.Slot]; k.failed && w != nil { // it is the next attempt
		k.asked.Count, k.seen, k.failed = 0, SparesKept{}, false
	}
	if k.seen.Problem != "" {
		k.failed = true
		w := t.newIncarnation(j, m)
		w.phase = starting
		t.endIncarnation(j, w, events.WorkerExited{ExitCode: exitNotReady, Detail: "cannot start: a spare does not become ready: " + k.seen.Problem}, 0)
	}
	return true
}

// exitNotReady is the exit code of a worker whose job waits for a spare that cannot be ready: that
// of a shell for a command that cannot be executed.
const exitNotReady = 126

func (in SparesKept) apply(t *transition) {
	if j := t.s.jobs[in.Job]; j != nil && in.Request == j.spares.asked.Request {
		j.spares.seen = in
	}
}

// Spares returns the spares that are kept, by job.
func (s State) Spares() (kept []spares.Kept) {
	for _, id := range s.jobIDs() {
		j := s.jobs[id]
		if k, n := j.spares, j.spareCount(); k.asked.Count > 0 && n > 0 {
			kept = append(kept, spares.Kept{Job: id, Wanted: n, Ready: k.seen.Ready, Problem: limits.Shorten(k.seen.Problem, limits.Text.Max)})
		}
	}
	return kept
}
