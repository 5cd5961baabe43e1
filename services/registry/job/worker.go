package job

import (
	"github.com/regroup-io/regroup/events"
)

// started takes in that a process runs.
func (t *turn) started(b events.WorkerStarted) {
	w := t.admit(b.WorkerRef)
	if w != nil && w.State == events.WorkerStateStarting {
		w.State = events.WorkerStateRunning
	}
}

// ready takes in READY: the worker made a good step in a generation. Rank 0's makes the generation good; under restart
// recovery so does the first step that any process reports.
func (t *turn) ready(b events.WorkerReady) {
	w := t.admit(b.WorkerRef)
	if t.zombie(b) {
		return
	}
	if w != nil && b.Generation >= max(t.View.Generation, w.Generation) {
		w.Generation, w.Rank = b.Generation, b.Rank
		if w.State == events.WorkerStateStarting || w.State == events.WorkerStateRunning {
			w.State = events.WorkerStateReady
		}
	}
	t.say(b.WorkerRef, b.Rank, saidReady)
	if b.Rank == 0 || (b.Step > 0 && !t.inProcess()) {
		t.good(b)
	}
}

// done takes in that a worker reports its work complete. With in-process recovery nobody regroups from then on; under
// restart recovery only exits count, and the report is kept for its figures. That of a life which is over, as far as is
// known, waits for its exit: the others may have regrouped without it.
func (t *turn) done(b events.WorkerDone) {
	w := t.admit(b.WorkerRef)
	switch {
	case w != nil && !w.State.Ended():
		w.State = events.WorkerStateDone
		t.report(b)
		if t.inProcess() {
			t.finishing(b.Generation)
		}
	case t.inProcess() && t.View.State != events.JobStateFinishing:
		t.Finish.Late = &b
	case w != nil || t.inProcess():
		t.report(b)
	}
}

// report keeps the result of the training.
func (t *turn) report(b events.WorkerDone) {
	if !t.Finish.Told || b.Step > t.Finish.Step {
		t.Finish.Told, t.Finish.Step = true, b.Step
		t.View.Ledger = b.Ledger
		if len(b.Metrics) > 0 {
			t.View.Metrics = b.Metrics
		}
		if t.View.Ledger.Samples == 0 {
			t.View.Ledger.Samples = t.View.Spec.Data.Samples
		}
	}
	t.View.Step = max(t.View.Step, b.Step)
	t.reported(b.WorkerRef, b.Metrics, b.MetricSteps, b.Step)
}

// reported keeps the newest values of a worker that has ended its work, or ended.
func (t *turn) reported(r events.WorkerRef, values map[string]float64, steps map[string]uint64, step uint64) {
	rank := -1
	if w := t.worker(r.Place); w != nil && w.Incarnation == r.Incarnation {
		rank = w.Rank
	}
	if rank < 0 {
		return
	}
	t.View.Reported, _ = events.MergeMetrics(t.View.Reported, events.MetricsOf(values, steps, step, rank, t.now))
}

// finishing enters the end of the training, once.
func (t *turn) finishing(in events.Generation) {
	t.Finish.In = max(t.Finish.In, in)
	if t.View.State != events.JobStateWaiting && t.View.State != events.JobStateRunning {
		return
	}
	t.View.State, t.View.Reason = events.JobStateFinishing, "a worker has completed the training"
	t.Finish.Since = t.now
	t.tell(events.JobFinishing{Job: t.View.Job})
}

