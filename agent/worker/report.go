package worker

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/limits"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/events/tracing"
	"github.com/regroup-io/regroup/internal/workerprotocol"
)

// reporterOf returns an incarnation that may report for generation g. Reports for an old generation
// are ignored.
func (t *transition) reporterOf(id ident.Incarnation, g uint64) (*job, *incarnation) {
	j, w := t.s.find(id)
	if w == nil || !w.alive() || uint64(w.ref.Generation) != g {
		return nil, nil
	}
	return j, w
}

func (in WorkerReported) apply(t *transition) {
	r := in.Report
	j, w := t.reporterOf(in.Worker, r.Generation)
	if w == nil {
		return
	}
	t.scheduleProgress(w)
	if r.Step > 0 || j.inProcess() { // a program that reports steps may report values alone
		w.progress.Step, w.progress.Samples, w.steppedAs = r.Step, r.Samples, w.ref.Generation
	}
	w.progress.Slowest, w.progress.Waited = straggler(r.Slowest, w.world), waited(r.Waited)
	w.recordMetrics(r.Metrics, stepOf(r.MetricsStep, r.Step))
	if !j.inProcess() && r.Step > 0 && w.steppedIn < w.ref.Generation && w.ready == w.ref.Generation {
		w.steppedIn = w.ref.Generation
		t.publishReady(w, r.Step, t.now.Sub(w.startedAt))
	}
	if f := r.First; f != nil && j.inProcess() && w.ready < w.ref.Generation {
		w.ready = w.ref.Generation
		ready := events.WorkerReady{
			WorkerRef: w.ref, Rank: w.rank, Step: r.Step, Lost: f.Lost, Survivor: f.Survivor, AbortMS: f.AbortMS,
			RejoinMS: f.RejoinMS, SyncMS: f.SyncMS, StepMS: f.StepMS, SyncBytes: f.SyncBytes,
		}
		if f.Checkpoint != nil {
			c := commit(*f.Checkpoint)
			ready.Checkpoint = &c
		}
		t.publish(w, ready, w.trace)
		t.recoverySpans(w, *f)
	}
}

