package job

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/spec"
)

// StepTracker is how long each job has made no step, as one replica hears it. It is lost with the
// replica. A replica that was disconnected, paused or has just started accuses nobody before a full
// grace, and its observation counts only while no other replica has stored a later step; so a job
// is taken for hung when nobody has heard it.
//
// The newest step of any worker is a sign of life of the whole job: its workers step together, and
// one that loops outside of a collective stops them all.
type StepTracker struct {
	Gap time.Duration // a longer gap between two looks means that we, not they, were away

	jobs      map[events.JobID]*trackedJob
	paused    bool
	lastCheck time.Time
}

type trackedJob struct {
	generation     events.Generation
	limit          time.Duration   // 0 = the job is not aged
	newest         events.Progress // heard in generation
	stored         uint64          // step in the record
	storedAt       time.Time
	lastProgress   time.Time // last sign of life, or the begin of a grace
	lastReported   time.Time // last named
	lastOffered    time.Time // newest was last offered to the record
	newestAt       time.Time // newest was heard
	reported       map[string]events.Metric
	metricsChanged bool // reported is news to the record
}

// Update takes in the registry's own record of a job. Only a running one is heard, and only one
// that is known to tell its steps is aged: of the others, silence says nothing.
func (a *StepTracker) Update(v events.JobView, now time.Time) {
	if v.State != events.JobStateRunning || v.Generation == 0 {
		delete(a.jobs, v.Job)
		return
	}
	j := a.jobs[v.Job]
	if j == nil || j.generation != v.Generation {
		still := v.TimeWithoutStep.D()
		if j == nil {
			still = 0 // a replica that has just begun has not heard those before
		}
		reported := v.Reported
		if j != nil {
			reported = j.reported
		}
		j = &trackedJob{generation: v.Generation, lastProgress: now.Add(-still), stored: v.Step, storedAt: v.StepAt, reported: reported}
		if a.jobs == nil {
			a.jobs = map[events.JobID]*trackedJob{}
		}
		a.jobs[v.Job] = j
	}
	if v.Step > max(j.newest.Step, j.stored) { // another replica has heard more
		j.lastProgress, j.lastReported = now, time.Time{}
	}
	j.stored, j.storedAt = v.Step, v.StepAt
	j.limit = 0
	if v.Step > 0 {
		j.limit = v.Spec.Health.Hang.D()
	}
}

// Forget drops a job whose record was removed.
func (a *StepTracker) Forget(id events.JobID) { delete(a.jobs, id) }

// Observe takes in how far a worker is. A repeat of an old step is no sign of life.
func (a *StepTracker) Observe(p events.Progress, now time.Time) {
	j := a.jobs[p.Job]
	if j == nil || p.Generation != j.generation {
		return
	}
	if c := p.Commit; c != nil && (j.newest.Commit == nil || c.Newer(*j.newest.Commit)) {
		j.newest.Commit = c
	}
	all, news := events.MergeMetrics(j.reported, events.MetricsOf(p.Metrics, p.MetricSteps, p.Step, p.Rank, now))
	j.reported, j.metricsChanged = all, j.metricsChanged || news
	if p.Step <= j.newest.Step {
		return
	}
	commit := j.newest.Commit
	j.newest = p
	j.newest.Commit, j.newest.Metrics, j.newest.MetricSteps = commit, nil, nil
	j.newestAt = now
	j.lastProgress, j.lastReported = now, time.Time{}
}

// Progress tells how far a job is, as far as this replica has heard; false if it does not run, or
// nothing was heard of it.
func (a *StepTracker) Progress(id events.JobID) (events.JobProgress, bool) {
	j := a.jobs[id]
	if j == nil || (j.newest.Step == 0 && len(j.reported) == 0) {
		return events.JobProgress{}, false
	}
	return events.JobProgress{Generation: j.generation, Step: j.newest.Step, At: j.newestAt, Reported: j.reported}, true
}

// Connected says whether this replica can hear anything at all. Ageing stops while it cannot.
func (a *StepTracker) Connected(is bool, now time.Time) {
	if is && a.paused {
		a.restartTimeouts(now)
	}
	a.paused = !is
}

// Check returns which jobs stand still, and which steps are news to the record, by job. Each job is
// named again only after the same time has passed once more, in case that nothing came of it.
func (a *StepTracker) Check(now time.Time) (still []events.StepsStalled, news []events.Progress) {
	gap := now.Sub(a.lastCheck)
	if !a.lastCheck.IsZero() && (gap > a.Gap || gap < 0) {
		a.restartTimeouts(now) // paused process, suspended machine, or a clock that was set back
	}
	a.lastCheck = now
	if a.paused {
		return nil, nil
	}
	for _, id := range slices.Sorted(maps.Keys(a.jobs)) {
		j := a.jobs[id]
		p := j.newest
		if ((p.Step > 0 && p.Step != j.stored) || j.metricsChanged) && !now.Before(j.storedAt.Add(StepEvery)) && !now.Before(j.lastOffered.Add(StepEvery)) {
			j.lastOffered, j.metricsChanged = now, false
			p.Job, p.Generation, p.Reported = id, j.generation, j.reported
			news = append(news, p)
		}
		silent := now.Sub(j.lastProgress)
		if j.limit > 0 && silent >= j.limit && now.Sub(j.lastReported) >= j.limit {
			j.lastReported = now
			still = append(still, events.StepsStalled{Job: id, Generation: j.generation, Step: max(j.newest.Step, j.stored), For: spec.Duration(silent)})
		}
	}
	return still, news
}

// restartTimeouts begins all silences anew.
func (a *StepTracker) restartTimeouts(now time.Time) {
	for _, j := range a.jobs {
		j.lastProgress, j.lastReported = now, time.Time{}
	}
}
