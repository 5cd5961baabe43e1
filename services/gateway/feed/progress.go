package feed

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/events/bodies"
	"github.com/regroup-io/regroup/events/ident"
	"github.com/regroup-io/regroup/events/tables"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// Bounds of what is kept of progress.
const (
	seriesJobs = 256                    // jobs with points
	maxSeries  = 32                     // metrics of one job
	maxPoints  = 720                    // of one metric; when it is full every second one is dropped
	firstEvery = time.Second            // between two points at first
	sendEvery  = 250 * time.Millisecond // between two live items about one job
)

// Names of the metrics that are derived from steps.
const (
	MetricStep      = "step"
	MetricStepsRate = view.StepRate
	MetricSamples   = "samples/s"
)

// Point is one value of a metric. Its JSON is a list: seconds since 1970, value, generation, step.
type Point struct {
	Time       time.Time
	Value      float64
	Generation ident.Generation
	Step       uint64 // after which it was reported
}

// MarshalJSON encodes the list.
func (p Point) MarshalJSON() ([]byte, error) {
	return json.Marshal([4]float64{float64(p.Time.UnixMilli()) / 1000, p.Value, float64(p.Generation), float64(p.Step)})
}

// ProgressUpdate is the data of a live item about progress.
type ProgressUpdate struct {
	Job        ident.JobID        `json:"job"`
	Generation ident.Generation   `json:"generation"`
	Step       uint64             `json:"step"`
	Samples    uint64             `json:"samples"`
	Metrics    map[string]float64 `json:"metrics,omitempty"`
	Time       time.Time          `json:"time"`
	Slowest    *events.Straggler  `json:"slowest,omitempty"`
	Redundancy *events.Redundancy `json:"redundancy,omitempty"` // the newest that was reported, in Generation or another
}

// series keeps points of the newest jobs.
type series struct {
	mu   sync.Mutex
	jobs map[ident.JobID]*jobSeries
}

type jobSeries struct {
	last    events.Progress
	at      time.Time
	sent    time.Time
	rated   time.Time // when the rates were last computed, for this step and these samples
	step    uint64
	samples uint64
	every   time.Duration
	points  map[string][]Point
	known   map[string]events.Metric
	ledger  tables.Ledger // the newest that was received; the registry learns it with the end of a worker
	// the newest that was received, of any generation
	redundancy *events.Redundancy
	paces      map[ident.Place]RankPace // of the workers of the generation pacedIn
	pacedIn    ident.Generation
}

// hearProgress reads the progress signals of all jobs.
func (f *Feed) hearProgress(ctx context.Context) error {
	return f.ports.Signals.Hear(ctx, events.AllProgress, "", func(_ string, data []byte) {
		p, err := bodies.Decode[events.Progress](data)
		if err != nil {
			return // a malformed signal counts as lost
		}
		if update, ok := f.series.take(p, time.Now()); ok {
			if data, err := json.Marshal(update); err == nil {
				f.Live.Add(Item{Kind: "progress", Job: p.Job, Data: data})
			}
		}
	}, nil)
}

// take applies a signal, and returns the update to send, unless one was sent just before.
func (s *series) take(p events.Progress, now time.Time) (ProgressUpdate, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[p.Job]
	if j == nil {
		if len(s.jobs) >= seriesJobs {
			delete(s.jobs, slices.MinFunc(slices.Collect(maps.Keys(s.jobs)), func(a, b ident.JobID) int { return s.jobs[a].at.Compare(s.jobs[b].at) }))
		}
		j = &jobSeries{every: firstEvery, points: map[string][]Point{}}
		s.jobs[p.Job] = j
	}
	if p.Ledger != nil && counted(*p.Ledger) >= counted(j.ledger) {
		j.ledger = *p.Ledger
	}
	j.pace(p, now)
	urgent := j.report(p, now)
	if p.Generation > j.last.Generation && p.Step == 0 && j.last.Step > 0 { // the newest step is still the last one
		return j.update(j.at), urgent
	}
	if p.Generation < j.last.Generation || (p.Generation == j.last.Generation && p.Step < j.last.Step) {
		return ProgressUpdate{}, false
	}
	j.known, _ = events.MergeMetrics(j.known, events.MetricsOf(p.Metrics, p.MetricSteps, p.Step, p.Rank, now))
	p.Samples = max(p.Samples, j.last.Samples)
	j.last, j.at = p, now
	j.rate(now)
	if now.Sub(j.sent) < sendEvery && !urgent {
		return ProgressUpdate{}, false
	}
	j.sent = now
	return j.update(now), true
}

