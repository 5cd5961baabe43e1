package screen

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/regroup-io/regroup/events"
	"github.com/regroup-io/regroup/internal/escape"
	"github.com/regroup-io/regroup/services/cluster/view"
)

// StepRate is a job's newest step and its rate, from the workers' reports. The zero value has none.
type StepRate struct {
	newest   events.Progress // the highest step in the newest generation
	reported map[string]events.Metric
	samples  []stepSample // within rateWindow, of the newest generation
}

type stepSample struct {
	at   time.Time
	step uint64
}

const (
	rateWindow = 10 * time.Second
	rateMin    = time.Second // no rate is computed over less time
)

// Take applies a worker's report.
func (p *StepRate) Take(b events.Progress, now time.Time) {
	switch {
	case b.Generation < p.newest.Generation:
		return
	case b.Step == 0: // none was made in its generation
	case b.Generation > p.newest.Generation:
		// it restarts from its last commit, and the pause does not count
		p.newest, p.samples = b, nil
	}
	values := events.MetricsOf(b.Metrics, b.MetricSteps, b.Step, b.Rank, now)
	maps.DeleteFunc(values, func(name string, m events.Metric) bool { // of another rank, it would jump
		old, known := p.reported[name]
		return known && m.Rank > old.Rank && now.Sub(old.At) < rateWindow
	})
	p.reported, _ = events.MergeMetrics(p.reported, values)
	if b.Step > p.newest.Step {
		p.newest = b
	}
	if n := len(p.samples); n == 0 || p.samples[n-1].step < p.newest.Step {
		p.samples = append(p.samples, stepSample{now, p.newest.Step})
	}
	old := 0
	for old < len(p.samples)-2 && now.Sub(p.samples[old+1].at) > rateWindow {
		old++
	}
	p.samples = p.samples[old:]
}

// Text is the newest step, the recent rate and the loss, or another value that is reported, as far
// as they are known.
func (p *StepRate) Text() string {
	text := "no step yet"
	if p.newest.Step > 0 {
		text = fmt.Sprintf("step %d", p.newest.Step)
	}
	if n := len(p.samples); n > 1 {
		first, last := p.samples[0], p.samples[n-1]
		if took := last.at.Sub(first.at); took >= rateMin {
			text += " · " + rate(float64(last.step-first.step)/took.Seconds())
		}
	}
	name := "loss"
	if _, ok := p.reported[name]; !ok && len(p.reported) > 0 {
		name = slices.Min(slices.Collect(maps.Keys(p.reported)))
	}
	if m, ok := p.reported[name]; ok {
		text += " · " + escape.Line(name) + " " + view.Number(m.Value)
	}
	return text
}

// rate formats steps per second, or seconds per step.
func rate(perSecond float64) string {
	if perSecond >= 1 {
		return fmt.Sprintf("%.3g steps/s", perSecond)
	}
	return fmt.Sprintf("%.3g s/step", 1/perSecond)
}