// millis converts a worker's figure; an invalid one counts as zero.
func millis(ms float64) time.Duration {
	if !(ms > 0) || ms > float64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func (in WorkerCommitted) apply(t *transition) {
	_, w := t.s.find(in.Worker)
	if w == nil || !w.alive() || w.ref.Generation == 0 { // a commit carries its own generation
		return
	}
	t.scheduleProgress(w)
	if c := commit(in.Report.Commit); c.Generation > 0 {
		w.progress.Commit = &c
		if c.Newer(w.commit) {
			w.commit = c
		}
	}
	w.recordRedundancy(in.Report.Redundancy, t.now)
	if l := ledger(in.Report.Ledger); l.Samples != w.ledger.Samples || !slices.Equal(l.Epochs, w.ledger.Epochs) {
		w.ledger = l
		w.progress.Ledger = &l
	}
}

func (in WorkerFinished) apply(t *transition) {
	j, w := t.reporterOf(in.Worker, in.Report.Generation)
	if w == nil || w.done {
		return
	}
	w.done = true
	t.scheduleProgress(w)
	w.progress.Step, w.steppedAs = max(w.progress.Step, in.Report.Step), w.ref.Generation
	at := stepOf(in.Report.MetricsStep, in.Report.Step)
	w.recordMetrics(in.Report.Metrics, at)
	done := events.WorkerDone{WorkerRef: w.ref, Step: in.Report.Step, Ledger: ledger(in.Report.Ledger), Metrics: maps.Clone(in.Report.Metrics)}
	if at != in.Report.Step {
		done.MetricSteps = map[string]uint64{}
		for name := range done.Metrics {
			done.MetricSteps[name] = at
		}
	}
	t.publish(w, done, tracing.JobTrace(j.launch.Job))
}

func (in WorkerHashed) apply(t *transition) {
	r := in.Report
	j, w := t.s.find(in.Worker)
	if w == nil || !w.alive() || r.Generation != 0 && uint64(w.ref.Generation) != r.Generation {
		return
	}
	b := events.WorkerHashed{WorkerRef: w.ref, StateHash: tables.StateHash{Step: r.Step, Hash: r.Hash}, Tensors: r.Tensors}
	for _, d := range r.Dealt {
		b.Dealt = append(b.Dealt, tables.DealtSteps{First: d.First, Last: d.Last, Generation: ident.Generation(d.Generation), Ranks: d.Ranks, Again: d.Again})
	}
	t.publish(w, b, tracing.JobTrace(j.launch.Job))
}

func stepOf(reported *uint64, step uint64) uint64 {
	if reported != nil {
		return *reported
	}
	return step
}

// recordMetrics stores the metrics that a worker reports after a step. Values reported under other
// names before stay, with their steps; if there are too many names, those of the newest report
// stay.
func (w *incarnation) recordMetrics(values map[string]float64, step uint64) {
	if len(values) == 0 {
		return
	}
	if w.values == nil {
		w.values = map[string]metric{}
	}
	for name, v := range values {
		w.values[name] = metric{v, step}
	}
	if len(w.values) > limits.Names.Max {
		maps.DeleteFunc(w.values, func(name string, _ metric) bool { _, now := values[name]; return !now })
	}
}

// metrics returns the newest values of a worker, with the steps of those that are not from step.
func (w *incarnation) metrics(step uint64) (values map[string]float64, steps map[string]uint64) {
	for name, m := range w.values {
		if values == nil {
			values = make(map[string]float64, len(w.values))
		}
		values[name] = m.value
		if m.step != step {
			if steps == nil {
				steps = map[string]uint64{}
			}
			steps[name] = m.step
		}
	}
	return values, steps
}

// scheduleProgress schedules a progress signal; the newest one within the interval replaces earlier
// ones.
func (t *transition) scheduleProgress(w *incarnation) {
	w.progressPending = true
	p := &w.progress
	p.Job, p.Place, p.Generation, p.Rank, p.World = w.ref.Job, w.ref.Place, w.ref.Generation, w.rank, w.world
}

func (t *transition) sendProgress(w *incarnation) {
	p := w.progress
	if w.steppedAs != p.Generation { // the steps are of a generation before
		p.Step, p.Samples, p.Slowest, p.Waited = 0, 0, nil, nil
	}
	p.Metrics, p.MetricSteps = w.metrics(p.Step)
	p.Redundancy = w.redundancyReport(p.Generation, t.now)
	w.progressPending, w.sentAt = false, t.now
	w.progress.Ledger, w.progress.Commit = nil, nil
	t.do(SendProgress{Progress: p})
}

// ledger converts a worker's ledger. One that exceeds the limit cannot be published, and a
// truncated one would be wrong: it counts as none.
func ledger(l workerprotocol.Ledger) tables.Ledger {
	if len(l.Epochs) > limits.Epochs.Max {
		return tables.Ledger{}
	}
	out := tables.Ledger{Samples: l.Samples}
	for _, e := range l.Epochs {
		out.Epochs = append(out.Epochs, tables.LedgerEpoch(e))
	}
	return out
}

// straggler converts the rank that a worker names as the straggler; an invalid one counts as none.
func straggler(s *workerprotocol.Straggler, world int) *events.Straggler {
	if s == nil || s.Rank < 0 || s.Rank >= world || !(s.Share >= 0 && s.Share <= 1) {
		return nil
	}
	return &events.Straggler{Rank: ident.Rank(s.Rank), Share: s.Share}
}

// waited returns the part of its time that a worker says it has waited; an invalid one is unknown.
func waited(share *float64) *float64 {
	if share == nil || !(*share >= 0 && *share <= 1) {
		return nil
	}
	return share
}
