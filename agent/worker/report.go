package worker

import (
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/agent/workerapi/wire"
	"github.com/regroup-io/regroup/events"
)

// reporter returns a life that may speak for generation g: an old generation is refused by silence.
func (t *turn) reporter(id events.Incarnation, g uint64) (*job, *life) {
	j, w := t.s.find(id)
	if w == nil || !w.alive() || uint64(w.ref.Generation) != g {
		return nil, nil
	}
	return j, w
}

func (t *turn) reported(in WorkerReported) {
	r := in.Report
	j, w := t.reporter(in.Worker, r.Generation)
	if w == nil {
		return
	}
	t.touch(w)
	w.progress.Step, w.progress.Samples, w.progress.Slowest = r.Step, r.Samples, straggler(r.Slowest, w.world)
	if r.Metrics != nil {
		w.progress.Metrics = maps.Clone(r.Metrics)
	}
	if !j.inProcess() && r.Step > 0 && w.stepped < w.ref.Generation && w.ready == w.ref.Generation {
		w.stepped = w.ref.Generation
		t.tellRestarted(w, r.Step, t.now.Sub(w.startFrom))
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
		t.tell(w, ready, w.trace)
		t.workerSpans(w, *f)
	}
}

// workerSpans draws what a worker says about its way back, laid out backwards from now: its clock is not ours, its
// durations are.
func (t *turn) workerSpans(w *life, f wire.FirstStep) {
	parts := []struct {
		name string
		ms   float64
	}{{"abort and restore", f.AbortMS}, {"rejoin", f.RejoinMS}, {"sync", f.SyncMS}, {"first step", f.StepMS}}
	from := t.now
	for _, p := range parts {
		from = from.Add(-millis(p.ms))
	}
	for _, p := range parts {
		if millis(p.ms) > 0 {
			to := from.Add(millis(p.ms))
			t.span("worker", p.name, w.trace, from, to, w, "")
			from = to
		}
	}
}

// millis reads a worker's figure; nonsense counts as nothing.
func millis(ms float64) time.Duration {
	if !(ms > 0) || ms > float64(24*time.Hour/time.Millisecond) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func (t *turn) committed(in WorkerCommitted) {
	w := t.committer(in.Worker)
	if w == nil {
		return
	}
	t.touch(w)
	c := commit(in.Report.Commit)
	w.progress.Commit = &c
	if c.Newer(w.commit) {
		w.commit = c
	}
	if l := ledger(in.Report.Ledger); !sameLedger(l, w.ledger) {
		w.ledger = l
		w.progress.Ledger = &l
	}
}

// committer is any living worker: a commit carries its own generation.
func (t *turn) committer(id events.Incarnation) *life {
	_, w := t.s.find(id)
	if w == nil || !w.alive() || w.ref.Generation == 0 {
		return nil
	}
	return w
}

func (t *turn) finished(in WorkerFinished) {
	j, w := t.reporter(in.Worker, in.Report.Generation)
	if w == nil || w.done {
		return
	}
	w.done = true
	t.touch(w)
	w.progress.Step = max(w.progress.Step, in.Report.Step)
	t.tell(w, events.WorkerDone{
		WorkerRef: w.ref, Step: in.Report.Step, Ledger: ledger(in.Report.Ledger), Metrics: maps.Clone(in.Report.Metrics),
	}, events.JobTrace(j.launch.Job))
}

// touch makes a progress signal due; the newest one within the interval wins.
func (t *turn) touch(w *life) {
	w.dirty = true
	p := &w.progress
	p.Job, p.Place, p.Generation, p.Rank, p.World = w.ref.Job, w.ref.Place, w.ref.Generation, w.rank, w.world
}

func (t *turn) sendProgress(w *life) {
	p := w.progress
	w.dirty, w.sentAt = false, t.now
	w.progress.Ledger, w.progress.Commit = nil, nil
	t.do(SendProgress{Progress: p})
}

// ledger reads a worker's account. One that is over the limit cannot be told, and half of one would be a wrong one: it is as good as none.
func ledger(l wire.Ledger) events.Ledger {
	if len(l.Epochs) > events.LimitEpochs.Most {
		return events.Ledger{}
	}
	out := events.Ledger{Samples: l.Samples}
	for _, e := range l.Epochs {
		out.Epochs = append(out.Epochs, events.LedgerEpoch(e))
	}
	return out
}

// straggler reads whom a worker names; nonsense names nobody.
func straggler(s *wire.Straggler, world int) *events.Straggler {
	if s == nil || s.Rank < 0 || s.Rank >= world || !(s.Share >= 0 && s.Share <= 1) {
		return nil
	}
	return &events.Straggler{Rank: s.Rank, Share: s.Share}
}

func sameLedger(a, b events.Ledger) bool {
	return a.Samples == b.Samples && slices.Equal(a.Epochs, b.Epochs)
}
