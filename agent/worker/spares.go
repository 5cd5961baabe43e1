package worker

import (
	"time"

	"github.com/regroup-io/regroup/events"
)

// sparesAfter is how long after the last start of a worker of the job spares are started: until
// then they would compete with it for the processors.
const sparesAfter = 3 * time.Second

// keepSpares asks for the spares of a job, once after each start of a worker that may have taken
// one, and ends them with the job.
func (t *transition) keepSpares(j *job) {
	over := t.s.stopping || j.launch.Phase == events.PhaseStop
	switch {
	case over && !j.spares.IsZero():
		j.spares = time.Time{}
		t.do(KeepSpares{Job: j.launch.Job})
	case over || !j.sparesDue() || t.now.Before(j.lastStart.Add(sparesAfter)):
	default:
		j.spares = j.lastStart
		p := j.launch.Spec.Processes
		k := KeepSpares{Job: j.launch.Job, Count: p.Spares, Preload: p.Preload, Command: j.launch.Spec.Command, Dir: j.launch.Spec.Workdir, User: p.User, Limits: p.Limits, Inherited: Inherited{SubmitEnvironment: p.SubmitEnvironment}}
		k.Env, k.Defaults = t.s.cfg.environment(j.launch, events.LaunchMember{}, &incarnation{})
		if j.inProcess() {
			k.Preload = append([]string{"regroup.torch?"}, k.Preload...)
		}
		t.do(k)
	}
}

// sparesDue reports whether spares are to be asked for.
func (j *job) sparesDue() bool {
	return j.launch.Spec.Processes.Spares > 0 && !j.lastStart.IsZero() && !j.spares.Equal(j.lastStart)
}
