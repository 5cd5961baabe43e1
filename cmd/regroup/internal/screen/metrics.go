package screen

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/regroup-io/regroup/events"
)

// Limits for the values that a program reports.
const (
	metricsShown = 12
	nameShown    = 32 // characters
)

// MetricsText formats the latest values that a job's program has reported, on one line: grouped by
// step, the newest step first, with their age or, after the job has ended, the time before its end.
// "" = none.
func MetricsText(v events.JobView, now time.Time) string {
	all, until, since := v.Reported, now, " ago"
	if v.State.Terminal() {
		until, since = v.Ended, " before the end"
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Step, all[a].Step), cmp.Compare(rankOfName(a), rankOfName(b)), cmp.Compare(a, b))
	})
	var groups []string
	for i := 0; i < len(names) && i < metricsShown; {
		first := all[names[i]]
		newest := first.At
		var values []string
		for ; i < len(names) && i < metricsShown && all[names[i]].Step == first.Step; i++ {
			m := all[names[i]]
			values = append(values, nameText(names[i])+" "+Number(m.Value))
			if m.At.After(newest) {
				newest = m.At
			}
		}
		text := strings.Join(values, " · ")
		if first.Step > 0 {
			text += fmt.Sprintf(" at step %d", first.Step)
		}
		if !newest.IsZero() {
			text += ", " + Span(max(0, until.Sub(newest))) + since
		}
		groups = append(groups, text)
	}
	if len(groups) == 0 {
		return ""
	}
	if over := len(names) - metricsShown; over > 0 {
		groups = append(groups, fmt.Sprintf("%d more", over))
	}
	return "reported: " + strings.Join(groups, "; ")
}

// progressText is the sentence for a JobProgressed: generation, step and values.
func progressText(b events.JobProgressed) string {
	parts := []string{b.Generation.String()}
	if b.Step > 0 {
		parts = append(parts, fmt.Sprintf("step %d", b.Step))
	}
	names := slices.SortedFunc(maps.Keys(b.Values), func(a, c string) int {
		return cmp.Or(cmp.Compare(rankOfName(a), rankOfName(c)), cmp.Compare(a, c))
	})
	for i, name := range names {
		if i == metricsShown {
			parts = append(parts, fmt.Sprintf("%d more", len(names)-i))
			break
		}
		parts = append(parts, nameText(name)+" "+Number(b.Values[name].Value))
	}
	return strings.Join(parts, " · ")
}

// rankOfName sorts the loss first, as the most important value.
func rankOfName(name string) int {
	if name == "loss" {
		return 0
	}
	return 1
}

func nameText(name string) string {
	name = oneLine(name)
	if utf8.RuneCountInString(name) > nameShown {
		name = string([]rune(name)[:nameShown-1]) + "…"
	}
	return name
}

// Number formats a value with at most six digits.
func Number(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }

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
	case b.Generation > p.newest.Generation:
		// it restarts from its last commit, and the pause does not count
		p.newest, p.samples = b, nil
	}
	p.reported, _ = events.MergeMetrics(p.reported, events.MetricsOf(b.Metrics, b.MetricSteps, b.Step, b.Rank, now))
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

// Text is the newest step, the recent rate and the loss, as far as they are known.
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
	if m, ok := p.reported["loss"]; ok {
		text += " · loss " + Number(m.Value)
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
