package job

import (
	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
)

func (t *transition) started(b events.WorkerStarted) {
	w := t.workerFor(b.WorkerRef)
	if w != nil && w.State == tables.WorkerStateStarting {
		w.State = tables.WorkerStateRunning
	}
}

// ready applies READY: the worker made a good step in a generation. READY of rank 0 makes the
// generation good; under restart recovery so does the first step that any process reports.
func (t *transition) ready(b events.WorkerReady) {
	w := t.workerFor(b.WorkerRef)
	if t.staleReady(b) {
		return
	}
	if w != nil && b.Generation >= max(t.View.Generation, w.Generation) {
		w.Generation, w.Rank = b.Generation, b.Rank
		if w.State == tables.WorkerStateStarting || w.State == tables.WorkerStateRunning {
			w.State = tables.WorkerStateReady
		}
	}
	t.setReported(b.WorkerRef, b.Rank, tables.WorkerStateReady)
	if b.Rank == 0 || (b.Step > 0 && !t.inProcess()) {
		t.generationGood(b)
	}
}

// done applies that a worker reports its work complete. With in-process recovery there is no
// further regroup; under restart recovery only exits count, and the report is kept for its figures.
// A report of an incarnation that is presumed over waits for its exit: the others may have
// regrouped without it.
func (t *transition) done(b events.WorkerDone) {
	w := t.workerFor(b.WorkerRef)
	switch {
	case w != nil && !w.State.Ended():
		w.State = tables.WorkerStateDone
		t.report(b)
		if t.inProcess() {
			t.finishing(b.Generation)
		}
	case t.inProcess() && t.View.State != events.JobStateFinishing:
		t.Finish.LateReport = &b
	case w != nil || t.inProcess():
		t.report(b)
	}
}

