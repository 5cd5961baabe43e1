package screen

import (
	"fmt"
	"time"

	"github.com/regroup-io/regroup/events"
)

// Pace is how far a job is and how fast, as its workers tell. The zero value has heard nothing.
type Pace struct {
	newest   events.Progress // furthest in the newest generation
	reported map[string]events.Metric
	marks    []mark // within the last paceOver, of the newest generation
}

type mark struct {
	at   time.Time
	step uint64
}

const (
	paceOver  = 10 * time.Second
	paceLeast = time.Second // a rate over less time is not told
)

// Take takes what a worker tells at a moment.
func (p *Pace) Take(b events.Progress, now time.Time) {
	switch {
	case b.Generation < p.newest.Generation:
		return
	case b.Generation > p.newest.Generation: // it begins again at its last commit, after a pause that is no pace
		p.newest, p.marks = b, nil
	}
	p.reported, _ = events.MergeMetrics(p.reported, events.MetricsOf(b.Metrics, b.MetricSteps, b.Step, b.Rank, now))
	if b.Step > p.newest.Step {
		p.newest = b
	}
	if n := len(p.marks); n == 0 || p.marks[n-1].step < p.newest.Step {
		p.marks = append(p.marks, mark{now, p.newest.Step})
	}
	old := 0
	for old < len(p.marks)-2 && now.Sub(p.marks[old+1].at) > paceOver {
		old++
	}
	p.marks = p.marks[old:]
}

// Text is the newest step, the pace of the last seconds and the loss, as far as they are known.
func (p *Pace) Text() string {
	text := "no step yet"
	if p.newest.Step > 0 {
		text = fmt.Sprintf("step %d", p.newest.Step)
	}
	if n := len(p.marks); n > 1 {
		first, last := p.marks[0], p.marks[n-1]
		if took := last.at.Sub(first.at); took >= paceLeast {
			text += " · " + rate(float64(last.step-first.step)/took.Seconds())
		}
	}
	if m, ok := p.reported["loss"]; ok {
		text += " · loss " + Number(m.Value)
	}
	return text
}

// rate writes steps a second, or seconds a step.
func rate(perSecond float64) string {
	if perSecond >= 1 {
		return fmt.Sprintf("%.3g steps/s", perSecond)
	}
	return fmt.Sprintf("%.3g s/step", 1/perSecond)
}