// report applies what a signal says of redundancy. It is urgent if something else is survived than
// before.
func (j *jobSeries) report(p events.Progress, now time.Time) (urgent bool) {
	before := j.redundancy
	j.redundancy = events.NewerRedundancy(before, events.RedundancyOf(p, now))
	if before == nil || j.redundancy == before {
		return j.redundancy != before
	}
	r := j.redundancy
	return r.Generation != before.Generation || r.Losses != before.Losses || r.NodeLosses != before.NodeLosses
}

// update is what is sent of a job as it was at a time.
func (j *jobSeries) update(at time.Time) ProgressUpdate {
	metrics := make(map[string]float64, len(j.known))
	for name, m := range j.known {
		metrics[name] = m.Value
	}
	p := j.last
	return ProgressUpdate{p.Job, p.Generation, p.Step, p.Samples, metrics, at, p.Slowest, j.redundancy}
}

// counted returns the samples of a ledger.
func counted(l tables.Ledger) (n uint64) {
	for _, e := range l.Epochs {
		n += e.Count
	}
	return n
}

// rate adds points once per interval.
func (j *jobSeries) rate(now time.Time) {
	if j.rated.IsZero() {
		j.rated, j.step, j.samples = now, j.last.Step, j.last.Samples
		return
	}
	passed := now.Sub(j.rated)
	if passed < j.every {
		return
	}
	per := func(from, to uint64) float64 { return float64(max(to, from)-from) / passed.Seconds() }
	at := func(value float64) Point { return Point{now, value, j.last.Generation, j.last.Step} }
	j.add(MetricStep, at(float64(j.last.Step)))
	j.add(MetricStepsRate, at(per(j.step, j.last.Step)))
	if j.last.Samples > 0 {
		j.add(MetricSamples, at(per(j.samples, j.last.Samples)))
	}
	for _, name := range slices.Sorted(maps.Keys(j.known)) {
		m := j.known[name]
		j.add(name, Point{now, m.Value, j.last.Generation, m.Step})
	}
	j.rated, j.step, j.samples = now, j.last.Step, j.last.Samples
}

func (j *jobSeries) add(name string, p Point) {
	if _, ok := j.points[name]; !ok && len(j.points) >= maxSeries {
		return
	}
	j.points[name] = append(j.points[name], p)
	if len(j.points[name]) < maxPoints {
		return
	}
	j.every *= 2
	for of, points := range j.points {
		kept := points[:0]
		for i, p := range points {
			if i%2 == 0 {
				kept = append(kept, p)
			}
		}
		j.points[of] = kept
	}
}

// progressed updates the view of a running job with what was heard since it was stored. The newest
// step stays that of an earlier generation until one of the present generation is known.
func (s *series) progressed(v *events.JobView) {
	s.mu.Lock()
	defer s.mu.Unlock()
	j := s.jobs[v.Job]
	if j == nil || v.State.Terminal() {
		return
	}
	v.Redundancy = events.NewerRedundancy(v.Redundancy, j.redundancy)
	if j.last.Generation != v.Generation {
		if j.last.Step > 0 && j.last.Generation < v.Generation && j.at.After(v.StepAt) {
			v.Step, v.StepAt = j.last.Step, j.at
		}
		return
	}
	if counted(j.ledger) > counted(v.Ledger) {
		v.Ledger = j.ledger
	}
	if j.last.Step > v.Step {
		v.Step, v.StepAt = j.last.Step, j.at
	}
	v.Reported, _ = events.MergeMetrics(v.Reported, j.known)
	if j.last.Slowest != nil {
		v.Slowest = j.last.Slowest
	}
}

// Heard returns the newest step of a job that this process has heard of, as the fact that the
// registry may not have stored yet; false if it has heard none.
func (f *Feed) Heard(id ident.JobID) (events.Event, bool) {
	f.series.mu.Lock()
	defer f.series.mu.Unlock()
	j := f.series.jobs[id]
	if j == nil || j.last.Step == 0 {
		return events.Event{}, false
	}
	return events.Event{Entity: string(id), Time: j.at, Body: events.JobProgressed{Job: id, Generation: j.last.Generation, Step: j.last.Step}}, true
}

// Series returns the points of a job's metrics by name, since this process began.
func (f *Feed) Series(id ident.JobID) map[string][]Point {
	f.series.mu.Lock()
	defer f.series.mu.Unlock()
	out := map[string][]Point{}
	if j := f.series.jobs[id]; j != nil {
		for name, points := range j.points {
			out[name] = slices.Clone(points)
		}
	}
	return out
}
