package job

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

// graceBy is when a finishing job's last workers are told to stop, later when they are given up, and last when the report
// of the result is; zero = no such wait.
func (s State) graceBy() time.Time {
	if s.View.State != events.JobStateFinishing || s.afterwards() {
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

// afterwards tells whether all workers that still run have said that they are done: what they do now, like saving a model, takes
// as long as it takes.
func (s State) afterwards() bool {
	running := 0
	for i := range s.View.Workers {
		switch w := &s.View.Workers[i]; {
		case w.State.Ended():
		case w.State != events.WorkerStateDone:
			return false
		default:
			running++
		}
	}
	return running > 0 && s.Finish.Stopped.IsZero()
}

// outcome ends the job if its workers, or the time, have decided it. It looks at the whole state, after every input.
func (t *turn) outcome() {
	switch t.View.State {
	case events.JobStateStopping:
		if !t.running() || !t.now.Before(t.Stop.By) {
			t.end(events.JobStateStopped, "", t.Stop.Reason)
		}
	case events.JobStateFinishing:
		t.finished()
	case events.JobStateWaiting, events.JobStateRunning:
		if t.heard() {
			return
		}
		if t.allSucceeded() {
			t.end(events.JobStateSucceeded, "", fmt.Sprintf("all %d workers of generation %s exited 0", t.world(), t.View.Generation))
			return
		}
		if t.resets() || t.poisoned() {
			return
		}
		if by := t.sealBy(); !by.IsZero() && !t.now.Before(by) {
			t.neverSealed()
		}
	}
}

// finished ends a finishing job when every member of its generation has ended, or when the grace is over.
func (t *turn) finished() {
	running, succeeded := 0, 0
	for i := range t.View.Workers {
		w := &t.View.Workers[i]
		if w.State == events.WorkerStateSucceeded || t.Notes[w.Place.String()].Completed {
			succeeded++
		}
		if !w.State.Ended() && (t.member(w) || t.View.Generation < t.Finish.In) {
			running++
		}
	}
	by := t.graceBy()
	overdue := !by.IsZero() && !t.now.Before(by)
	switch {
	// The seal of the generation that is done may still be on its way: it says whom to wait for.
	case (running > 0 || t.View.Generation < t.Finish.In) && !overdue:
	case running > 0 && t.Finish.Stopped.IsZero():
		t.stopRest("exit grace over", false)
	// So may the report that holds the result: a redelivery can let the exit overtake it.
	case succeeded > 0 && !t.Finish.Told && t.Finish.ReportBy.IsZero():
		t.Finish.ReportBy = t.now.Add(reportFor)
	case succeeded > 0 && !t.Finish.Told && t.now.Before(t.Finish.ReportBy):
	case succeeded > 0 && t.failedAfter() != nil:
		w := t.failedAfter()
		t.first(w)
		t.end(events.JobStateFailed, "", "the training is complete, but a worker failed after it: "+died(w))
	case succeeded > 0:
		reason := fmt.Sprintf("%d of %d workers completed the training", succeeded, t.world())
		if running > 0 {
			reason += fmt.Sprintf("; %d did not end in time", running)
		}
		if !t.Finish.Told {
			reason += "; the report of the result has not come"
		}
		t.end(events.JobStateSucceeded, "", reason)
	default:
		for i := range t.View.Workers {
			if w := &t.View.Workers[i]; w.State == events.WorkerStateFailed || w.State == events.WorkerStateLost {
				t.first(w)
			}
		}
		reason := "the training was reported complete, but no worker exited 0 after it"
		if t.View.FirstError != nil {
			reason += "; first: " + died(t.View.FirstError)
		}
		t.end(events.JobStateFailed, "", reason)
	}
}

// failedAfter is the first worker of the generation that completed the training whose program failed by itself after it; nil = none.
// What it was to do then, such as saving the model, may be missing. One that was killed from outside had only to end.
func (t *turn) failedAfter() *events.WorkerView {
	if p := t.Finish.Failed; p != nil {
		if w := t.worker(*p); w != nil && w.State == events.WorkerStateFailed && w.Generation == t.View.Generation {
			return w
		}
	}
	return nil
}

// stopRest tells those to stop who linger after the training is complete. The outcome stays what the others make it.
func (t *turn) stopRest(reason string, now bool) {
	t.Finish.Stopped, t.Finish.Now = t.now, now
	t.tell(events.JobStopping{Job: t.View.Job, Reason: reason, Now: now})
}

// allSucceeded tells whether every process of the current generation has exited 0, under restart recovery. A generation
// that has lost a member starts again as a whole, so it cannot succeed any more.
func (t *turn) allSucceeded() bool {
	if t.inProcess() || t.View.Generation == 0 || t.Broken >= t.View.Generation {
		return false
	}
	n := 0
	for i := range t.View.Workers {
		if w := &t.View.Workers[i]; t.member(w) {
			if w.State != events.WorkerStateSucceeded {
				return false
			}
			n++
		}
	}
	return n > 0 && n == t.world()
}

// world is the size of the current generation.
func (t *turn) world() int {
	if n := len(t.View.Generations); n > 0 {
		return t.View.Generations[n-1].World
	}
	return 0
}

// ranOn is said of a worker that had not ended when its job did. Its agent stops it.
const ranOn = "still ran when the job ended"

// late notes how such a worker has ended.
func (t *turn) late(b events.WorkerExited) {
	w := t.worker(b.Place)
	if w == nil || w.Incarnation != b.Incarnation || w.State != events.WorkerStateStopped || w.Detail != ranOn {
		return
	}
	w.State, w.Detail, w.Lines, w.Exception = t.ending(b), b.Detail, b.Lines, b.Exception
	t.View.Dropped += b.Dropped
	t.reported(b.WorkerRef, b.Metrics, b.MetricSteps, b.Step)
	t.confess(w, b)
	if w.State == events.WorkerStateFailed && t.View.State == events.JobStateFailed && t.View.FirstError != nil {
		t.first(w)
	}
}

// end ends the job for good. What was kept for decisions is dropped: there will be none.
func (t *turn) end(s events.JobState, code events.Code, reason string) {
	v := &t.View
	v.State, v.Reason, v.Code, v.Ended = s, reason, code, t.now
	t.giveUp()
	v.EndWorkers(ranOn)
	v.Slowest = nil
	end := events.JobEnd{Job: v.Job, Reason: reason, Code: code}
	switch s {
	case events.JobStateSucceeded:
		t.tell(events.JobSucceeded{JobEnd: end})
	case events.JobStateStopped:
		t.tell(events.JobStopped{JobEnd: end})
	default:
		t.tell(events.JobFailed{JobEnd: end})
	}
	t.State = State{View: *v}
}