// exited takes in how a process ended.
func (t *turn) exited(b events.WorkerExited) {
	if t.worker(b.Place) == nil && b.Generation != 0 && b.Generation < t.View.Generation {
		return // of a place that was forgotten since
	}
	b.Orphaned = b.Orphaned || t.orphaned(b)
	w := t.admit(b.WorkerRef)
	if w == nil || w.State.Ended() {
		t.explain(w, b)
		return
	}
	rank := w.Rank
	t.View.Dropped += b.Dropped
	t.reported(b.WorkerRef, b.Metrics, b.MetricSteps, b.Step)
	w.Exception = b.Exception
	t.end1(w, t.ending(b), b.Detail, b.Lines)
	if b.Generation == t.LastGood {
		t.step(b.Generation, max(t.View.Step, b.Step))
	}
	if w.State == events.WorkerStateFailed {
		t.exitSpan(b)
		cause := events.Cause{Kind: events.CauseWorkerFailed, Place: &b.Place, Node: b.Place.Node, Rank: rank, Detail: b.Detail}
		t.learn(cause)
		t.rather(w, cause)
	}
	t.confess(w, b)
	if t.inProcess() && b.Done && w.State == events.WorkerStateFailed {
		t.finishing(b.Generation) // its exit may overtake its report
		if b.ProgramFault() && !ofPeer(w) && t.Finish.Failed == nil {
			t.Finish.Failed = &b.Place
		}
	}
	if t.View.State != events.JobStateWaiting && t.View.State != events.JobStateRunning {
		return
	}
	switch w.State {
	case events.WorkerStateSucceeded:
		if t.inProcess() {
			t.completed(b)
		} else if b.Generation != 0 && b.Generation <= t.Broken && t.hasPlace(b.Place) {
			t.respawn(w) // the whole group starts again
		}
	case events.WorkerStateFailed:
		t.failed(w, b)
	}
}

// orphaned tells whether an exit is reported by a later agent than the one that ran the worker: it ended with that one. Agents of older
// versions do not say so.
func (t *turn) orphaned(b events.WorkerExited) bool {
	w := t.worker(b.Place)
	return w != nil && w.Incarnation == b.Incarnation && w.Agent != "" && w.Agent < b.Agent
}

// ending is the state in which an exit leaves its worker. A worker that was done is a success even if it was then told
// to stop; any other exit that was asked for, or that follows from the place being taken away, is neither success nor failure.
// Other programs cannot know that their place was taken away, nor is it known whether it was given again since.
func (t *turn) ending(b events.WorkerExited) events.WorkerState {
	switch {
	case t.inProcess() && b.Done && b.ExitCode == 0:
		return events.WorkerStateSucceeded
	case b.Asked, t.inProcess() && b.ExitCode == 0 && !t.hasPlace(b.Place):
		return events.WorkerStateStopped
	case b.Failed(t.inProcess()):
		return events.WorkerStateFailed
	}
	return events.WorkerStateSucceeded
}

// end1 ends one worker.
func (t *turn) end1(w *events.WorkerView, s events.WorkerState, detail string, lines []string) {
	w.State, w.Detail, w.Lines = s, detail, lines
	if word, ok := word(s); ok {
		t.say(w.WorkerRef, w.Rank, word)
	}
	t.bury(*w)
}

// explain adds what a late exit knows of a worker that was judged before it: its node seemed lost, or it was left behind.
// The verdict stands; only a completed training is believed late, and then also of a life that was replaced since (w is
// nil): the rendezvous, which may have heard in time, regroups for it no more.
func (t *turn) explain(w *events.WorkerView, b events.WorkerExited) {
	if word, ok := word(t.ending(b)); ok {
		t.say(b.WorkerRef, -1, word)
	}
	if w != nil && w.State == events.WorkerStateLost {
		t.note(w.Place, func(n *Note) { n.Exited, n.Well = w.Incarnation, t.ending(b) == events.WorkerStateSucceeded })
		w.Detail, w.Lines, w.Exception = b.Detail, b.Lines, b.Exception
		if f := t.View.FirstError; f != nil && f.Incarnation == w.Incarnation {
			f.Detail, f.Lines, f.Exception = b.Detail, b.Lines, b.Exception
		}
	}
	if !t.inProcess() || t.ending(b) != events.WorkerStateSucceeded {
		return
	}
	switch {
	case w == nil:
		t.note(b.Place, func(n *Note) { n.Completed = true })
	case w.State != events.WorkerStateLost:
		return
	default:
		w.State = events.WorkerStateSucceeded
	}
	t.completed(b)
}

// completed takes in a success: the report that came before it counts from now on.
func (t *turn) completed(b events.WorkerExited) {
	t.finishing(b.Generation)
	if l := t.Finish.Late; l != nil && l.Incarnation == b.Incarnation {
		t.report(*l)
	}
}