func (t *transition) report(b events.WorkerDone) {
	if !t.Finish.Reported || b.Step > t.Finish.Step {
		t.Finish.Reported, t.Finish.Step = true, b.Step
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

// hashed records the newest hash of the state. A step may be made again after a fault: the fact
// that comes last counts.
func (t *transition) hashed(b events.WorkerHashed) {
	if t.workerFor(b.WorkerRef) != nil {
		t.View.StateHash = &b.StateHash
	}
}

// reported records the newest values of a worker that is done or has ended.
func (t *transition) reported(r tables.WorkerRef, values map[string]float64, steps map[string]uint64, step uint64) {
	rank := ident.NoRank
	if w := t.worker(r.Place); w != nil && w.Incarnation == r.Incarnation {
		rank = w.Rank
	}
	if rank < 0 {
		return
	}
	t.View.Reported, _ = events.MergeMetrics(t.View.Reported, events.MetricsOf(values, steps, step, rank, t.now))
}

// finishing begins the end of the training, once.
func (t *transition) finishing(in ident.Generation) {
	t.Finish.Generation = max(t.Finish.Generation, in)
	if !t.waitingOrRunning() {
		return
	}
	t.View.State, t.View.Reason = events.JobStateFinishing, "a worker has completed the training"
	t.Finish.Since = t.now
	t.publish(events.JobFinishing{Job: t.View.Job})
}

func (t *transition) exited(b events.WorkerExited) {
	if t.worker(b.Place) == nil && b.Generation != 0 && b.Generation < t.View.Generation {
		return // of a place that was pruned
	}
	ended := t.endedAgent(b)
	t.agentEnded = ended != ""
	w := t.workerFor(b.WorkerRef)
	if w == nil || w.State.Ended() {
		t.explainLateExit(w, b)
		return
	}
	rank := w.Rank
	t.Early.Passed = t.Early.Passed || t.View.Step > 0 || b.Step > 0 || b.LivedMS >= events.Milliseconds(startupLife)
	t.View.Dropped += b.Dropped
	t.reported(b.WorkerRef, b.Metrics, b.MetricSteps, b.Step)
	w.Exception = b.Exception
	t.endWorker(w, t.exitState(b), b.Detail, b.Lines)
	if b.Generation == t.LastGood {
		t.recordStep(b.Generation, max(t.View.Step, b.Step))
	}
	if w.State == tables.WorkerStateFailed {
		t.exitSpan(b)
		if g := t.generation(b.Generation); rank < 0 && g != nil {
			rank = rankOf(g.Members, w.WorkerRef, -1)
		}
		cause := events.CauseAt(b.CauseKind(), b.Place, rank, b.Detail)
		t.explainCause(cause, b.Generation)
		t.preferCause(w, cause)
	}
	t.preferOwnException(w)
	if t.inProcess() && b.Done && w.State == tables.WorkerStateFailed {
		t.finishing(b.Generation) // its exit may overtake its report
		if b.ProgramFault() && !lostPeer(w) && t.Finish.Failed == nil {
			t.Finish.Failed = &b.Place
		}
	}
	if !t.waitingOrRunning() {
		return
	}
	switch w.State {
	case tables.WorkerStateSucceeded:
		if t.inProcess() {
			t.completed(b)
		} else if b.Generation != 0 && b.Generation <= t.Broken && t.hasPlace(b.Place) {
			t.respawn(w) // the whole group restarts
		}
	case tables.WorkerStateFailed:
		t.failed(w, b, ended)
	}
}

// exitState returns the state of a worker after an exit. A worker that was done is a success even
// if it was then stopped; any other exit that was asked for, or that follows from its place being
// revoked, is neither success nor failure. Programs without the SDK cannot know that their place
// was revoked, nor is it known whether it was granted again since.
func (t *transition) exitState(b events.WorkerExited) tables.WorkerState {
	switch {
	case t.inProcess() && b.Done && b.ExitCode == 0:
		return tables.WorkerStateSucceeded
	case b.Asked, t.inProcess() && b.ExitCode == 0 && !t.hasPlace(b.Place):
		return tables.WorkerStateStopped
	case b.Failed(t.inProcess()):
		return tables.WorkerStateFailed
	}
	return tables.WorkerStateSucceeded
}

func (t *transition) endWorker(w *tables.WorkerView, s tables.WorkerState, detail string, lines []string) {
	w.State, w.Detail, w.Lines = s, detail, lines
	t.setReported(w.WorkerRef, w.Rank, s)
	t.endIncarnation(*w)
}

// explainLateExit adds a late exit to a worker that was presumed lost: its node seemed gone, or it
// was left out. The verdict stands. Only a completed training is accepted late, also from an
// incarnation replaced since (w is nil): the rendezvous, which may have received it in time, does
// not regroup again.
func (t *transition) explainLateExit(w *tables.WorkerView, b events.WorkerExited) {
	t.setReported(b.WorkerRef, -1, t.exitState(b))
	if w != nil && w.State == tables.WorkerStateLost {
		t.updateSlot(w.Place, func(n *SlotRecord) {
			n.ExitedIncarnation, n.Succeeded = w.Incarnation, t.exitState(b) == tables.WorkerStateSucceeded
		})
		w.Detail, w.Lines, w.Exception = b.Detail, b.Lines, b.Exception
		if f := t.View.FirstError; f != nil && f.Incarnation == w.Incarnation {
			f.Detail, f.Lines, f.Exception = b.Detail, b.Lines, b.Exception
		}
	}
	if !t.inProcess() || t.exitState(b) != tables.WorkerStateSucceeded {
		return
	}
	switch {
	case w == nil:
		t.updateSlot(b.Place, func(n *SlotRecord) { n.Completed = true })
	case w.State != tables.WorkerStateLost:
		return
	default:
		w.State = tables.WorkerStateSucceeded
	}
	t.completed(b)
}

// completed applies a success: the report that came before it counts from now on.
func (t *transition) completed(b events.WorkerExited) {
	t.finishing(b.Generation)
	if l := t.Finish.LateReport; l != nil && l.Incarnation == b.Incarnation {
		t.report(*l)
	}
}
