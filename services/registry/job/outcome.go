package job

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/errcode"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/internal/english"
)

// finishDeadline returns when a finishing job's last workers are stopped, then when they are given
// up, and finally when the wait for the report of the result ends; zero = no wait.
func (s State) finishDeadline() time.Time {
	if s.View.State != events.JobStateFinishing || s.onlyDoneRunning() {
		return time.Time{}
	}
	by := s.Finish.Since.Add(s.View.Spec.Stop.Grace.D())
	if !s.Finish.Stopped.IsZero() {
		by = s.Finish.Stopped.Add(s.View.Spec.Stop.Grace.D() + stopSlack)
	}
	if s.Finish.ReportBy.After(by) {
		by = s.Finish.ReportBy
	}
	return by
}

// onlyDoneRunning reports whether all workers that still run have reported that they are done. What
// they do then, such as saving a model, has no time limit.
func (s State) onlyDoneRunning() bool {
	running := 0
	for w := range s.workers() {
		switch {
		case w.State.Ended():
		case w.State != tables.WorkerStateDone:
			return false
		default:
			running++
		}
	}
	return running > 0 && s.Finish.Stopped.IsZero()
}

// outcome ends the job if its workers or a deadline have decided it, judging by the whole state.
func (t *transition) outcome() {
	switch t.View.State {
	case events.JobStateStopping:
		if !t.running() || !t.now.Before(t.Stop.By) {
			t.endJob(events.JobStateStopped, "", t.Stop.Reason)
		}
	case events.JobStateFinishing:
		t.finished()
	case events.JobStateWaiting, events.JobStateRunning:
		if t.resolveExhaustion() {
			return
		}
		if t.allSucceeded() {
			t.endJob(events.JobStateSucceeded, "", allText(t.world())+fmt.Sprintf(" of generation %s exited 0", t.View.Generation))
			return
		}
		if t.resetLimitExceeded() || t.sameStepExceeded() {
			return
		}
		if by := t.sealDeadline(); !by.IsZero() && !t.now.Before(by) {
			t.failUnsealed()
		}
	}
}

// allText formats all of a job's workers: the worker, all 4 workers.
func allText(n int) string {
	if n == 1 {
		return "the worker"
	}
	return "all " + english.Plural(n, "worker")
}

// completedText formats those of a generation's workers that have completed the training. Workers
// of an earlier one may have completed it too.
func completedText(n, world int) string {
	if n > world {
		return english.Plural(n, "worker")
	}
	return fmt.Sprintf("%d of %s", n, english.Plural(world, "worker"))
}

// finished ends a finishing job when its generation's members have ended, or the grace is over.
func (t *transition) finished() {
	running, succeeded := 0, 0
	for w := range t.workers() {
		if w.State == tables.WorkerStateSucceeded || t.Slots[w.Place.String()].Completed {
			succeeded++
		}
		if !w.State.Ended() && (t.member(w) || t.View.Generation < t.Finish.Generation) {
			running++
		}
	}
	by := t.finishDeadline()
	overdue := !by.IsZero() && !t.now.Before(by)
	switch {
	// The seal of the generation that is done, with the members to wait for, may be on its way.
	case (running > 0 || t.View.Generation < t.Finish.Generation) && !overdue:
	case running > 0 && t.Finish.Stopped.IsZero():
		t.stopRest("exit grace over", false)
	// So may the report with the result: after a redelivery the exit may arrive first.
	case succeeded > 0 && !t.Finish.Reported && t.Finish.ReportBy.IsZero():
		t.Finish.ReportBy = t.now.Add(reportFor)
	case succeeded > 0 && !t.Finish.Reported && t.now.Before(t.Finish.ReportBy):
	case succeeded > 0 && t.failedAfter() != nil:
		w := t.failedAfter()
		t.recordFirstError(w)
		t.endJob(events.JobStateFailed, "", "the training is complete, but a worker failed after it: "+describeExit(w))
	case succeeded > 0:
		reason := completedText(succeeded, t.world()) + " completed the training"
		if running > 0 {
			reason += fmt.Sprintf("; %d did not end in time", running)
		}
		if !t.Finish.Reported {
			reason += "; the report of the result has not come"
		}
		t.endJob(events.JobStateSucceeded, "", reason)
	default:
		for w := range t.workers() {
			if w.State == tables.WorkerStateFailed || w.State == tables.WorkerStateLost {
				t.recordFirstError(w)
			}
		}
		reason := "the training was reported complete, but no worker exited 0 after it"
		if t.View.FirstError != nil {
			reason += "; first: " + describeExit(t.View.FirstError)
		}
		t.endJob(events.JobStateFailed, "", reason)
	}
}

// failedAfter returns the first worker of the generation that completed the training whose program
// failed by itself afterwards, or nil. Its remaining work, such as saving the model, may be
// incomplete. A worker that was killed from outside had only to exit.
func (t *transition) failedAfter() *tables.WorkerView {
	if p := t.Finish.Failed; p != nil {
		if w := t.worker(*p); w != nil && w.State == tables.WorkerStateFailed && w.Generation == t.View.Generation {
			return w
		}
	}
	return nil
}

// stopRest stops workers that still run after the training, without effect on the outcome.
func (t *transition) stopRest(reason string, now bool) {
	t.Finish.Stopped, t.Finish.Now = t.now, now
	t.publish(events.JobStopping{Job: t.View.Job, Reason: reason, Now: now})
}

// allSucceeded reports whether every process of the current generation has exited 0 under restart
// recovery. A generation that has lost a member restarts as a whole, so it can no longer succeed.
func (t *transition) allSucceeded() bool {
	if t.inProcess() || t.View.Generation == 0 || t.Broken >= t.View.Generation {
		return false
	}
	n := 0
	for w := range t.workers() {
		switch {
		case !t.member(w):
		case w.State != tables.WorkerStateSucceeded:
			return false
		default:
			n++
		}
	}
	return n > 0 && n == t.world()
}

func (t *transition) world() int {
	if n := len(t.View.Generations); n > 0 {
		return t.View.Generations[n-1].World
	}
	return 0
}

// lateExit records how such a worker has ended.
func (t *transition) lateExit(b events.WorkerExited) {
	w := t.worker(b.Place)
	if w == nil || w.Incarnation != b.Incarnation || w.State != tables.WorkerStateStopped || w.Detail != events.StillRunning {
		return
	}
	w.State, w.Detail, w.Lines, w.Exception = t.exitState(b), b.Detail, b.Lines, b.Exception
	t.View.Dropped += b.Dropped
	t.reported(b.WorkerRef, b.Metrics, b.MetricSteps, b.Step)
	t.preferOwnException(w)
	if w.State == tables.WorkerStateFailed && t.View.State == events.JobStateFailed && t.View.FirstError != nil {
		t.recordFirstError(w)
	}
}

// endJob ends the job for good and drops what was kept for decisions.
func (t *transition) endJob(s events.JobState, code errcode.Code, reason string) {
	v := &t.View
	t.catchUp()
	t.publishProgress(true)
	v.State, v.Reason, v.Code, v.Ended = s, reason, code, t.now
	t.abortIncident()
	v.EndWorkers(events.StillRunning)
	v.Slowest, v.Redundancy = nil, nil
	t.publish(events.JobEnd{Job: v.Job, Reason: reason, Code: code, StateHash: v.StateHash}.Fact(s))
	t.State = State{View: *v}
}
