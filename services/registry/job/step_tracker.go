package job

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/spec"
	"github.com/regroup-io/regroup/services/localhealth"
)

// StepTracker tracks how long each job has made no step, as far as one replica has received. It is
// lost with the replica. A replica that was disconnected, paused or has just started reports no
// stall before a full timeout, and its observation counts only while no other replica has stored a
// later step; so a job counts as stalled only if no replica has received a step.
//
// The newest step of any worker shows that the whole job is alive: its workers step together, and
// one that loops outside of a collective stops them all.
type StepTracker struct {
	Gap time.Duration // a longer gap between two checks means that this replica was paused

	jobs   map[ident.JobID]*trackedJob
	health localhealth.Monitor
}

type trackedJob struct {
	generation       ident.Generation
	limit            time.Duration   // 0 = stalls of the job are not tracked
	newest           events.Progress // received in generation
	stored           uint64          // step in the record
	storedAt         time.Time
	lastProgress     time.Time // last progress, or the start of a timeout
	lastReported     time.Time // last reported as stalled
	lastOffered      time.Time // newest was last offered to the record
	newestAt         time.Time // newest was received
	earlier          uint64    // newest step of the generations before
	earlierAt        time.Time // it was received
	reported         map[string]events.Metric
	metricsChanged   bool               // the record lacks the newest metrics
	redundancy       *events.Redundancy // the newest one, of this generation or before
	storedRedundancy *events.Redundancy // in the record
}

// Update applies the registry's own record of a job. Only running jobs are tracked, and stalls only
// of jobs that are known to report their steps.
func (a *StepTracker) Update(v events.JobView, now time.Time) {
	if v.State != events.JobStateRunning || v.Generation == 0 {
		delete(a.jobs, v.Job)
		return
	}
	j := a.jobs[v.Job]
	if j == nil || j.generation != v.Generation {
		still := v.TimeWithoutStep.D()
		if j == nil {
			still = 0 // a replica that has just started has not received the earlier ones
		}
		reported := v.Reported
		var redundancy *events.Redundancy
		var earlier uint64
		var earlierAt time.Time
		if j != nil {
			reported, redundancy = j.reported, j.redundancy
			if earlier, earlierAt = j.newest.Step, j.newestAt; earlier == 0 {
				earlier, earlierAt = j.earlier, j.earlierAt
			}
		}
		j = &trackedJob{
			generation: v.Generation, lastProgress: now.Add(-still), stored: v.Step, storedAt: v.StepAt, reported: reported,
			earlier: earlier, earlierAt: earlierAt, redundancy: redundancy,
		}
		if a.jobs == nil {
			a.jobs = map[ident.JobID]*trackedJob{}
		}
		a.jobs[v.Job] = j
	}
	if v.Step > max(j.newest.Step, j.stored) { // another replica has received more
		j.lastProgress, j.lastReported = now, time.Time{}
	}
	j.stored, j.storedAt, j.storedRedundancy = v.Step, v.StepAt, v.Redundancy
	j.redundancy = events.NewerRedundancy(j.redundancy, v.Redundancy)
	j.limit = 0
	if v.Step > 0 {
		j.limit = v.Spec.Health.Hang.D()
	}
}

// Forget drops a job whose record was removed.
func (a *StepTracker) Forget(id ident.JobID) { delete(a.jobs, id) }

// Observe records a worker's progress. A repeat of an old step does not count.
func (a *StepTracker) Observe(p events.Progress, now time.Time) {
	j := a.jobs[p.Job]
	if j == nil || p.Generation != j.generation {
		return
	}
	if c := p.Commit; c != nil && (j.newest.Commit == nil || c.Newer(*j.newest.Commit)) {
		j.newest.Commit = c
	}
	j.redundancy = events.NewerRedundancy(j.redundancy, events.RedundancyOf(p, now))
	all, changed := events.MergeMetrics(j.reported, events.MetricsOf(p.Metrics, p.MetricSteps, p.Step, p.Rank, now))
	j.reported, j.metricsChanged = all, j.metricsChanged || changed
	if p.Step <= j.newest.Step {
		return
	}
	commit := j.newest.Commit
	j.newest = p
	j.newest.Commit, j.newest.Metrics, j.newest.MetricSteps, j.newest.Redundancy = commit, nil, nil, nil
	j.newestAt = now
	j.lastProgress, j.lastReported = now, time.Time{}
}

// Progress returns a job's progress as far as this replica has received it; false if the job does
// not run or nothing was received. The newest step stays that of an earlier generation until one of
// the present generation is known.
func (a *StepTracker) Progress(id ident.JobID) (events.JobProgress, bool) {
	j := a.jobs[id]
	if j == nil {
		return events.JobProgress{}, false
	}
	p := events.JobProgress{Generation: j.generation, Step: j.newest.Step, At: j.newestAt, Reported: j.reported, Redundancy: j.redundancy}
	if p.Step == 0 && j.earlierAt.After(j.storedAt) {
		p.Step, p.At = j.earlier, j.earlierAt
	}
	return p, p.Step > 0 || len(p.Reported) > 0 || p.Redundancy != nil
}

// Connected sets whether this replica receives anything at all. Timeouts stop while it does not.
func (a *StepTracker) Connected(is bool, now time.Time) {
	if a.health.Connected(is) {
		a.restartTimeouts(now)
	}
}

// Check returns the jobs that are stalled and the steps that the record lacks, by job. A job is
// returned again only after another full timeout, in case the report had no effect.
func (a *StepTracker) Check(now time.Time) (still []events.StepsStalled, unstored []events.Progress) {
	if a.health.Check(now, a.Gap) {
		a.restartTimeouts(now)
	}
	if a.health.Disconnected() {
		return nil, nil
	}
	for _, id := range slices.Sorted(maps.Keys(a.jobs)) {
		j := a.jobs[id]
		p := j.newest
		news := (p.Step > 0 && p.Step != j.stored) || j.metricsChanged || j.redundancy.Differs(j.storedRedundancy)
		if news && !now.Before(j.storedAt.Add(StepEvery)) && !now.Before(j.lastOffered.Add(StepEvery)) {
			j.lastOffered, j.metricsChanged = now, false
			p.Job, p.Generation, p.Reported, p.Known = id, j.generation, j.reported, j.redundancy
			unstored = append(unstored, p)
		}
		silent := now.Sub(j.lastProgress)
		if j.limit > 0 && silent >= j.limit && now.Sub(j.lastReported) >= j.limit {
			j.lastReported = now
			still = append(still, events.StepsStalled{Job: id, Generation: j.generation, Step: max(j.newest.Step, j.stored), For: spec.Duration(silent)})
		}
	}
	return still, unstored
}

func (a *StepTracker) restartTimeouts(now time.Time) {
	for _, j := range a.jobs {
		j.lastProgress, j.lastReported = now, time.Time{}
	}
}
